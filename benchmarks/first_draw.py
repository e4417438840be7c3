"""FedDeper's Table 1 from a smaller start: what a network's first draw explains of the distance to the paper.

    python benchmarks/first_draw.py PART METHOD [--rounds N] [--scale 1 0.577]        (FEDAX_DATA must hold mnist)

Fedax draws a layer's weights with variance 1 / inputs, PyTorch by default with a third of that: 0.577 multiplies all
kernels by the root of a third. Test accuracy after the rounds, with the reproduction's own seed, is added to
results/first_draw.json.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import jax

import fedax
from fedax.experiments import parse
from fedax.experiments.building import options, prepare
from fedax.papers.reproductions import load
from fedax.papers.reproductions.merging import merged

SAVED = Path(__file__).parent / "results" / "first_draw.json"


class SmallerStart:
    """A Flax module whose first kernels are multiplied by a factor."""

    def __init__(self, module: Any, factor: float) -> None:
        self.module, self.factor = module, factor

    def init(self, key: Any, x: Any) -> Any:
        def scaled(path: Any, leaf: Any) -> Any:
            return leaf * self.factor if "kernel" in jax.tree_util.keystr(path) else leaf

        return jax.tree_util.tree_map_with_path(scaled, self.module.init(key, x))

    def apply(self, params: Any, x: Any) -> Any:
        return self.module.apply(params, x)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("part")
    asked.add_argument("method")
    asked.add_argument("--rounds", type=int, default=500)
    asked.add_argument("--scale", type=float, nargs="+", default=[1.0, 3**-0.5])
    given = asked.parse_args()
    setting = next(s for s in load("feddeper-table1").at("paper") if s.part == given.part)
    experiment = parse(merged(setting.table, {"rounds": given.rounds, "eval_on": ["test"]}, only=[given.method]))
    problem, federation = prepare(experiment)
    for factor in given.scale:
        began = time.monotonic()
        start = fedax.Problem(SmallerStart(problem.model, factor), loss="cross_entropy")
        result = fedax.simulate(start, federation, experiment.algorithm[0].build(), **options(experiment, 0))
        row = {
            "part": given.part,
            "method": given.method,
            "kernels times": round(factor, 3),
            "test accuracy by round": {r["round"]: round(100 * r["test_accuracy"], 2) for r in result.history},
            "seconds": round(time.monotonic() - began),
        }
        print(json.dumps(row), flush=True)
        rows = json.loads(SAVED.read_text()) if SAVED.is_file() else []
        about = ("part", "method", "kernels times")
        rows = [r for r in rows if any(r[key] != row[key] for key in about)] + [row]
        SAVED.write_text("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]\n")


if __name__ == "__main__":
    main()
