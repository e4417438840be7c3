"""The server: `flwr run` starts it. It has no rows."""

from pathlib import Path

import fedax.flower

app = fedax.flower.server_app(Path(__file__).with_name("experiment.toml"), clients=3)
