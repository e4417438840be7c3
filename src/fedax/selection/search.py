"""`recommend`: which method, with which numbers, for a problem and a federation."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedax.data.heterogeneity import heterogeneity
from fedax.engine.config import RunConfig
from fedax.engine.prepare import Prepared, in_memory
from fedax.engine.record import written_out
from fedax.errors import FedaxError, unknown
from fedax.evaluation.metrics import BALANCED
from fedax.experiments.events import Progress
from fedax.report.columns import better
from fedax.runs.lock import locked
from fedax.selection.allowance import Allowance, price
from fedax.selection.candidates import YARDSTICK, Candidate, Track, candidate, fitting, track_of
from fedax.selection.contest import FINAL, Attempt, Contest, Entrant, Notes, Outlook
from fedax.selection.pilot import gradients_in
from fedax.selection.ranking import ROWS, rank
from fedax.selection.recommendation import Recommendation

ATTEMPTS, RECOMMENDATION = "attempts.jsonl", "recommendation.json"
DIAGNOSTICS = ("drift", "diversity", "residual")


def recommend(
    problem: Any,
    federation: Any,
    *,
    rounds: int = 60,
    budget: str | None = None,
    methods: Sequence[str] | None = None,
    lr: float = 0.1,
    given: Mapping[str, Mapping[str, Any]] | None = None,
    personal: bool = False,
    metric: str | None = None,
    trials: int = 9,
    seeds: Sequence[int] = (0, 1, 2, 3, 4),
    finalists: int = 4,
    out: str | Path | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Recommendation:
    """Try the methods that fit a problem and say which one to use.

    budget: what one run may cost, such as "2e6 gradients" or "1e8 floats", or how long the whole search may take,
        "10 minutes". Default: what FedAvg takes in `rounds` rounds, in gradients.
    methods: names to try instead of all that fit; "mymodule:MyMethod" for one of your own.
    lr: the rate to search around. given: by a method's name, values to search around and choices to keep.
    personal: look for a model for each client instead of one for all.
    metric: decides, on validation rows; default AUC if the problem has it, else accuracy, else the objective, else the
    loss.
    trials: the number of settings of each method. seeds: those of the final. finalists: the number of methods in it.
    out: a directory that keeps what is done; the same call goes on from there. options: as `simulate` takes them.

    >>> import fedax
    >>> federation = fedax.data.load("iris", partition=fedax.data.IID(clients=3), split=(0.6, 0.2, 0.2))
    >>> problem = fedax.Problem(fedax.models.model("logistic", outputs=3), loss="cross_entropy")
    >>> found = recommend(problem, federation, rounds=9, methods=["FedAvg", "SCAFFOLD"], trials=2, seeds=(0, 1))
    >>> sorted(place.label for place in found.standings)
    ['FedAvg', 'SCAFFOLD']
    """
    began, progress = time.perf_counter(), progress or Progress()
    seeds = tuple(seeds)
    _check(federation, trials, seeds, finalists)
    track: Track = "personal" if personal and problem.regularizer is None else track_of(problem)
    names = list(methods) if methods else fitting(track)
    steps = max(1, int(options.get("local_steps") or 1))
    tried = [candidate(name, lr=lr, given=(given or {}).get(name), steps=steps) for name in names]
    how = {**options, "personal": track == "personal"}
    prepared, left_out = _prepared(problem, federation, tried, how, rounds, chosen=methods is not None)
    tried = [one for one in tried if one.label in prepared]
    spend = Allowance.of(budget) if budget is not None else Allowance(rounds * _first_price(prepared), "gradients")
    folder = None if out is None else Path(out)
    with locked(folder):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        if spend.unit == "minutes":
            known = Notes.gradients(folder and folder / ATTEMPTS, str(budget))
            if known is None:
                progress.say(f"measuring how many gradients fit into {spend.amount:g} minutes")
                plan = (how, trials, finalists, len(seeds))
                spend = gradients_in(spend.amount, problem, federation, tried, prepared, *plan)
            else:
                spend = Allowance(known, "gradients")
        _check_pays(spend, prepared)
        entrants = [Entrant(one, _rounds(spend, prepared[one.label], one.label, rounds), how) for one in tried]
        column = _column(track, metric, problem)
        seed = next(s for s in range(2**32) if s not in seeds)
        asked = {
            "methods": [one.label for one in tried],
            "spans": {one.label: {k: dataclasses.asdict(s) for k, s in one.spans.items()} for one in tried},
            "rounds": {entrant.label: entrant.rounds for entrant in entrants},
            "metric": column,
            "budget": budget,
            "gradients": spend.amount if spend.unit == "gradients" else None,
            "trials": trials,
            "finalists": finalists,
            "options": {key: str(value) for key, value in sorted(how.items())},
        }
        contest = Contest(
            problem,
            federation,
            entrants,
            trials=trials,
            seed=seed,
            seeds=seeds,
            finalists=min(finalists, len(entrants)),
            notes=Notes(folder and folder / ATTEMPTS, asked),
            metric=column,
            yardstick=YARDSTICK[track],
            batched=prepared[tried[0].label].executor.name == "batched",
            progress=progress,
        )
        outlook = contest.run()
        found = _found(outlook, tried, prepared, entrants, track, column, left_out, federation, seeds)
        made = dataclasses.replace(
            found, trials=trials, budget=f"{spend.amount:,.0f} {spend.unit} a run", seconds=time.perf_counter() - began
        )
        if folder is not None:
            made.save(folder / RECOMMENDATION)
    return made


def _check(federation: Any, trials: int, seeds: Sequence[int], finalists: int) -> None:
    shown = in_memory(federation)
    if federation.clients < 2:
        raise FedaxError(
            "the federation has one client: every method is then training alone, so there is nothing to choose"
        )
    if not shown.part("validation").count.sum():
        raise FedaxError("a recommendation needs validation rows, and no client has any: data.split must leave some")
    if trials < 1 or finalists < 1:
        raise FedaxError(f"trials is {trials} and finalists is {finalists}: both must be at least 1")
    if not seeds or len(set(seeds)) < len(seeds):
        raise FedaxError(f"seeds is {tuple(seeds)}: it must be one or more numbers that differ")


def _prepared(
    problem: Any, federation: Any, tried: Sequence[Candidate], how: Mapping[str, Any], rounds: int, *, chosen: bool
) -> tuple[dict[str, Prepared], dict[str, str]]:
    """Each method that can run here, prepared, and why the others cannot; raises if a method that was named cannot."""
    found: dict[str, Prepared] = {}
    left: dict[str, str] = {}
    beside = None
    for one in tried:
        try:
            config = RunConfig(rounds=rounds, **{**how, "protocol": False})
            if config.personal and not one.make(one.draw(1)[0]).personalised:
                raise FedaxError("it has no models of the clients' own, which a personal search compares")
            beside = Prepared.of(problem, federation, one.make(one.draw(1)[0]), config, beside)
        except FedaxError as error:
            if chosen and len(tried) == 1:
                raise
            left[one.label] = str(error)
            continue
        found[one.label] = beside
    if not found:
        raise FedaxError(f"no method fits this problem: {'; '.join(f'{k}: {v}' for k, v in left.items())}")
    return found, left


def _first_price(prepared: Mapping[str, Prepared]) -> float:
    """Gradients of a round of FedAvg, or of the cheapest method where it does not take part."""
    return (
        price(prepared["FedAvg"])["gradients"]
        if "FedAvg" in prepared
        else min(price(run)["gradients"] for run in prepared.values())
    )


def _check_pays(spend: Allowance, prepared: Mapping[str, Prepared]) -> None:
    """Raise if the budget does not pay for a round of each method, and say what the most expensive one takes."""
    dearest = max(prepared, key=lambda label: price(prepared[label])[spend.unit])
    if price(prepared[dearest])[spend.unit]:
        spend.rounds(prepared[dearest], dearest)


def _rounds(spend: Allowance, run: Prepared, label: str, rounds: int) -> int:
    if not price(run)[spend.unit]:
        return rounds  # it sends nothing
    return spend.rounds(run, label)


def _column(track: Track, metric: str | None, problem: Any) -> str:
    """The column that decides."""
    known = [*problem.metrics, *(["objective"] if problem.regularizer is not None else [])]
    chosen = metric or next(name for name in (*BALANCED, "accuracy", "objective", "loss") if name in known)
    if chosen not in known:
        raise FedaxError(f"metric: {unknown('metric', chosen, known)}")
    return f"{'personal_' if track == 'personal' else ''}validation_{chosen}"


def _found(
    outlook: Outlook,
    tried: Sequence[Candidate],
    prepared: Mapping[str, Prepared],
    entrants: Sequence[Entrant],
    track: Track,
    column: str,
    left_out: dict[str, str],
    federation: Any,
    seeds: Sequence[int],
) -> Recommendation:
    finals = {label: [_of(outlook.attempts, label, seed) for seed in seeds] for label in outlook.finalists}
    scores = {label: [math.nan if a.score is None else a.score for a in attempts] for label, attempts in finals.items()}
    tested = column.replace("validation_", "test_")
    by_label = {one.label: one for one in tried}
    rounds = {entrant.label: entrant.rounds for entrant in entrants}
    last = {label: max((a for a in outlook.attempts if a.label == label), key=lambda a: a.stage) for label in by_label}
    first = next(iter(prepared.values()))
    rows = int(in_memory(federation).part("validation").count.sum())
    least = ROWS / rows if "accuracy" in column else 0.0
    return Recommendation(
        track=track,
        metric=column,
        rows=rows,
        least=least,
        standings=rank(scores, higher=better(column) == "max", least=least),
        finals=scores,
        test={label: [a.last.get(tested, math.nan) for a in found] for label, found in finals.items()},
        chosen={
            label: written_out(by_label[label].make(numbers), {"name": by_label[label].name})
            for label, numbers in outlook.chosen.items()
        },
        costs={label: _cost(run, rounds[label]) for label, run in prepared.items()},
        dropped=outlook.dropped,
        scores={label: _best(outlook.attempts, label, last[label].stage, column) for label in by_label},
        left_out=left_out,
        facts=_facts(first, federation),
        diagnostics={label: _diagnosed(attempts) for label, attempts in finals.items()},
        trials=0,
        attempts=len(outlook.attempts),
        budget="",
        seconds=0.0,
    )


def _of(attempts: Sequence[Attempt], label: str, seed: int) -> Attempt:
    return next(a for a in attempts if a.label == label and a.stage == FINAL and a.seed == seed)


def _best(attempts: Sequence[Attempt], label: str, stage: int, column: str) -> float | None:
    """A method's score when it was last judged: its best setting's, or the mean over the seeds of the final."""
    found = [a.score for a in attempts if a.label == label and a.stage == stage and a.score is not None]
    if not found:
        return None
    if stage == FINAL:
        return sum(found) / len(found)
    return max(found) if better(column) == "max" else min(found)


def _cost(run: Prepared, rounds: int) -> dict[str, float]:
    each = price(run)
    return {
        "rounds": rounds,
        "gradients": rounds * each["gradients"],
        "floats": rounds * each["floats"],
        "kept": run.cost.kept,
    }


def _facts(run: Prepared, federation: Any) -> list[str]:
    """Sentences on what is known before training: the clients' data, the cohort, the local steps of a round."""
    plan = run.plan
    share = plan.cohort / plan.clients
    return [
        *heterogeneity(in_memory(federation)).sentences(),
        f"{plan.cohort} of {plan.clients} clients a round ({100 * share:.0f} %)",
        f"up to {plan.max_steps} local steps a round",
    ]


def _diagnosed(attempts: Sequence[Attempt]) -> dict[str, float]:
    """The mean over seeds of how far clients drifted and disagreed in the last evaluated round."""
    found = {}
    for name in DIAGNOSTICS:
        values = [a.last[name] for a in attempts if name in a.last]
        if values:
            found[name] = sum(values) / len(values)
    return found
