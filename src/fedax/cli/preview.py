"""`fedax data preview`: who holds what, before any training: a heat map of labels by client, sizes, heterogeneity."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedax.cli.options import Debug

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from fedax.data import Federation
    from fedax.data.heterogeneity import Heterogeneity

LABELS = 40  # most rows of the heat map

Option = typer.Option


def preview(
    name: Annotated[str, typer.Argument(help="A dataset, by name.", show_default=False)],
    partition: Annotated[
        str, Option(metavar="NAME", help="How rows are divided; see `fedax list partitions`.")
    ] = "IID",
    clients: Annotated[int | None, Option(help="How many clients. [default: 10, or all of a column]")] = None,
    alpha: Annotated[float | None, Option(help="Dirichlet partitions: the smaller, the more clients differ.")] = None,
    labels: Annotated[int | None, Option(help="ByLabel, Pathological: labels of each client.")] = None,
    per_client: Annotated[int | None, Option(help="Shards: shards of each client.")] = None,
    min_rows: Annotated[int | None, Option(help="The fewest rows of a client.")] = None,
    max_rows: Annotated[int | None, Option(help="Pathological: the most rows of a client.")] = None,
    column: Annotated[str | None, Option(help="ByColumn: the array that names each row's client.")] = None,
    rotation: Annotated[float | None, Option(help="FeatureShift: rotation in degrees.")] = None,
    noise: Annotated[float | None, Option(help="FeatureShift: standard deviation of the noise.")] = None,
    settings: Annotated[
        list[str],
        Option("--set", metavar="OPTION=VALUE", help="An option of the dataset, such as preset=thesis-II; repeatable."),
    ] = [],  # noqa: B006
    seed: Annotated[int, Option(metavar="N", help="The seed of the partition.")] = 0,
    out: Annotated[Path | None, Option(metavar="FILE", help="Also write this picture: .html or .png.")] = None,
    debug: Debug = False,
) -> None:
    """Show a heat map of labels by client, the clients' sizes, and how much they differ.

    \b
    fedax data preview mnist --partition dirichlet --alpha 0.3 --clients 100
    fedax data preview digits --partition shards --clients 20 --out digits.html
    fedax data preview lasso --set preset=thesis-II
    """
    from fedax.cli.console import console
    from fedax.data.heterogeneity import heterogeneity
    from fedax.data.plot import check_path, save

    if out is not None:
        check_path(out)
    asked = {
        "clients": clients,
        "alpha": alpha,
        "labels": labels,
        "per_client": per_client,
        "min_rows": min_rows,
        "max_rows": max_rows,
        "column": column,
        "rotation": rotation,
        "noise": noise,
    }
    given = {key: value for key, value in asked.items() if value is not None}
    seen = heterogeneity(_federation(name, partition, given, dict(map(_setting, settings)), seed))
    show(seen, console())
    if out is not None:
        if out.suffix == ".html":
            from fedax.report.preview import write_preview

            write_preview(seen, out)
        else:
            save(seen, out)
        print(f"picture: {out}")


def _federation(name: str, partition: str, given: dict[str, Any], options: dict[str, Any], seed: int) -> Federation:
    from fedax import data
    from fedax.errors import FedaxError, unknown
    from fedax.outside import is_outside

    if not is_outside(name) and name not in {*data.DATASETS, *data.FEDERATIONS}:
        raise unknown("dataset", name, {**data.DATASETS, **data.FEDERATIONS})
    if name in data.FEDERATIONS and name not in data.DATASETS:
        if given or partition != "IID":
            wrong = ", ".join(f"--{key.replace('_', '-')}" for key in given) or "--partition"
            raise FedaxError(f"{wrong} must be left out: {name} comes divided among clients; --set sets its options")
        return data.divided(name, seed=seed, **options)
    if options.get("client") is not None and partition == "IID" and not given:  # the column divides the rows
        return data.load(name, split=None, seed=seed, **options)
    natural = partition.lower() in ("bycolumn", "bywriter")
    rule = data.partition(partition, **({} if natural else {"clients": 10}) | given)
    return data.load(name, partition=rule, split=None, seed=seed, **options)


def _setting(text: str) -> tuple[str, Any]:
    import tomllib

    from fedax.errors import FedaxError

    option, equals, value = text.partition("=")
    if not equals:
        raise FedaxError(f"--set {text}: it must be OPTION=VALUE")
    try:
        return option.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return option.strip(), value.strip()


def show(seen: Heterogeneity, console: Console) -> None:
    """Print the map and the numbers.

    >>> from rich.console import Console
    >>> from fedax.data import Federation
    >>> from fedax.data.heterogeneity import heterogeneity
    >>> show(heterogeneity(Federation.from_clients([{"y": [0, 0, 0, 1]}, {"y": [1, 1]}])), Console(width=60))
    label 0  ▓·
    label 1  ░█
    sizes    █▄
    darker: more of the client's rows; the highest bar: 4 rows
    2 clients, 6 rows: 2 to 4 a client, median 3
    2 labels, 1 to 2 a client
    mean total variation to the average client's labels 0.375
    """
    from fedax.data.plot import shown

    columns = shown(seen, max(console.width - 12, 10))
    if seen.title:
        console.print(seen.title, style="bold", markup=False)
    for line in chart(seen, columns, console.options.ascii_only):
        console.print(line)
    legend = "darker: more of the client's rows; " if seen.label_counts else ""
    console.print(f"{legend}the highest bar: {seen.sizes.max():,} rows", style="dim", markup=False, highlight=False)
    lines = seen.sentences()
    if len(columns) < len(seen.names):
        lines.append(f"the map shows {len(columns)} of the {len(seen.names):,} clients")
    if seen.label_counts and len(seen.label_counts[0]) > LABELS:
        lines.append(f"the map shows {LABELS} of the {len(seen.label_counts[0])} labels")
    for sentence in lines:
        console.print(sentence, markup=False, highlight=False)


def chart(seen: Heterogeneity, columns: list[int], ascii_only: bool = False) -> list[Text]:
    """The map, a line a label, and the sizes: shades that can be told apart without colours too."""
    import numpy as np
    from rich.text import Text

    shades, bars = (".:+*#", ".:-=+*#%@") if ascii_only else ("·░▒▓█", "▁▂▃▄▅▆▇█")
    lines = []
    if seen.label_counts is not None:
        levels = np.ceil(seen.shares[columns].T * (len(shades) - 1)).astype(int)
        for label, row in list(enumerate(levels))[:LABELS]:
            line = Text(f"label {label}".ljust(9), no_wrap=True)
            for level in row:
                line.append(shades[level], style=f"color({(8, 153, 111, 68, 21)[level]})")
            lines.append(line)
    heights = np.ceil(seen.sizes[columns] / seen.sizes.max() * len(bars)).astype(int) - 1
    lines.append(Text("sizes".ljust(9) + "".join(bars[max(h, 0)] for h in heights), no_wrap=True))
    return lines
