"""The simulator: cohorts, executors, the compiled rounds, the run."""

from __future__ import annotations

from fedax.engine.api import simulate, stream
from fedax.engine.loop import Simulation
from fedax.engine.result import Result, load
from fedax.engine.sweeps import grid, sweep
from fedax.runs.files import History

__all__ = ["History", "Result", "Simulation", "grid", "load", "simulate", "stream", "sweep"]
