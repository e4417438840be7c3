"""`fedax data`: which datasets there are, fetch them, look at one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedax.cli.options import Debug, Quiet
from fedax.cli.preview import preview

if TYPE_CHECKING:
    from fedax.data import Dataset

app = typer.Typer(name="data", help="Datasets: list, fetch, look at.", rich_markup_mode="rich", no_args_is_help=True)
app.command()(preview)


@app.command("list")
def list_(debug: Debug = False) -> None:
    """Show the datasets: their rows, classes and size, and whether their files are on this machine.

    \b
    fedax data list
    """
    from fedax.cli.console import console, table
    from fedax.data import DATASETS, FEDERATIONS

    rows = []
    for name, dataset in DATASETS.items():
        numbers = (dataset.rows, dataset.test_rows, dataset.classes)
        sizes = [f"{number:,}" if number else "–" for number in numbers]
        rows.append((name, dataset.what, *sizes, _megabytes(dataset), _whether_here(dataset)))
    for name, divided in FEDERATIONS.items():
        if name not in DATASETS:
            rows.append((name, divided.description, "–", "–", "–", "–", "generated"))
    numbered = ("rows", "test rows", "classes", "MB")
    columns = ("name", "description", *numbered, "here")
    found = table("Datasets", columns, rows, right=numbered, whole=["name", "here"], spare=["test rows", "classes"])
    console().print(found)


@app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Datasets, by name.", show_default=False)],
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Download datasets into the cache. A download that broke off goes on from where it was.

    \b
    fedax data fetch mnist cifar10
    FEDAX_CACHE=/scratch/fedax fedax data fetch tiny_imagenet

    \b
    The environment:
        FEDAX_DATA       your own directory, looked into first:
                         mnist/train-images-idx3-ubyte.gz, ...
        FEDAX_CACHE      where downloads are kept
        FEDAX_OFFLINE=1  never download
    """
    from fedax.cli.console import console

    chosen = [_dataset(name) for name in names]
    files = list(dict.fromkeys(file for dataset in chosen for file in dataset.files))
    if quiet or not console().is_terminal:
        _fetch_all(files, None)
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns: tuple[Any, ...] = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(TextColumn("{task.description}", markup=False), *columns, console=console()) as bars:
        tasks: dict[str, Any] = {}

        def show(name: str, here: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.update(tasks[name], completed=here, total=total)

        _fetch_all(files, show)


@app.command()
def info(
    name: Annotated[str, typer.Argument(help="A dataset by name, or a table of your own.", show_default=False)],
    debug: Debug = False,
) -> None:
    """Show a dataset's arrays, labels, files and source. Nothing is downloaded.

    For a table of your own, show what each column is, what becomes of it, and every problem in it.

    \b
    fedax data info cifar10
    fedax data info patients.csv
    """
    from fedax.cli.table_info import is_table, show_table_file
    from fedax.data.datasets.fetching import present
    from fedax.runtime import user_cache

    if is_table(name):
        show_table_file(name)
        return
    dataset = _dataset(name)
    print(f"{name}: {dataset.description}")
    for file in dataset.files:
        path = present(file)
        where = f"{path}" if path else f"not here; its place is {user_cache() / file.name}"
        print(f"  file      {where}")
        for address in file.addresses:
            print(f"            {address}")
    if dataset.options:
        print(f"  options   {', '.join(dataset.options)}")
    if dataset.normalise:
        asked = "" if dataset.options.get("standardise", True) else ", with standardise"
        print(f"  scaled{asked}    mean {list(dataset.normalise['mean'])}, deviation {list(dataset.normalise['std'])}")
    if dataset.reference:
        print(f"  source    {dataset.reference}")
    if dataset.own:
        return
    if any(present(file) is None for file in dataset.files):
        print(f"  arrays    `fedax data fetch {name}` first" if dataset.files[0].addresses else "  arrays    not here")
        return
    _show_arrays(dataset)


def _show_arrays(dataset: Dataset) -> None:
    import numpy as np

    from fedax.data.splits import is_label

    options = dataset.resolved({})
    parts = ("train", "test") if dataset.read_test is not None else ("train",)
    for part in parts:
        arrays = dataset.arrays(part, options)  # type: ignore[arg-type]
        shapes = ", ".join(f"{key} {array.dtype}{list(array.shape)}" for key, array in arrays.items())
        print(f"  {part:<9} {shapes}")
        if is_label(arrays["y"]):
            counts = np.bincount(arrays["y"])
            shown = " ".join(map(str, counts[:20])) + (f" ... ({len(counts)} labels)" if len(counts) > 20 else "")
            print(f"            rows of each label: {shown}")


def _fetch_all(files: list[Any], progress: Any) -> None:
    from fedax.data.datasets.fetching import find

    for file in files:
        print(find(file, progress))


def _dataset(name: str) -> Dataset:
    from fedax.data import DATASETS
    from fedax.errors import unknown

    if name not in DATASETS:
        raise unknown("dataset", name, DATASETS)
    return DATASETS[name]


def _megabytes(dataset: Dataset) -> str:
    size = sum(file.size for file in dataset.files)
    return f"{size / 1e6:,.1f}" if size else "–"


def _whether_here(dataset: Dataset) -> str:
    from fedax.data.datasets.fetching import present

    if dataset.own:
        return "your file"
    if not dataset.files:
        return "bundled"
    here = sum(present(file) is not None for file in dataset.files)
    return "yes" if here == len(dataset.files) else f"{here} of {len(dataset.files)}" if here else "no"
