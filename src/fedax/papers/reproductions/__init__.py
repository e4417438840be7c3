"""The papers' experiments, one TOML file each, and what came out of them.

ids(), load(id)                                   their ids; one of them
reproducing.carry_out(reproduction, scale, out)   run it, or go on with it; returns what was measured
judge(reproduction, scale, measured)              the paper's figures and claims beside ours
saved(id, scale)                                  the result that comes with Fedax
docs_page.page()                                  docs/reproductions.md
"""

from __future__ import annotations

from fedax.papers.reproductions.description import SCALES, Reproduction, Scale
from fedax.papers.reproductions.library import ids, load
from fedax.papers.reproductions.saving import ReproductionResult, saved
from fedax.papers.reproductions.verdict import Judgement, Measured, judge

__all__ = [
    "SCALES",
    "Judgement",
    "Measured",
    "Reproduction",
    "ReproductionResult",
    "Scale",
    "ids",
    "judge",
    "load",
    "saved",
]
