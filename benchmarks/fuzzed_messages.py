"""A server among 100,000 fuzzed messages, half of them introductions and half answers: it must go on to its last round.

python benchmarks/fuzzed_messages.py            one to ten minutes; saves results/fuzzed_messages.json
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "fuzzed_messages.json"
sys.path.insert(0, str(HERE.parent / "tests"))

from fedax.runs.files import write_json  # noqa: E402
from flower_fuzz import fuzzed_federation  # noqa: E402


def main() -> None:
    """Fuzz in runs of 40 rounds, each with a seed of its own, until there were enough messages."""
    began, runs = time.monotonic(), []
    while sum(run["fuzzed"] for run in runs) < 100_000:
        with tempfile.TemporaryDirectory() as folder:
            found = fuzzed_federation(Path(folder), rounds=40, honest=300, hostile=200, seed=len(runs))
        assert found["status"] == "finished", found
        assert found["log_is_printable"], found
        runs.append(found)
        print(found, flush=True)
    fuzzed, left_out = (sum(run[name] for run in runs) for name in ("fuzzed", "left_out"))
    stopped = sum(run["status"] != "finished" for run in runs)
    summary = {"fuzzed": fuzzed, "left_out": left_out, "servers": len(runs), "servers_stopped": stopped}
    summary["seconds"] = round(time.monotonic() - began)
    write_json(RESULTS, summary)


if __name__ == "__main__":
    main()
