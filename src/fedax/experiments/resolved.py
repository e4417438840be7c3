"""Resolved experiments: what experiment.json of a run or of several runs says."""

from __future__ import annotations

from typing import Any

from fedax.engine.prepare import Prepared
from fedax.engine.record import used
from fedax.experiments.file_tables import AlgorithmTable
from fedax.experiments.schema import Experiment
from fedax.runs.files import slug, versions


def run_name(table: AlgorithmTable, seed: int) -> str:
    """The directory of one run of several."""
    return f"{slug(str(table.label))}-seed{seed}"


def resolved_run(experiment: Experiment, table: AlgorithmTable, seed: int) -> dict[str, Any]:
    """The experiment of one method and one seed, every default written out."""
    return {
        **experiment.model_dump(exclude={"algorithm", "seeds", "sweep"}),
        "seed": seed,
        "algorithm": table.resolved(),
    }


def resolved_comparison(experiment: Experiment, runs: list[str]) -> dict[str, Any]:
    """The experiment of several runs, every default written out, and the names of their directories."""
    tables = [table.resolved() for table in experiment.algorithm]
    return {**experiment.model_dump(exclude={"sweep"}), "algorithm": tables, "runs": runs, "versions": versions()}


def carried_out(resolved: dict[str, Any], run: Prepared) -> dict[str, Any]:
    """A run's experiment with what follows from its data: the loss, the outputs, the executor."""
    problem = run.problem
    found = {
        "problem": {**resolved["problem"], "loss": problem.name},
        "model": {**resolved["model"], "outputs": problem.outputs_per_row or resolved["model"]["outputs"]},
    }
    return {**resolved, **found, **used(run), "versions": versions()}
