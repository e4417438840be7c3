"""Which method is best, on many tasks, at equal cost: tasks as data, runs that go on where they stopped, and a page."""

from __future__ import annotations

from fedax.leaderboard.tasks import Task, load, names

__all__ = ["Task", "load", "names"]
