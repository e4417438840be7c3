"""A hospital: each SuperNode starts it, with `--node-config 'partition-id=0 rows="/data/site-0.npz"'` and so on."""

from pathlib import Path

import numpy as np

import fedax.flower


def load(config):
    """The rows of this site, from the file that the node's configuration names."""
    with np.load(config["rows"]) as rows:
        return {part: {name: rows[f"{part}_{name}"] for name in ("x", "y")} for part in ("train", "test")}


app = fedax.flower.client_app(Path(__file__).with_name("experiment.toml"), data=load, clients=3)
