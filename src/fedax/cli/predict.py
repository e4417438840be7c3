"""`fedax predict`: a run's model on new rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedax.cli.options import Debug
from fedax.errors import FedaxError


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The directory of a run on a table.", show_default=False)],
    table: Annotated[Path, typer.Argument(metavar="FILE", help="New rows: CSV or Parquet.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="A CSV file for the predictions; else the screen.")
    ] = None,
    client: Annotated[
        str | None, typer.Option("--client", metavar="NAME", help="Predict with this client's own model.")
    ] = None,
    own: Annotated[
        bool, typer.Option("--own", help="Predict each row with the own model of the client that its column names.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Predict new rows with a run's model: the label, and each class's probability. The label column may be absent.

    \b
    fedax predict runs/patients new.csv --out predictions.csv
    fedax predict runs/patients new.csv --client oslo     with its own model
    fedax predict runs/patients new.csv --own             each client's own
    """
    from fedax.data.tables.own_rows import read_table
    from fedax.own_code import place, words
    from fedax.prediction.predictor import Predictor
    from fedax.runs.files import write_whole
    from fedax.runs.reading import run_folders

    if own and client is not None:
        raise FedaxError(f"--client is {client!r} and --own is given: give one of them")
    if out is not None and out.exists() and table.exists() and out.samefile(table):
        raise FedaxError(f"--out is {out}: that is the table itself, which the predictions would replace")
    folders = run_folders(run)
    if len(folders) > 1:
        names = ", ".join(str(folder) for folder in folders[:6])
        raise FedaxError(f"{run} holds {len(folders)} runs: name one of them, such as {names}")
    predictor, rows = Predictor.load(folders[0]), read_table(table)
    try:
        found = predictor.predictions(rows, predictor.own(rows) if own else client, owner=str(table))
    except Exception as error:
        if isinstance(error, FedaxError) or place(error) is not None:  # a model of one's own has raised it
            raise
        raise FedaxError(f"{run} cannot predict, for its files do not fit together: {words(error)}") from error
    text = found.to_csv(index=False, lineterminator="\n", float_format="%.6g")
    if out is None:
        print(text, end="")
        return
    out.parent.mkdir(parents=True, exist_ok=True)
    write_whole(out, text.encode())
    print(f"{out}: {len(found):,} rows")
