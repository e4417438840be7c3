"""How long until something happens: the command line's own time, an experiment's until its first round and its table.

    python benchmarks/startup.py [--repeats 5]

Every launch is a process of its own. The experiment is a small one on the bundled digits; its first launch has
an empty cache of compiled programs, its second finds there what the first has left. So have, cold and warm, answers:
whole commands up to their tables. Medians are printed beside their limits and saved in results/startup.json. "idle" is
Python itself, doing nothing; the PyTorch loop (torch_comparison.py) is timed once.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RESULTS = Path(__file__).resolve().parent / "results" / "startup.json"
LIMITS = {
    "idle": None,
    "fedax --help": 0.25,
    "fedax list": 0.8,
    "import fedax": 1.5,
    "first launch": 10.0,
    "second launch": 3.0,
    "first.toml, cold": 6.0,
    "first.toml, warm": 2.5,
    "demo, cold": 12.0,
    "demo, warm": 5.0,
    "8 methods x 3 seeds, cold": 30.0,
    "8 methods x 3 seeds, warm": None,
    "8 x 3 runs of FedAvg by a PyTorch loop": None,
}
EXPERIMENT = """
name = "startup"
rounds = 1
cohort = 5
local_steps = 5
batch_size = 10
data = { name = "digits", partition = { name = "ByLabel", clients = 20, labels = 2 } }
model = { name = "mlp", hidden = [64] }
algorithm = { name = "FedAvg", lr = 0.1 }
"""
COMPARISON = """
rounds = 60
cohort = 10
local_steps = 10
batch_size = 20
seeds = [0, 1, 2]
data = { name = "digits", partition = { name = "ByLabel", clients = 20, labels = 2 } }
model = { name = "mlp", hidden = [64] }
algorithm = [
  { name = "FedAvg", lr = 0.1 },
  { name = "FedProx", lr = 0.1, mu = 0.1 },
  { name = "SCAFFOLD", lr = 0.1 },
  { name = "FedDyn", lr = 0.1, alpha = 0.1 },
  { name = "FedCM", lr = 0.1 },
  { name = "FedSpeed", lr = 0.1 },
  { name = "FedAdam", lr = 0.1, server_lr = 0.01 },
  { name = "FedAvgM", lr = 0.1 },
]
"""
FIRST = Path(__file__).resolve().parent.parent / "experiments" / "first.toml"
COMMANDS = {
    "idle": ["-c", ""],
    "fedax --help": ["-m", "fedax", "--help"],
    "fedax list": ["-m", "fedax", "list"],
    "import fedax": ["-c", "import fedax; fedax.simulate"],
}
LOOP = [str(Path(__file__).resolve().parent / "torch_comparison.py")]


def command(arguments: list[str]) -> float:
    """Seconds of a command, from its start to its end."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    return time.perf_counter() - began


def launch(file: Path, out: Path, cache: Path) -> float:
    """Seconds from the launch of an experiment until its first round is in its log."""
    log, began = out / "metrics.jsonl", time.perf_counter()
    environment = {**os.environ, "FEDAX_CACHE": str(cache)}
    arguments = ["-m", "fedax", "run", str(file), "--out", str(out)]
    with subprocess.Popen([sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not _first_round(log):
            time.sleep(0.005)
        took = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"the experiment ended with {process.returncode}")
    return took


def _first_round(log: Path) -> bool:
    return log.is_file() and any(
        json.loads(row)["round"] >= 1 for row in log.read_text().splitlines(True) if row[-1] == "\n"
    )


def launches(repeats: int) -> dict[str, list[float]]:
    """First and second launches, each pair with an empty cache at its start."""
    seconds: dict[str, list[float]] = {"first launch": [], "second launch": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "experiment.toml").write_text(EXPERIMENT)
            for name, took in seconds.items():
                took.append(launch(root / "experiment.toml", root / name.replace(" ", "-"), root / "cache"))
    return seconds


def answers(repeats: int) -> dict[str, list[float]]:
    """Whole commands up to their tables, each pair with an empty cache at its start."""
    seconds: dict[str, list[float]] = {}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            (root / "comparison.toml").write_text(COMPARISON)
            asked = {
                "first.toml": ["run", str(FIRST)],
                "demo": ["demo"],
                "8 methods x 3 seeds": ["compare", str(root / "comparison.toml")],
            }
            for name, words in asked.items():
                environment = {**os.environ, "FEDAX_CACHE": str(root / f"cache of {name}")}
                for state in ("cold", "warm"):
                    out = root / f"{name} {state}"
                    began = time.perf_counter()
                    line = [sys.executable, "-m", "fedax", *words, "--out", str(out), "--quiet"]
                    subprocess.run(line, check=True, capture_output=True, env=environment)
                    seconds.setdefault(f"{name}, {state}", []).append(time.perf_counter() - began)
    seconds["8 x 3 runs of FedAvg by a PyTorch loop"] = [command(LOOP)]  # once: it takes minutes
    return seconds


def main() -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(description="Seconds until something happens.")
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    seconds = {name: [command(arguments) for _ in range(repeats)] for name, arguments in COMMANDS.items()}
    seconds |= launches(repeats) | answers(repeats)
    table = {}
    for name, took in seconds.items():
        low, middle, high = (round(f(took), 2) for f in (min, statistics.median, max))
        table[name] = {"seconds": [low, middle, high], "limit": LIMITS[name]}
        beside = (
            "" if LIMITS[name] is None else f"   limit {LIMITS[name]} s{'' if middle <= LIMITS[name] else ', EXCEEDED'}"
        )
        print(f"{name:38} {middle:6.2f} s ({low} to {high}){beside}", flush=True)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
