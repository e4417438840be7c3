"""The thesis' theorems on iterate bias, drift and instability, measured.      Yuan 2022, chapters 2 and 3

The setting: samples, clients, seeds. `fedax theory` draws the same.
"""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from fedax.experiments import Progress
from fedax.papers.reproductions.description import ScaledSetting
from fedax.papers.reproductions.figures_of_runs import spread
from fedax.papers.reproductions.verdict import Measured
from fedax.papers.theory import (
    drift,
    exponent,
    fedac_one,
    identical_clients,
    iterate_bias,
    piecewise_quadratic,
    separation,
    smooth_bend,
    standard_agd,
    unstable_objective,
    with_noise,
)

CASES = {"kink (eq. 2.4)": piecewise_quadratic, "smooth (eq. A.15)": smooth_bend}
RATES, STEPS = np.geomspace(1e-5, 1e-4, 4), np.array([32, 64, 128, 256, 512])
KAPPA, K = 100, 16


def measure(setting: ScaledSetting, folder: Path, progress: Progress) -> dict[tuple[str, str], Measured]:
    """The exponents of the bias, where FedAvg rests, and how far two starts of AGD part."""
    table = setting.table
    progress.begin([], 0)
    with jax.enable_x64(True):
        each = [_bias(table["samples"], seed) | _drift(table["clients"], seed) for seed in table["seeds"]]
    found = {name: spread([one[name] for one in each]) for name in each[0]}
    found |= {name: spread([value] * len(each)) for name, value in _instability().items()}  # nothing is drawn
    return {name: value for name, value in found.items() if value is not None}


def _bias(samples: int, seed: int) -> dict[tuple[str, str], float]:
    """Theorems 2.6, 2.7, 2.15 and 2.16: the powers of the steps and of the rate."""
    found: dict[tuple[str, str], float] = {}
    zero = jnp.zeros(())
    for name, objective in CASES.items():
        noisy = with_noise(objective(), 1.0)
        runs = [iterate_bias(noisy, zero, lr=lr, steps=512, samples=samples, seed=seed) for lr in RATES]
        found[name, "exponent in the steps"] = exponent(STEPS, np.abs(runs[-1].mean[STEPS - 1]))
        found[name, "exponent in the rate"] = exponent(RATES, np.abs([run.mean[-1] for run in runs]))
    return found


def _drift(clients: int, seed: int) -> dict[tuple[str, str], float]:
    """How far from the optimum 0 FedAvg with identical clients rests when it starts there."""
    kink = identical_clients(piecewise_quadratic(), sigma=1.0, clients=clients)
    rest = drift(kink, lr=0.01, local_steps=16, rounds=50, seed=seed)
    return {("FedAvg", "distance at rest"): abs(float(rest))}


def _instability() -> dict[tuple[str, str], float]:
    """Theorem 3.8: the difference of x after 3 K steps, over that at the start."""
    slow = fedac_one(KAPPA, 1, 3 * K)
    objective = unstable_objective(KAPPA, 1, K)
    return {
        ("AGD", "separation"): abs(separation(objective, standard_agd(KAPPA, 1), K)[-1][0]),
        ("FedAc-I", "separation"): abs(separation(objective, slow, K)[-1][0]),
    }
