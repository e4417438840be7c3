"""The simulator: cohorts, executors, the compiled rounds, the run."""

from __future__ import annotations

from fedax.simulation.api import simulate, stream
from fedax.simulation.result import History, Result, load
from fedax.simulation.run import Simulation
from fedax.simulation.sweep import grid, sweep

__all__ = ["History", "Result", "Simulation", "grid", "load", "simulate", "stream", "sweep"]
