"""The pictures of docs/theory.md, each drawn from runs of its own."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.bounds import table_3_1
from fedax.errors import FedaxError, unknown
from fedax.papers.theory.bias import exponent, iterate_bias, sde_bias
from fedax.papers.theory.drift import drift, identical_clients
from fedax.papers.theory.instability import fedac_one, separation, standard_agd, unstable_objective
from fedax.papers.theory.stochastic import Stochastic, piecewise_quadratic, smooth_bend, with_noise
from fedax.runs.files import write_whole

Lines = list[str]
FORMATS = (".svg", ".png", ".pdf")


def draw(name: str, path: Path) -> Lines:
    """Draw one of the pictures to an SVG, PNG or PDF file; returns what was measured, in words."""
    if name not in PICTURES:
        raise unknown("picture", name, PICTURES)
    if path.suffix.lower() not in FORMATS:
        raise FedaxError(f"--out is {path}: its name must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}")
    try:
        import matplotlib
    except ImportError:
        raise FedaxError("pictures need matplotlib: pip install 'fedax[figures]'") from None
    matplotlib.use("agg")
    look: Any = {"svg.hashsalt": "fedax", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(look), jax.enable_x64(True):
        figure, said = PICTURES[name]()
        content = io.BytesIO()
        dated = {"metadata": {"Date": None}} if path.suffix.lower() == ".svg" else {}
        figure.savefig(content, format=path.suffix[1:].lower(), bbox_inches="tight", dpi=144, **dated)
    write_whole(path, content.getvalue())
    return said


def _figure(columns: int, width: float = 8.0) -> Any:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 3.0), layout="constrained")
    return figure, np.atleast_1d(figure.subplots(1, columns))


def _ticks(axes: Any, at: Any) -> None:
    """Ticks of a logarithmic axis at the measured points alone."""
    axes.set_xticks(at, [f"{value:.2g}" if value < 1 else str(value) for value in at])
    axes.minorticks_off()


def _bias() -> tuple[Any, Lines]:
    """Figure 2.1: SGD started at the optimum drifts to where the curvature is less."""
    F, lr, at, many = piecewise_quadratic(2.0, left=0.1), 1e-2, (128, 256, 512, 1024), 65536
    problem = with_noise(F, 0.1)
    ends = _trajectories(problem, lr, at, many)
    figure, (left, right) = _figure(2)
    x = np.linspace(-0.06, 0.06, 400)
    left.plot(x, [float(F(jnp.asarray(v))) for v in x], color="black")
    left.set(title="F", xlabel="x")
    said = []
    for steps, points in zip(at, ends, strict=True):
        height, edges = np.histogram(points, bins=160, range=(-0.06, 0.06), density=True)
        (line,) = right.plot((edges[1:] + edges[:-1]) / 2, height, label=f"{steps} steps")
        right.axvline(points.mean(), color=line.get_color(), linestyle=":")
        error = points.std() / many**0.5
        said.append(f"after {steps:4d} steps the mean is {points.mean():.5f} ± {2.6 * error:.5f}")
    right.axvline(0, color="black", linewidth=0.8)
    right.set(title="density of SGD's iterate (dotted: its mean)", xlabel="x")
    right.legend(frameon=False)
    return figure, said


def _trajectories(problem: Stochastic, lr: float, at: tuple[int, ...], many: int) -> list[Any]:
    slope = jax.vmap(jax.grad(problem.sample))

    @jax.jit
    def run(xs: jax.Array, first: Any, last: Any) -> jax.Array:
        def step(k: Any, xs: jax.Array) -> jax.Array:
            moved: jax.Array = xs - lr * slope(xs, jax.random.split(jax.random.fold_in(jax.random.key(0), k), many))
            return moved

        end: jax.Array = jax.lax.fori_loop(first, last, step, xs)
        return end

    xs, ends = jnp.zeros(many), []
    for first, last in zip((0, *at), at, strict=False):
        xs = run(xs, first, last)
        ends.append(np.asarray(xs))
    return ends


def _exponents() -> tuple[Any, Lines]:
    """Theorems 2.6, 2.7, 2.15, 2.16: the bias against the number of steps and the rate."""
    rates, steps, zero = np.geomspace(1e-5, 1e-4, 4), np.array([32, 64, 128, 256, 512]), jnp.zeros(())
    figure, (left, right) = _figure(2)
    said = []
    cases = {"kink (eq. 2.4)": piecewise_quadratic(), "smooth (eq. A.15)": smooth_bend()}
    for (name, F), mark in zip(cases.items(), "os", strict=True):
        problem = with_noise(F, 1.0)
        found = [iterate_bias(problem, zero, lr=lr, steps=512, samples=16384) for lr in rates]
        of_steps, of_rate = np.abs(found[-1].mean[steps - 1]), np.abs([f.mean[-1] for f in found])
        k, e = exponent(steps, of_steps), exponent(rates, of_rate)
        left.errorbar(steps, of_steps, found[-1].half[steps - 1], fmt=mark, label=f"{name}: slope {k:.2f}")
        right.errorbar(rates, of_rate, [f.half[-1] for f in found], fmt=mark, label=f"{name}: slope {e:.2f}")
        said.append(f"{name}: exponent {k:.3f} in the steps, {e:.3f} in the rate")
    kink = rates[-1] ** 2 * steps**1.5 / (3 * np.sqrt(2 * np.pi))
    unit = abs(float(sde_bias(with_noise(smooth_bend(), 1.0), zero, lr=1.0, steps=1)))
    left.plot(steps, kink, color="C0", linewidth=0.8)
    left.plot(steps, unit * rates[-1] ** 3 * steps**2, color="C1", linewidth=0.8)
    right.plot(rates, rates**2 * 512**1.5 / (3 * np.sqrt(2 * np.pi)), color="C0", linewidth=0.8)
    right.plot(rates, unit * rates**3 * 512**2, color="C1", linewidth=0.8)
    for axes, at, label in ((left, steps, "steps k, rate 1e-4"), (right, rates, "rate, 512 steps")):
        axes.set(xscale="log", yscale="log", xlabel=label, title="|bias| (lines: predicted)")
        _ticks(axes, at)
        axes.legend(frameon=False)
    return figure, said


def _drift() -> tuple[Any, Lines]:
    """FedAvg with identical clients, started at the optimum."""
    kink = identical_clients(piecewise_quadratic(), sigma=1.0, clients=65536)
    rounds, said = np.array([1, 2, 4, 8, 16, 32, 64]), []
    figure, (left, right) = _figure(2)
    for steps in (4, 16, 64):
        at = [float(drift(kink, lr=0.005, local_steps=steps, rounds=int(r))) for r in rounds]
        left.plot([0, *rounds], [0.0, *at], marker=".", label=f"K = {steps}")
        said.append(f"lr 0.005, {steps} local steps: {at[-1]:.5f} after {rounds[-1]} rounds")
    left.set(title="FedAvg's model; the optimum is 0", xlabel="rounds, lr 0.005")
    left.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 0.15))
    rates = np.geomspace(0.00125, 0.01, 4)
    rest = [float(drift(kink, lr=lr, local_steps=16, rounds=int(6 / (0.75 * 16 * lr)))) for lr in rates]
    right.plot(rates, np.abs(rest), "o", label="measured")
    right.plot(rates, 4 / (9 * np.sqrt(2 * np.pi)) * rates * 4, linewidth=0.8, label="predicted")
    right.set(xscale="log", yscale="log", title="distance at which it rests, K = 16", xlabel="rate")
    _ticks(right, rates)
    right.legend(frameon=False)
    said.append(f"it rests at {rest[-1]:.5f} for lr {rates[-1]:g}, in proportion to lr^{exponent(rates, rest):.2f}")
    return figure, said


def _instability() -> tuple[Any, Lines]:
    """Theorem 3.8: two starts of AGD part, those of FedAc-I do not."""
    kappa, K = 100, 16
    F, slow = unstable_objective(kappa, 1, K), fedac_one(kappa, 1, 3 * K)
    own = unstable_objective(kappa, 1, K, slow)
    figure, (axes,) = _figure(1, 5.0)
    runs = {
        "AGD": separation(F, standard_agd(kappa, 1), K),
        "FedAc-I, same objective": separation(F, slow, K),
        "FedAc-I, an objective made for it": separation(own, slow, K),
    }
    for name, path in runs.items():
        axes.plot([max(abs(x), 1e-4) for x, _ in path], label=name)
    axes.plot(np.arange(0, 3 * K + 1, 3), 1.02 ** np.arange(K + 1), "k:", label="1.02^K")
    axes.set(yscale="log", xlabel="steps", title=f"|difference of x| / at the start, L/mu = {kappa}", ylim=(1e-4, None))
    axes.legend(frameon=False)
    return figure, [f"{name}: {abs(path[-1][0]):.4g} after {3 * K} steps" for name, path in runs.items()]


def _bounds() -> tuple[Any, Lines]:
    """Table 3.1: what acceleration and a smooth Hessian give."""
    rounds = np.geomspace(4, 4096, 60)
    setting = {"L": 1.0, "B": 1.0, "sigma": 1.0, "Q": 1.0, "M": 4096, "K": 64}
    figure, both = _figure(2)
    said = []
    for axes, mu in zip(both, (0.0, 0.05), strict=True):
        tables = [table_3_1(**setting, R=r, mu=mu) for r in rounds]
        for (assumption, method), style in zip(tables[0], ("C0-", "C1-", "C0--", "C1--"), strict=True):
            values = [table[assumption, method] for table in tables]
            axes.plot(rounds, values, style, label=f"{method}, {assumption}")
            said.append(f"mu = {mu:g}, {method}, {assumption}: {values[-1]:.3g} at {rounds[-1]:.0f} rounds")
        axes.set(xscale="log", yscale="log", xlabel="rounds", title=f"rate, mu = {mu:g}")
    both[0].legend(frameon=False)
    return figure, said


PICTURES: dict[str, Callable[[], tuple[Any, Lines]]] = {
    "bias": _bias,
    "exponents": _exponents,
    "drift": _drift,
    "instability": _instability,
    "bounds": _bounds,
}
