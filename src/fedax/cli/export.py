"""`fedax export`: results for other programs, and a model with its card."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedax.cli.options import Debug
from fedax.errors import FedaxError

SUFFIXES = (".csv", ".parquet", ".tex")


def export(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Directories of runs or comparisons.", show_default=False),
    ],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FILE", help="A file that ends in .csv, .parquet or .tex.")
    ] = None,
    table: Annotated[
        bool, typer.Option("--table", help="The comparison's table instead of the metrics round by round.")
    ] = False,
    torch: Annotated[
        Path | None, typer.Option("--torch", metavar="FILE", help="A new file for the model as PyTorch's state dict.")
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", metavar="DIR", help="A new directory for the model and its card.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Write results as CSV, Parquet or a LaTeX table, or a model with a card that says how to load it.

    \b
    fedax export runs/demo --to results.csv         every evaluated round
    fedax export runs/demo --to results.parquet     the same
    fedax export runs/demo --table --to table.csv   a line for each method
    fedax export runs/demo --to table.tex           that table, with booktabs

    \b
    A model as safetensors, with a README; a table's with a predict.py too:
    fedax export runs/demo/runs/fedavg-seed0 --model fedavg

    \b
    The weights of a PyTorch module, for its load_state_dict:
    fedax export runs/mine --torch mine.pt
    """
    if to is None and model is None and torch is None:
        raise FedaxError("--to FILE, --model DIR or --torch FILE is missing: it must say what to write")
    if to is not None and to.suffix not in SUFFIXES:
        raise FedaxError(f"--to is {str(to)!r}: its name must end in .csv, .parquet or .tex")
    from fedax.runs.reading import run_folders

    folders = [inside for run in runs for inside in run_folders(run)]
    if to is not None:
        _results(folders, to, table)
        print(to)
    if torch is not None:
        print(f"{torch}: {_torch(folders, torch)}")
    if model is not None:
        _model(folders, model)
        print(f"{model}: look it over before you publish it, {model / 'README.md'} first")


def _results(folders: list[Path], to: Path, table: bool) -> None:
    from fedax.report import groups, read_all
    from fedax.report.export import as_csv, as_latex, as_parquet, by_round, comparison
    from fedax.report.sentences import incomparable
    from fedax.runs.files import write_whole

    runs = read_all(folders)
    for run in runs:
        if not run.rows:
            raise FedaxError(f"{run.folder} has no evaluated round to export{f': {run.notes[0]}' if run.notes else ''}")
    found = groups(runs)
    if table or to.suffix == ".tex":
        for sentence in incomparable(found):
            typer.echo(sentence, err=True)
    if to.suffix == ".tex":
        content = as_latex(found)
    else:
        lines = comparison(found) if table else by_round(found)
        content = as_csv(lines) if to.suffix == ".csv" else as_parquet(lines)
    to.parent.mkdir(parents=True, exist_ok=True)
    write_whole(to, content)


def _model(folders: list[Path], to: Path) -> None:
    from fedax.prediction.exported import programs
    from fedax.report import read
    from fedax.report.card import CARD, card, files
    from fedax.runs.files import refuse_taken, write_whole

    _only_one(folders, "--model")
    refuse_taken(to)
    run = read(folders[0])
    predict = programs(run.folder)
    content = {path.name: path.read_bytes() for path in files(run)} | predict
    content[CARD] = card(run, predicts=bool(predict)).encode()
    to.mkdir(parents=True, exist_ok=True)
    for name, text in content.items():
        write_whole(to / name, text)


def _torch(folders: list[Path], to: Path) -> str:
    """Write a run's model as a state dict; return the line that loads it."""
    from fedax.engine.result import load
    from fedax.experiments.resuming import recall
    from fedax.model_state import parted
    from fedax.models.torch.weights import saved
    from fedax.outside import is_outside
    from fedax.report import read
    from fedax.report.card import files
    from fedax.runs.files import write_whole

    _only_one(folders, "--torch")
    run = read(folders[0])
    files(run)  # refuses a run that has no model
    name, outputs = (run.get("model", field) for field in ("name", "outputs"))
    made_by_name = is_outside(name)
    net = recall(run.folder).model.build(outputs or 1) if made_by_name else None
    params, state = parted(load(run.folder).model)
    content = saved(net, params, state, known=run.get("model", "library") == "torch")
    to.parent.mkdir(parents=True, exist_ok=True)
    write_whole(to, content)
    strict = "" if made_by_name else ", strict=False"
    return f"net.load_state_dict(torch.load({to.name!r}){strict})"


def _only_one(folders: list[Path], option: str) -> None:
    if len(folders) > 1:
        raise FedaxError(f"{option} takes one run, and there are {len(folders)}: name one, such as {folders[0]}")
