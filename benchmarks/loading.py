"""How long datasets take to load and what they cost in memory, each in a process of its own.

    python benchmarks/loading.py [mnist qmnist cifar10 a9a haxby]        (files below FEDAX_DATA or in the cache)

"read" is from the files to arrays, "again" the same a second time while the first is held, "divided" a federation of
100 clients by a Dirichlet draw with the official test set, "once more" the same call again. "held" is what the process
has grown by at the end of "divided", "peak" the most it ever had above its start. Sets that are not on this machine are
left out. The table is saved in results/loading.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "loading.json"
COLUMNS = ("read", "again", "divided", "once more", "held MB", "peak MB", "arrays MB")


def resident() -> float:
    """Megabytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def measure(name: str) -> dict[str, float]:
    """The figures of one set, in this process."""
    from sklearn import datasets  # noqa: F401  (its import is not the set's cost)

    from fedax.data import DATASETS, Dirichlet, load

    dataset = DATASETS[name]
    start, highest = resident(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    figures: dict[str, float] = {}

    def timed(column: str, call):
        began = time.perf_counter()
        made = call()
        figures[column] = round(time.perf_counter() - began, 4)
        return made

    first = timed("read", lambda: dataset.arrays("train", dataset.resolved({})))
    second = timed("again", lambda: dataset.arrays("train", dataset.resolved({})))
    assert all(second[key] is array for key, array in first.items())
    del first, second
    rule = Dirichlet(100 if dataset.rows > 1000 else 10, alpha=0.3)
    test = "official" if dataset.read_test is not None else None
    federation = timed("divided", lambda: load(name, partition=rule, test=test))
    figures["held MB"] = round(resident() - start, 1)
    again = timed("once more", lambda: load(name, partition=rule, test=test))
    assert again is federation
    figures["peak MB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3 - highest, 1)
    figures["arrays MB"] = round(sum(array.nbytes for array in federation.arrays.values()) / 1e6, 1)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="datasets; default all that are here")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        print(json.dumps(measure(asked.one)))
        return
    from fedax.data import DATASETS
    from fedax.data.datasets.fetching import present

    here = [name for name, d in DATASETS.items() if d.files and all(present(file) for file in d.files)]
    table = {}
    print(f"{'':<14}" + "".join(f"{column:>11}" for column in COLUMNS))
    for name in asked.names or here:
        ran = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True)
        if ran.returncode:
            sys.exit(ran.stderr.strip().splitlines()[-1])
        table[name] = json.loads(ran.stdout)
        print(f"{name:<14}" + "".join(f"{table[name][column]:>11}" for column in COLUMNS))
    RESULTS.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
