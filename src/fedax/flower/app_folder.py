"""An app folder for `flwr run`: the experiment, a server and a client of a few lines, and Flower's own settings."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path, PurePath

from fedax.errors import FedaxError
from fedax.experiments import read
from fedax.outside import own_files
from fedax.runs.files import refuse_taken, slug, write_whole

EXPERIMENT = "experiment.toml"

PROJECT = """\
[project]
name = {name}
version = "1.0.0"
description = {description}
license = "Apache-2.0"
dependencies = ["fedax[flower]"]

[tool.flwr.app]
publisher = "fedax"

[tool.flwr.app.components]
serverapp = "server:app"
clientapp = "client:app"

# Each may be set for one run: flwr run . --run-config 'seed=1 out="runs/second"'
[tool.flwr.app.config]
method = {method}  # the label of one method of experiment.toml
seed = {seed}
out = {out}  # the run's directory, on the machine of the SuperLink; started again with the same, a run goes on
min-clients = 0  # connected clients that a round begins with; 0 for the cohort
min-answers = 0  # answers that a round needs; 0 for half the cohort
round-timeout = 600.0  # seconds that clients have for a round
max-norm = 0.0  # the largest L2 norm of an upload that is used; 0 for any
norm-factor = 10.0  # an upload this many times larger than the median is left out; 0 for no such bound
max-rows = 0  # the most rows of a part that a client may claim; 0 for a million
clip = 0.0  # the L2 norm that uploads are scaled down to; 0 leaves them as they are
noise = 0.0  # with clip: the noise multiplier of differential privacy
delta = 0.0  # with noise: of (epsilon, delta); 0 for 1e-5
cohorts = "known"  # with noise: "known" to all by the seed, or "secret" and drawn by the server alone
preparation = ""  # where sites have tables: the file with their preparation, which is kept with the model
secure = 0.0  # secure aggregation of uploads whose entries are at most this large; 0 for plain uploads
"""

SERVER = """\
\"\"\"The server: `flwr run` starts it.\"\"\"

from pathlib import Path

import fedax.flower

app = fedax.flower.server_app(Path(__file__).with_name("experiment.toml"))
"""

CLIENT = """\
\"\"\"A client: each SuperNode starts it, with `--node-config 'partition-id=0'` and so on.\"\"\"

from pathlib import Path

import fedax.flower

# Clients that bring their own rows: give client_app data=load and clients=3, and server_app clients=3, where
# load(config) returns {"train": {"x": ..., "y": ...}, "test": {"x": ..., "y": ...}}.
app = fedax.flower.client_app(Path(__file__).with_name("experiment.toml"))
"""


def new(folder: Path, experiment: Path) -> list[Path]:
    """Check an experiment, write an app folder for it, and return the files.

    The user's own files that the experiment names go with it, for every site needs them.
    """
    asked = read(experiment)
    text = experiment.read_text()
    own = own_files(tomllib.loads(text), experiment.parent)
    for path in map(PurePath, own):
        if path.is_absolute() or ".." in path.parts:
            raise FedaxError(
                f"{path} would not be found at the sites: put the file beside {experiment} and name it from there"
            )
    if asked.unseen:
        raise FedaxError(f"unseen is {asked.unseen}: over a network no client can be held out")
    refuse_taken(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = slug(asked.name).replace(".", "-")[:32]
    fields = {
        "name": name,
        "description": f"{asked.name}, over a network",
        "method": str(asked.algorithm[0].label),
        "seed": asked.seeds[0],
        "out": f"runs/{name}",
    }
    files = {
        "pyproject.toml": PROJECT.format(**{key: json.dumps(value) for key, value in fields.items()}),
        "server.py": SERVER,
        "client.py": CLIENT,
        EXPERIMENT: text,
        **{path: file.read_text() for path, file in own.items()},
    }
    if len(files) < 4 + len(own):
        raise FedaxError(f"server.py and client.py are the app's own files: {experiment} must name its files otherwise")
    for file, content in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        write_whole(folder / file, content.encode())
    return [folder / file for file in files]
