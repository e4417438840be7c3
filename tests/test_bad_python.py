"""Bad input from Python: one FedaxError of one sentence, which has the name and the line of a user's own function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import fedax
from conftest import LEAST_SQUARES, regression
from fedax.algorithms.base import Algorithm, algorithm, rate
from fedax.data import Federation
from fedax.errors import FedaxError

Case = Callable[[], Any]
DATA = regression(sizes=(4, 5))
METHOD = fedax.FedAvg(lr=0.1)
X, Y = np.ones((4, 3), np.float32), np.zeros(4, np.int32)


def run(problem: Any = LEAST_SQUARES, data: Any = DATA, method: Any = METHOD, **options: Any) -> Any:
    return fedax.simulate(problem, data, method, **{"rounds": 1, **options})


NO_COUNT = (0, -1, 1.5, "3", True, None, [], float("nan"), 10**30, 3 + 1j)
NO_OPTIONAL = tuple(value for value in NO_COUNT if value is not None)
OPTIONS: dict[str, tuple[Any, ...]] = {
    "rounds": NO_COUNT,
    **dict.fromkeys(("cohort", "local_steps", "batch_size", "devices"), NO_OPTIONAL),
    **dict.fromkeys(("chunk", "join_steps"), NO_OPTIONAL[:7]),
    "eval_every": NO_COUNT[:8],
    "local_epochs": (0, -1.0, "1", True, [], float("nan"), float("inf")),
    "seed": (-1, 2**32, 2**64, 0.5, "0", None, True),
    "unseen": (1.0, -0.1, "half", True, float("nan"), None),
    "zero_below": (-1, "0", None, float("nan")),
    "sampling": ("epoch", 1, None, ""),
    "executor": ("fast", 1, None),
    "weighted": (1, "yes", None),
    "personal": (1, "yes", None),
    "eval_on": ([], ["tests"], ["test", "test"], 1),
    "model_state": ("average", "no-such", 1),
    "state_budget": ("much", -1, "-1GiB", [], 1.5),
    "checkpoint_every": (-1, 1.0, "often"),
    "resume": (1, True),
    "out": (3, ["a"], "", "a\x00b", "x" * 300),
    "on_progress": (3, "say"),
    "availability": ("sometimes", {"share": 0.5}, fedax.Availability(share=(0.5,))),
    "attack": ("flip", {"kind": "flip", "share": 0.3}),
    "patience": (-1, 2),
    "label": ("a\nb", "", 3),
    "rouns": (1,),
}


def options() -> Iterator[tuple[str, Case]]:
    for name, values in OPTIONS.items():
        for value in values:
            yield f"{name}={value!r}", lambda n=name, v=value: run(**{n: v})
    yield "both kinds of work", lambda: run(local_steps=1, local_epochs=1)
    yield "no rounds", lambda: fedax.simulate(LEAST_SQUARES, DATA, METHOD)
    yield "much memory", lambda: run(batch_size=10**9, local_steps=1000)
    for what in (None, 1, "FedAvg", fedax.FedAvg):
        yield f"the method {what!r}", lambda w=what: run(method=w)
    for what in (None, 1, "linear", LINE):
        yield f"the problem {what!r}"[:40], lambda w=what: run(w)
    for what in (None, 1, {"x": X}, [DATA], "digits"):
        yield f"the federation {what!r}", lambda w=what: run(data=w)


def federations() -> Iterator[tuple[str, Case]]:
    make = Federation.from_clients
    for name, clients in {
        "nobody": [],
        "no arrays": [{}],
        "not a dict": [X],
        "no rows": [{"x": X[:0]}],
        "a number": [{"x": 3.0}],
        "words": [{"x": ["a", "b"]}],
        "objects": [{"x": np.array([None, 1])}],
        "complex": [{"x": X.astype(complex)}],
        "no features": [{"x": np.zeros((4, 0))}],
        "no features inside": [{"x": np.zeros((4, 2, 0))}],
        "NaN": [{"x": X * np.nan}],
        "infinity": [{"x": X * np.inf}],
        "unequal lengths": [{"x": X, "y": Y[:2]}],
        "other arrays": [{"x": X}, {"y": Y}],
        "other shapes": [{"x": X}, {"x": X[:, :2]}],
        "other dtypes": [{"x": X}, {"x": X.astype(np.int8)}],
        "numbered arrays": [{1: X}],
        "ragged": [{"x": [[1, 2], [3]]}],
        "masked": [{"x": np.ma.masked_array(X, mask=X > 0)}],
        "structured": [{"x": np.zeros(4, [("a", "f4")])}],
        "of more than 64 bits": [{"x": X.astype(np.longdouble)}],
        "an empty key": [{"": X}],
        "a key of two lines": [{"x\n": X}],
        "more than memory": [{"x": np.broadcast_to(np.float32(1), (4, 10**12))}],
        "dates": [{"x": np.array(["2020-01-01"], "datetime64[D]")}],
    }.items():
        yield f"clients: {name}", lambda c=clients: make(c)
    for clients in (None, 3, iter([{"x": X}]), "x"):
        yield f"from_clients({clients!r})"[:40], lambda c=clients: make(c)
    for client in (-1, 2, "a", None, 0.5, True):
        yield f"client({client!r})", lambda c=client: DATA.client(c)
    for order in ([99], [], ["a"]):
        yield f"subset({order!r})", lambda o=order: DATA.subset(o)
    for split in ((0, 0.5, 0.5), (0.5, 0.5), (1, 1, 1), (-1, 1, 1), "abc", 1, (np.nan, 0, 1), (0.0, 0.0, 1.0)):
        yield f"split={split!r}", lambda s=split: fedax.data.load("iris", split=s)
    for name in ("no-such", "", 1, None, "no_such:make"):
        yield f"load({name!r})", lambda n=name: fedax.data.load(n)
    for partition in (1, "IID", fedax.data.IID):
        yield f"partition={partition!r}", lambda p=partition: fedax.data.load("iris", partition=p)
    for clients in (0, -1, 1.5, "a", None, True, 10**9):
        yield f"IID({clients!r})", lambda c=clients: fedax.data.load("iris", partition=fedax.data.IID(c))
    for names in (["a"], "ab", [1, 2], ["a", "a"]):
        yield f"names={names!r}", lambda n=names: make([{"x": X}, {"x": X}], names=n)


def methods() -> Iterator[tuple[str, Case]]:
    for lr in (
        1e39,
        1e-50,
        0.1 + 0j,
        10**400,
        np.array([0.1, 0.2]),
        lambda r: 0.1,
        0,
        -1,
        "0.1",
        None,
        True,
        float("nan"),
        float("inf"),
        [0.1],
        {},
        METHOD,
    ):
        yield f"lr={lr!r}"[:30], lambda v=lr: fedax.FedAvg(lr=v)
    for mu in (-1, "0.1", None, float("nan")):
        yield f"mu={mu!r}", lambda v=mu: fedax.FedProx(lr=0.1, mu=v)
    for given in ({}, {"lr": 0.1, "no_such": 1}):
        yield f"build with {given}", lambda g=given: fedax.algorithms.build("FedAvg", **g)
    for name in ("FedAvgg", "", "no_such:Method"):
        yield f"build {name!r}", lambda n=name: fedax.algorithms.build(n, lr=0.1)
    robust = fedax.algorithms.Robust
    for rule in ("mean ", "medan", 1, None):
        yield f"rule={rule!r}", lambda r=rule: robust(METHOD, rule=r)
    for trim in (0.5, -0.1, "a", float("nan")):
        yield f"trim={trim!r}", lambda t=trim: robust(METHOD, trim=t)
    yield "aggregate by name", lambda: run(method=own({"aggregate": "median"}))
    for change in (
        {"clip": float("nan")},
        {"noise": "1"},
        {"delta": 0},
        {"base": "FedAvg"},
        {"base": fedax.Private(METHOD, clip=1.0)},
    ):
        yield f"Private of {change}"[:40], lambda c=change: fedax.Private(**{"base": METHOD, "clip": 1.0, **c})
    for name in ("step", "update", "finish", "aggregate"):
        for function in (3, None, lambda: 0):
            yield f"{name} is {function!r}"[:30], lambda n=name, f=function: run(method=own({n: f}))
    yield "no functions", lambda: run(method=algorithm(type("Nothing", (Algorithm,), {}))())
    yield "no class", lambda: algorithm(3)
    for rounds in (0, -1, float("nan"), "1", True):
        yield (
            f"advance({rounds!r})",
            lambda r=rounds: fedax.Simulation(LEAST_SQUARES, DATA, METHOD, rounds=2).advance(r),
        )
    for seeds in (3, None, (), (0, 0), (-1,)):
        yield f"seeds={seeds!r}", lambda s=seeds: fedax.compare(LEAST_SQUARES, DATA, [METHOD], rounds=1, seeds=s)
    for many in (None, METHOD, []):
        yield f"compare {many!r}"[:30], lambda m=many: fedax.compare(LEAST_SQUARES, DATA, m, rounds=1)
    yield "a schedule of no function", lambda: fedax.schedules.Custom(0.1, 3)
    yield "an attack beyond float32", lambda: fedax.Attack("flip", share=0.1, strength=1e308)
    for many in (None, [], METHOD, [METHOD, fedax.SCAFFOLD(lr=0.1)]):
        yield f"a sweep of {many!r}"[:40], lambda m=many: fedax.sweep(LEAST_SQUARES, DATA, m, rounds=1)
    for path in (None, 3, "", "a\x00b", "nowhere"):
        yield f"load a run from {path!r}", lambda p=path: fedax.load(p)
    yield "Robust of several vectors", lambda: run(method=robust(fedax.SCAFFOLD(lr=0.1), rule="median"))


def problems() -> Iterator[tuple[str, Case]]:
    for loss in ("crossentropy", "", 1, None, "squared", "no_such:loss"):
        yield f"loss={loss!r}", lambda v=loss: fedax.Problem(loss=v)
    for model in (1, "mlp", {}, (1, 2), lambda x: x):
        yield f"model={model!r}"[:40], lambda m=model: run(fedax.Problem(m, loss="squared"))
    yield "no parameters", lambda: run(fedax.Problem((lambda key, x: {}, lambda w, x: x[:, 0]), loss="squared"))
    yield "no init", lambda: fedax.Problem(loss=lambda w, b: 0.0)
    for options in (
        {"gradients": [1]},
        {"gradients": [{"name": "clip", "max_delta": "a"}]},
        {"gradients": "clip"},
        {"gradients": [{"name": "clip_by_global_norm", "max_norm": -1.0}]},
        {"gradients": [{"name": "dp", "clip": float("nan")}]},
        {"gradients": [{"name": "dp", "clip": 1e-300}]},
        {"gradients": [{"name": "dp", "clip": 1.0, "noise": float("inf")}]},
        {"regularizer": "l1"},
        {"regularizer": 3},
        {"accuracy": 1},
        {"metrics": ["no-such"]},
        {"metrics": [1]},
        {"trainable": 1},
        {"augment": "no-such"},
        {"init": 1},
    ):
        yield f"Problem({options})", lambda o=options: run(fedax.Problem(LINE, loss="squared", **o))
    yield (
        "whole parameters",
        lambda: run(fedax.Problem(loss=lambda w, b: jnp.mean(b["x"]), init=lambda k: jnp.ones(2, int))),
    )
    yield (
        "labels outside",
        lambda: run(
            fedax.Problem(fedax.models.model("linear", outputs=2), loss="cross_entropy"),
            Federation.from_clients([{"x": X, "y": Y + 5}]),
        ),
    )
    for labels in (Y + 0.5, Y + np.arange(4)):
        made = Federation.from_clients([{"x": X, "y": labels}])
        line = fedax.models.model("linear", outputs=1)
        yield f"signs of {labels.dtype}", lambda d=made, m=line: run(fedax.Problem(m, loss="logistic"), d)
    yield (
        "a wide model",
        lambda: run(fedax.Problem(fedax.models.model("mlp", outputs=1, hidden=[10**12]), loss="squared")),
    )


LINE = (lambda key, x: jnp.zeros(x.shape[-1]), lambda w, x: x @ w)


# A user's own functions: who raises or returns nonsense is named, with the line


class Odd:
    """What no array holds."""


def line_of(function: Callable[..., Any]) -> int:
    return inspect.getsourcelines(function)[1]


def own(change: dict[str, Any]) -> Algorithm:
    """FedAvg with some of its functions replaced."""

    class Mine(Algorithm):
        lr: float = rate(default=0.1)

        def step(self, x_i, oracle, x, client, ctx):
            return x_i - self.lr * oracle.grad(x_i)

        def finish(self, x_i, oracle, x, client, ctx):
            return x_i - x, client

        def update(self, x, delta, ctx):
            return x + delta

    for name, function in change.items():
        setattr(Mine, name, function)
    return algorithm(Mine)()


def raises(*args: Any) -> Any:
    raise LookupError("a story of\nmany lines")


def leaves(*args: Any) -> Any:
    raise SystemExit(0)


RETURNS: dict[str, Callable[..., Any]] = {
    "nothing": lambda *args: None,
    "text": lambda *args: "text",
    "an object": lambda *args: Odd(),
    "another shape": lambda *args: jnp.zeros(77),
    "complex numbers": lambda *args: jnp.zeros((), complex),
}


def own_functions() -> Iterator[tuple[str, Case, Callable[..., Any]]]:
    """name, what fails, the function whose name and line the sentence must have."""
    for name in ("init", "client_init", "broadcast", "begin", "step", "finish", "update", "model", "aggregate"):
        for what, function in {"raises": raises, "leaves": leaves}.items():
            here = lambda self, *args, f=function: f()  # noqa: E731
            yield f"{name} {what}", lambda n=name, f=here: run(method=own({n: f})), function
    for name in ("step", "finish", "update", "aggregate"):
        few = lambda self: None  # noqa: E731
        yield f"{name} takes too few arguments", lambda n=name, f=few: run(method=own({n: f})), few
        for what, function in RETURNS.items():
            yield f"{name} returns {what}", lambda n=name, f=function: run(method=own({n: f})), function
    pair = {"a loss": lambda f: fedax.Problem(LINE, loss=f), "a loss of parameters": _of_parameters, "a model": _model}
    for whose, make in pair.items():
        for what, function in {"raises": raises, "leaves": leaves, **RETURNS}.items():
            yield f"{whose}: {what}", lambda m=make, f=function: run(m(f)), function
    yield "init raises", lambda: run(fedax.Problem(loss=lambda w, b: jnp.mean(b["x"] @ w), init=raises)), raises
    yield "augment raises", lambda: run(fedax.Problem(LINE, loss="squared", augment=raises), batch_size=2), raises
    yield "accuracy raises", lambda: run(fedax.Problem(LINE, loss="squared", accuracy=raises)), raises


def _of_parameters(loss: Callable[..., Any]) -> fedax.Problem:
    return fedax.Problem(loss=loss, init=lambda key: jnp.zeros(6))


def _model(apply: Callable[..., Any]) -> fedax.Problem:
    return fedax.Problem((LINE[0], apply), loss="squared")


def check(case: Case) -> str:
    with pytest.raises(FedaxError) as caught:
        case()
    said = str(caught.value)
    assert said.strip() == said != ""
    assert "\n" not in said
    assert len(said) < 1000
    return said


GROUPS = {"options": options, "federations": federations, "methods": methods, "problems": problems}


def test_there_are_two_hundred() -> None:
    assert sum(len(list(group())) for group in GROUPS.values()) + len(list(own_functions())) >= 200


@pytest.mark.parametrize("group", GROUPS)
def test_bad_input_is_one_sentence(group: str) -> None:
    wrong = []
    for name, case in GROUPS[group]():
        try:
            check(case)
        except BaseException as error:
            wrong.append(f"{name}: {type(error).__name__}: {str(error)[:150]}")
    assert not wrong, "\n".join(wrong)


def test_an_own_function_is_named_with_its_line() -> None:
    wrong = []
    for name, case, function in own_functions():
        try:
            said = check(case)
        except BaseException as error:
            wrong.append(f"{name}: {type(error).__name__}: {str(error)[:200]}")
            continue
        first = line_of(function)
        if __file__ not in said or not any(f"line {first + n}" in said for n in range(3)):
            wrong.append(f"{name}: {said}")
    assert not wrong, "\n".join(wrong)


def test_what_a_callback_raises_goes_through_as_it_is() -> None:
    class Enough(Exception):
        """A caller's own way to stop."""

    def stop(rounds: int) -> None:
        raise Enough

    with pytest.raises(Enough):
        run(on_progress=stop)


def test_the_sentence_names_the_line_that_raises() -> None:
    def loss(w: Any, batch: Any) -> Any:
        wide = w + 1
        return jnp.mean(batch["x"] @ wide[:2])

    said = check(lambda: run(fedax.Problem(loss=loss, init=lambda key: jnp.zeros(6))))
    assert f"loss ({__file__}, line {line_of(loss) + 2}) raises TypeError" in said
