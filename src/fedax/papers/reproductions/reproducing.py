"""Carrying out a reproduction: part by part, going on where an earlier one stopped."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeAlias

from fedax import report
from fedax.errors import FedaxError, unknown
from fedax.experiments import Experiment, Progress, resume, resume_sweep, run, sweep
from fedax.experiments.reading import override
from fedax.papers.reproductions.curves import curves
from fedax.papers.reproductions.description import Quantity, Reproduction, Scale, ScaledSetting
from fedax.papers.reproductions.figures_of_runs import measured, quickest
from fedax.papers.reproductions.saving import ABOUT, RESULT, ReproductionResult, read
from fedax.papers.reproductions.special import MEASURES
from fedax.papers.reproductions.verdict import Measured
from fedax.report import RecordedRun
from fedax.report.summary import differing, flat
from fedax.runs.files import EXPERIMENT, as_json, read_json, refuse_taken, slug, versions, write_json


class Interrupted(Exception):
    """Ctrl-C ended it; the same command goes on."""


Watch: TypeAlias = Callable[[str], AbstractContextManager[Progress]]


def carry_out(
    reproduction: Reproduction,
    scale: Scale,
    out: Path,
    *,
    seeds: int | None = None,
    parts: Sequence[str] = (),
    methods: Sequence[str] = (),
    changes: Sequence[tuple[str, str]] = (),
    watch: Watch = lambda title: nullcontext(Progress()),
) -> tuple[ReproductionResult, dict[Path, list[Path]]]:
    """Run what is missing and measure all that the paper's figures and claims ask for; returns the result and the
    directories of the comparisons and their runs.

    out: a new directory, or one in which the same reproduction was begun, which goes on.
    seeds: how many, in place of the table's.
    parts: the names of those that are run, if not all; what was measured of others in `out` is kept.
    methods: the labels of those that are run, if not all; what others have left in `out` is kept, as with parts.
    changes: fields to change in every part, as `fedax.experiments.read` takes them; one method's fields where it runs.
    watch: is given the title of what follows, and is told what happens in it.
    """
    settings = [_seeded(setting, seeds) for setting in reproduction.at(scale)]
    if changes:
        settings = _changed(reproduction, settings, changes, parts)
    about = {"reproduction": reproduction.id, "scale": scale, "parts": [s.model_dump() for s in settings]}
    names = [setting.part for setting in settings]
    for part in parts:
        if part not in names:
            raise unknown("part", part, names)
    if methods:
        _refuse_others(reproduction, [one for one in settings if not parts or one.part in parts], methods)
    _claim(out, as_json(about))
    began = time.monotonic()
    made: dict[Path, list[Path]] = {}
    runs: dict[str, list[RecordedRun]] = {}
    folders: dict[str, Path] = {}
    before = read_json(out / RESULT)  # of an earlier command: of other parts, or of these, if they are measured again
    numbers: dict[str, Measured] = {} if before is None else read(out / RESULT).measured
    for setting in settings:
        if parts and setting.part not in parts:
            continue
        if methods and not any(label in methods for label in setting.methods):
            continue
        folder = folders[setting.part] = out / (slug(setting.part) if setting.part else "experiment")
        with watch(setting.part) as progress:
            if reproduction.measure is None:
                made[folder] = _experiment(setting.experiment(), folder, methods, progress)
                runs[setting.part] = report.read_all(made[folder])
            else:
                found = MEASURES[reproduction.measure](setting, folder, progress)
                whose = setting.part or None
                numbers |= {str(Quantity(method=m, part=whose, metric=what)): n for (m, what), n in found.items()}
    numbers |= _numbers(reproduction, scale, runs, folders, whole=not parts)
    minutes = ((before or {}).get("minutes") or 0) + (time.monotonic() - began) / 60
    seen = {} if before is None else read(out / RESULT).curves
    if reproduction.picture is not None:
        seen |= curves(reproduction.picture, runs)
    result = ReproductionResult(reproduction.id, scale, numbers, minutes, versions(), curves=seen)
    write_json(out / RESULT, result.as_json())
    return result, made


def _numbers(
    reproduction: Reproduction,
    scale: Scale,
    runs: dict[str, list[RecordedRun]],
    folders: dict[str, Path],
    *,
    whole: bool,
) -> dict[str, Measured]:
    """What figures and claims ask for, from runs and the directories of sweeps; of all parts together if all ran."""
    asked = [q for q in reproduction.quantities(scale) if whole or q.part in folders]
    found = {str(q): quickest(q, folders) if q.quickest else measured(q, runs) for q in asked}
    return {name: value for name, value in found.items() if value is not None}


def _seeded(setting: ScaledSetting, seeds: int | None) -> ScaledSetting:
    """A part with this number of seeds, from 0 on."""
    if seeds is None:
        return setting
    return setting.model_copy(update={"table": {**setting.table, "seeds": list(range(seeds))}})


def _changed(
    reproduction: Reproduction,
    settings: Sequence[ScaledSetting],
    changes: Sequence[tuple[str, str]],
    running: Sequence[str],
) -> list[ScaledSetting]:
    """The parts with some fields changed; a field of one method is changed in the parts where the method runs.

    running: the parts that run, if not all: another part whose data or model do not have a field stays as it is.
    """
    if reproduction.experiment is None:
        raise FedaxError(f"--set {changes[0][0]}: {reproduction.id} is no experiment, so it has no fields to set")
    tables = {setting.part: copy.deepcopy(setting.table) for setting in settings}
    labels = {setting.part: setting.methods for setting in settings}
    for field, value in changes:
        home, _, inside = field.partition(".")
        whose = inside.partition(".")[0] if home == "algorithm" else ""
        somewhere = any(whose in there for there in labels.values())
        for part, table in tables.items():
            if not somewhere or whose in labels[part]:
                override(table, field, value)
    found = []
    for before in settings:
        setting = ScaledSetting(part=before.part, table=tables[before.part])
        try:
            setting.experiment()  # a mistake stops it before the first part runs
        except FedaxError:
            if not running or setting.part in running:
                raise
            setting = before
        found.append(setting)
    return found


def _refuse_others(reproduction: Reproduction, settings: Sequence[ScaledSetting], methods: Sequence[str]) -> None:
    """Raise if these are not methods that run by themselves."""
    every = list(dict.fromkeys(label for setting in settings for label in setting.methods))
    for method in methods:
        if method not in every:
            raise unknown("method", method, every)
    if reproduction.measure is not None:
        raise FedaxError(
            f"--method is {methods[0]!r}: the methods of {reproduction.id} are run together, so leave it out"
        )


def _claim(out: Path, about: dict[str, Any]) -> None:
    """Take a directory that is free, or that holds the beginning of the same reproduction."""
    before = read_json(out / ABOUT)
    if before is None:
        refuse_taken(out)
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / ABOUT, about)
        return
    if before != json.loads(json.dumps(about)):
        apart = differing([_flat(before), _flat(about)])
        raise FedaxError(
            f"out is {str(out)!r}: it holds another reproduction, or the same in another setting ({apart[0]} differs); "
            "choose another directory or remove it"
        )


def _flat(about: dict[str, Any]) -> dict[str, Any]:
    """The fields of a reproduction under dotted names."""
    parts = {str(number): part for number, part in enumerate(about["parts"])}
    return flat({**about, "parts": parts})


def _experiment(experiment: Experiment, folder: Path, methods: Sequence[str], progress: Progress) -> list[Path]:
    """A part's runs: of a comparison, or the best settings of a sweep; gone on with where it was begun."""
    began = (folder / EXPERIMENT).is_file()
    if experiment.sweep is not None:
        if began:
            swept = resume_sweep(folder, only=methods, progress=progress)
        else:
            swept = sweep(experiment, folder, only=methods, progress=progress)
        if swept.interrupted:
            raise Interrupted
        return [path for best in swept.methods for path in best.folders]
    if began:
        outcome = resume(folder, only=methods, progress=progress)
    else:
        outcome = run(experiment, folder, only=methods, progress=progress)
    if outcome.interrupted:
        raise Interrupted
    for one in outcome.runs:
        if one.status == "failed":
            raise FedaxError(f"{one.label}, seed {one.seed}: {one.message}")
    return [one.folder for one in outcome.runs if one.status in ("finished", "diverged")]
