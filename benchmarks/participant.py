"""One participant of `side_by_side.py`, in a process and an environment of its own.

    python benchmarks/participant.py FedJAX A

It prepares itself, says on its first line that it is ready or why it is not, and from then on reads numbers of rounds,
one a line, and answers each with the seconds that they took. What libraries print goes to the error stream.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import peers
from benchmarks.peers import Runner, clocked
from benchmarks.workloads import Workload, workload


def fedax(task: Workload) -> Runner:
    """Fedax itself."""
    from benchmarks.speed import rounds_of, simulation

    return clocked(rounds_of(simulation(task)))


def torch_loop(task: Workload) -> Runner:
    """A plain loop."""
    from benchmarks import torch_loops

    return _again(torch_loops.federation(task))


def torch_fast(task: Workload, **form: bool) -> Runner:
    """A form of `torch_fast`."""
    from benchmarks import torch_fast

    return _again(torch_fast.federation(task, **form))


def _again(one_round: Callable[[], object]) -> Runner:
    def train(count: int) -> None:
        for _ in range(count):
            one_round()

    return clocked(train)


#: each participant's package, whose version is told, and what makes it run
PARTICIPANTS: dict[str, tuple[str, Callable[[Workload], Runner]]] = {
    "Fedax": ("jax", fedax),
    "PyTorch": ("torch", torch_loop),
    "PyTorch, compiled": ("torch", functools.partial(torch_fast, batched=False, compiled=True)),
    "PyTorch, vmapped": ("torch", functools.partial(torch_fast, batched=True, compiled=False)),
    "PyTorch, vmapped and compiled": ("torch", functools.partial(torch_fast, batched=True, compiled=True)),
    "FedJAX": ("fedjax", peers.fedjax),
    "Flower": ("flwr", peers.flower),
    "pfl": ("pfl", peers.pfl),
    "FedLab": ("fedlab", peers.fedlab),
}


def main() -> None:
    """Prepare, then answer until there are no more questions."""
    name, letter = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def answer(**what: Any) -> None:
        answers.write(json.dumps(what) + "\n")

    package, adapter = PARTICIPANTS[name]
    try:
        train = adapter(workload(letter))
        train(1)
        answer(ready=True, version=f"{package} {importlib.metadata.version(package)}")
    except Exception as error:  # a peer that does not work here is no reason to stop the others
        answer(ready=False, why=f"{type(error).__name__}: {error}".splitlines()[0][:200])
        return
    for line in sys.stdin:
        answer(seconds=train(int(line)))


if __name__ == "__main__":
    main()
