"""Fedax, PyTorch and its compiler, FedJAX, Flower's simulation, pfl and FedLab: the same rounds, asked for in turn.

    python benchmarks/side_by_side.py --make                        (once: the environments, about five minutes)
    python benchmarks/side_by_side.py [--only A,B,C,R] [--repeats 9]         (FEDAX_DATA for real data)

Libraries ask for versions of one another's packages that do not go together, so each participant is a process of its
own (`participant.py`), with the Python of its own environment below --environments. All participants of a workload
stay up while it is measured, and this process asks one after the other for some rounds, with a pause before each. What
counts is the ratio within a repeat, another's seconds a round over Fedax's: above 1 Fedax is the faster. Medians and
quartiles are printed and saved in results/side_by_side.json, with the load of the machine before each workload; with
--rounds, for a short look, nothing is saved. The workloads are described in workloads.py: A, B, C and R are FedAvg,
which all participants have.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "side_by_side.json"
WORKLOADS = ("A", "B", "C", "R")
ENVIRONMENTS = {
    "fedjax": ["fedjax==0.0.17", str(ROOT)],
    "flower": ["flwr[simulation]==1.41.0", "torch==2.13.0"],
    "pfl": ["pfl[pytorch]==0.6.0", "torch==2.13.0"],
    "fedlab": ["fedlab==1.3.0", "torch==2.13.0"],
}
#: the participants, in turn, and the environment of each; None is that of this process
WHO = {
    "Fedax": None,
    "PyTorch": None,
    "PyTorch, compiled": None,
    "PyTorch, vmapped": None,
    "PyTorch, vmapped and compiled": None,
    "FedJAX": "fedjax",
    "Flower": "flower",
    "pfl": "pfl",
    "FedLab": "fedlab",
}
PAUSE = 0.5  # seconds before each question: idle threads of the one before may spin for a while
SECONDS = 2.0  # that an answer takes, about
MOST = 60  # rounds of an answer


class Process:
    """A participant that is up."""

    def __init__(self, name: str, letter: str, python: Path, said: IO[bytes]) -> None:
        # a venv's python is a link: it must be called by its own name
        line = [str(python), str(ROOT / "benchmarks" / "participant.py"), name, letter]
        known = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        self.process = subprocess.Popen(
            line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, env=known, text=True, bufsize=1
        )

    def hear(self) -> dict[str, Any]:
        """Its next answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        return json.loads(line) if line else {"ready": False, "why": f"ended with {self.process.wait()}"}

    def rounds(self, count: int) -> float:
        """Run this number of rounds; the seconds of one."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{count}\n")
        answer = self.hear()
        if "seconds" not in answer:
            raise SystemExit(f"{self.process.args[2:]} stopped: {answer['why']}")  # type: ignore[index]
        return float(answer["seconds"]) / count

    def end(self) -> None:
        """Close its questions, and it ends."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()


def make(environments: Path) -> None:
    """The peers' environments."""
    for name, packages in ENVIRONMENTS.items():
        subprocess.run([sys.executable, "-m", "venv", str(environments / name)], check=True)
        python = str(environments / name / "bin" / "python")
        held = ["-c", str(ROOT / "constraints.txt")] if name == "fedjax" else []
        subprocess.run([python, "-m", "pip", "install", "--quiet", *held, *packages], check=True)


def compare(letter: str, who: list[str], environments: Path, rounds: int | None, repeats: int) -> dict[str, Any]:
    """One workload by all who can."""
    row: dict[str, Any] = {"workload": letter, "load": [round(load, 2) for load in os.getloadavg()]}
    up: dict[str, Process] = {}
    absent: dict[str, str] = {}
    versions: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        said = stack.enter_context(tempfile.TemporaryFile())
        for name in who:
            folder = WHO[name]
            python = Path(sys.executable) if folder is None else environments / folder / "bin" / "python"
            if not python.exists():
                absent[name] = "no environment"
                continue
            process = Process(name, letter, python, said)
            stack.callback(process.end)
            first = process.hear()
            if first["ready"]:
                up[name], versions[name] = process, first["version"]
            else:
                absent[name] = first["why"]
        counts = {name: rounds or _fitting(process) for name, process in up.items()}
        seconds: dict[str, list[float]] = {name: [] for name in up}
        for _ in range(repeats):
            for name, process in up.items():
                time.sleep(PAUSE)
                seconds[name].append(process.rounds(counts[name]))
    ratios = {
        name: quartiles([t / f for t, f in zip(took, seconds["Fedax"], strict=True)])
        for name, took in seconds.items()
        if name != "Fedax"
    }
    milliseconds = {name: quartiles([1e3 * t for t in took]) for name, took in seconds.items()}
    about = {"rounds a repeat": counts, "repeats": repeats, "versions": versions, "absent": absent}
    return row | {"ms a round": milliseconds, "times Fedax's": ratios} | about


def _fitting(process: Process) -> int:
    """How many rounds an answer may have."""
    some = max(1, min(MOST, int(SECONDS / process.rounds(1))))
    return max(1, min(MOST, int(SECONDS / process.rounds(some))))  # the first one may have compiled still


def quartiles(values: list[float]) -> list[float]:
    """Lower quartile, median, upper quartile."""
    if len(values) == 1:
        return [round(values[0], 3)] * 3
    return [round(v, 3) for v in statistics.quantiles(values, n=4, method="inclusive")]


def show(row: dict[str, Any]) -> None:
    """A row as lines of text."""
    low, middle, high = row["ms a round"]["Fedax"]
    print(f"{row['workload']}  Fedax: {middle:.1f} ms a round ({low:.1f} to {high:.1f}), load {row['load'][0]}")
    for who, (low, middle, high) in row["times Fedax's"].items():
        print(f"     {who:30} {middle:8.2f} times Fedax's ({low:.2f} to {high:.2f})")
    for who, why in row["absent"].items():
        print(f"     {who:30} {why}")
    sys.stdout.flush()


def main() -> None:
    """Print and save the table."""
    parser = argparse.ArgumentParser(description="Fedax, PyTorch and peers, each in a process of its own, in turn.")
    parser.add_argument("--make", action="store_true", help="make the peers' environments, and nothing else")
    parser.add_argument("--environments", type=Path, default=Path(tempfile.gettempdir()) / "peers")
    parser.add_argument("--only", default=",".join(WORKLOADS), help="workloads, such as A,B")
    parser.add_argument("--who", default=";".join(WHO), help="participants, with semicolons between them")
    parser.add_argument("--rounds", type=int, help="rounds of each a repeat; by default as many as take two seconds")
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    if given.make:
        make(given.environments)
        return
    chosen, who = given.only.split(","), given.who.split(";")
    for what, known in ((chosen, WORKLOADS), (who, tuple(WHO))):
        if unknown := set(what) - set(known):
            parser.error(f"no {', '.join(sorted(unknown))}: there are {', '.join(known)}")
    if "Fedax" not in who:
        who.insert(0, "Fedax")
    table = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for letter in chosen:
        row = compare(letter, who, given.environments, given.rounds, given.repeats)
        show(row)
        if given.rounds is None:
            table[letter] = row
            kept = {name: table[name] for name in WORKLOADS if name in table}
            RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
