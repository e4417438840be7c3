"""What identifies a run: it goes on only under the same experiment, seed and version of the method."""

from __future__ import annotations

import hashlib
import inspect
import zlib

import jax
import numpy as np

from fedax.engine.prepare import Prepared
from fedax.errors import FedaxError
from fedax.version import VERSION


class Differs(FedaxError):
    """A checkpoint of another experiment."""


def fingerprint(run: Prepared) -> dict[str, str]:
    """What must be the same for a run to go on."""
    method = type(run.algorithm)
    arrays = run.federation.arrays
    data = [zlib.crc32(np.ascontiguousarray(arrays[key]).data) for key in sorted(arrays)]
    ranges = [zlib.crc32(run.federation.part(p).count.tobytes()) for p in ("train", "validation", "test")]
    return {
        "algorithm": repr(run.algorithm),
        "version of the method": source(method),
        "seed": str(run.config.seed),
        "rounds": str(run.config.rounds),
        "eval_every": str(run.config.eval_every),
        "schedule": repr(run.plan),
        "executor": repr(run.executor),
        "data": f"{sorted(arrays)} {data} {ranges}",
        "model": repr([(leaf.shape, str(leaf.dtype)) for leaf in jax.tree.leaves(run.x0)]),
        "model_state": str(run.config.model_state),
        "trainable": run.problem.frozen_name,
        "loss": run.problem.name,
        "metrics": ", ".join(run.problem.metrics),
        "regularizer": repr(run.problem.regularizer),
        "gradients": repr(run.problem.gradients),
        "row privacy": repr(run.problem.row_privacy),
        "augment": getattr(run.problem.augment, "__name__", str(run.problem.augment)),
        "evaluated": str(list(run.meters)),
        "attack": str(run.config.attack),
        "availability": str(run.config.availability),
        "patience": f"{run.config.patience} {run.config.stop_by}",
        "unseen": str(run.unseen.tolist()),
        "fedax": VERSION,
        "jax": jax.__version__,
    }


def source(method: type) -> str:
    try:
        return hashlib.sha256(inspect.getsource(method).encode()).hexdigest()[:16]
    except (OSError, TypeError):  # the class was typed into a console, so it has no source
        return "unknown"


def compare(saved: dict[str, str], now: dict[str, str]) -> None:
    """Refuse to go on, and say what differs."""
    apart = [key for key in now if saved.get(key) != now[key]]
    if apart:
        shown = "; ".join(f"{key} was {saved.get(key)} and is {now[key]}" for key in apart)
        raise Differs(f"the run cannot go on under another experiment: {shown}")
