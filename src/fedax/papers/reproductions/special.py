"""What an experiment file cannot say, as functions: a setting and a directory in, numbers by method and metric out.

The two exceptions to "a reproduction is data": FedAc's table, whose runs all start at one published draw, and theorems,
which are about functions and not about federations. What they are told is in their tables.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from fedax.experiments import Progress
from fedax.papers.reproductions import a9a_table, theorems
from fedax.papers.reproductions.description import ScaledSetting
from fedax.papers.reproductions.verdict import Measured

Measure: TypeAlias = Callable[[ScaledSetting, Path, Progress], dict[tuple[str, str], Measured]]
MEASURES: dict[str, Measure] = {"fedac": a9a_table.measure, "theorems": theorems.measure}
