"""What a reproduction's setting has on validation rows, for values of one method's field: how its tables are tuned.

    python benchmarks/tuned.py ID METHOD FIELD=VALUE,VALUE,... [FIELD=...]
        [--part NAME] [--scale paper] [--metric personal_validation_accuracy] [--seed 100]

The part runs as its table has it, with a seed that no table reports on, and with a tenth of the training rows for
validation where the table has none; test rows are not looked at. Each combination is one run. What came out is added to
results/tuned.json, which the tables' sentences on tuning are from.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import fedax
from fedax.experiments import parse
from fedax.experiments.building import options, prepare
from fedax.papers.reproductions import load
from fedax.papers.reproductions.merging import merged

SAVED = Path(__file__).parent / "results" / "tuned.json"


def with_validation_rows(data: dict[str, Any]) -> dict[str, Any]:
    """The data's table with a tenth of the training rows for validation, where it has none."""
    train, validation, *rest = data.get("split") or [1.0, 0.0]
    return data if validation else {**data, "split": [0.9 * train, 0.1 * train, *rest]}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("id")
    asked.add_argument("method")
    asked.add_argument("fields", nargs="+")
    asked.add_argument("--part", default="")
    asked.add_argument("--scale", default="small")
    asked.add_argument("--metric", default="validation_accuracy")
    asked.add_argument("--seed", type=int, default=100)
    asked.add_argument("--rounds", type=int)
    given = asked.parse_args()
    found = {
        field: [json.loads(v) for v in values.split(",")] for field, values in (f.split("=") for f in given.fields)
    }
    setting = next(s for s in load(given.id).at(given.scale) if s.part == given.part)
    table = merged(setting.table, {"seeds": [given.seed], "eval_on": ["validation"]}, only=[given.method])
    table["data"] = with_validation_rows(table["data"])
    table["rounds"] = given.rounds or table["rounds"]
    table.pop("sweep", None)
    for values in itertools.product(*found.values()):
        chosen = dict(zip(found, values, strict=True))
        changes = {
            f: {"initial": v} if isinstance(table["algorithm"][0].get(f), dict) else v for f, v in chosen.items()
        }
        experiment = parse(merged(table, {"algorithm": {given.method: changes}}))
        began = time.monotonic()
        problem, federation = prepare(experiment)
        result = fedax.simulate(problem, federation, experiment.algorithm[0].build(), **options(experiment, given.seed))
        row = {
            **{name: getattr(given, name) for name in ("id", "part", "scale", "method", "seed", "metric")},
            "rounds": table["rounds"],
            "values": chosen,
            "found": None if "diverged" in result.info else round(result.history[-1][given.metric], 4),
            "seconds": round(time.monotonic() - began),
        }
        print(json.dumps(row), flush=True)
        rows = json.loads(SAVED.read_text()) if SAVED.is_file() else []
        about = [key for key in row if key not in ("found", "seconds")]
        rows = [r for r in rows if any(r[key] != row[key] for key in about)] + [row]
        SAVED.write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


if __name__ == "__main__":
    main()
