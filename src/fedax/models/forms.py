"""The two forms of a model, and one object for both.

    simple:  init(key, x) -> params             apply(params, x) -> outputs
    full:    init(key, x) -> params, state      apply(params, state, x, key, train) -> outputs, state

An apply of five arguments is the full form. A Flax Linen module is taken as it is: its collections other than "params"
are state, `train`, `deterministic` and the like of its `__call__` follow the mode, and dropout draws from the key.
Models of other libraries come through `fedax.models.adapters`.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax
from jax.interpreters import partial_eval

from fedax.errors import FedaxError
from fedax.models.adapters import as_model
from fedax.models.normalised import Normalised
from fedax.models.switches import mode


@dataclass(frozen=True)
class Form:
    """A model in the full form.

    simple: whether it was given in the other form.
    is_trained: which parameters are trained unless the problem says otherwise, by their paths; None for all.
    """

    init: Callable[[Any, Any], tuple[Any, Any]]
    apply: Callable[[Any, Any, Any, Any, bool], tuple[Any, Any]]
    simple: bool = False
    is_trained: Callable[[str], bool] | None = None


def form_of(model: Any) -> Form:
    """A model in the full form, whichever form it was given in.

    >>> double = form_of((lambda key, x: 2.0, lambda params, x: params * x))
    >>> double.apply(2.0, (), 3.0, None, True)
    (6.0, ())
    >>> count = form_of((lambda key, x: (2.0, 0), lambda params, state, x, key, train: (params * x, state + train)))
    >>> count.apply(2.0, 0, 3.0, None, True)
    (6.0, 1)
    """
    model = as_model(model)
    if isinstance(model, Normalised):
        return _scaled(model)
    if is_flax(model):
        return _flax(model)
    if isinstance(model, tuple) and len(model) == 2 and all(callable(part) for part in model):
        init, apply = model
    elif hasattr(model, "init") and hasattr(model, "apply"):
        init, apply = model.init, model.apply
    elif isinstance(model, type):
        raise FedaxError(f"model is the class {model.__name__}: give a model made by it, such as {model.__name__}()")
    else:
        raise FedaxError(
            f"model must have init(key, x) and apply(params, x), or be that pair; got {type(model).__name__}"
        )
    if _arguments(apply) != 5:
        return _simple(init, apply)
    return dataclasses.replace(_full(init, apply), is_trained=getattr(model, "is_trained", None))


def is_flax(model: Any) -> bool:
    """Whether a model is a Flax Linen module; Flax is not loaded to find out."""
    return any(cls.__module__.startswith("flax.linen") for cls in type(model).__mro__)


def _arguments(apply: Callable[..., Any]) -> int:
    """The number of a function's required positional arguments."""
    try:
        parameters = inspect.signature(apply).parameters.values()
    except (TypeError, ValueError):
        return 2
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters)


def _simple(init: Callable[..., Any], apply: Callable[..., Any]) -> Form:
    def first(key: Any, x: Any) -> tuple[Any, Any]:
        params = init(key, x)
        if isinstance(params, Mapping) and "params" in params and len(params) > 1:
            others = ", ".join(name for name in params if name != "params")
            raise FedaxError(
                f"the model keeps {others} beside its params, and apply(params, x) would train them by gradient: give "
                "the Flax module itself, or apply(params, state, x, key, train)"
            )
        return params, ()

    return Form(first, lambda params, state, x, key, train: (apply(params, x), state), simple=True)


def _full(init: Callable[..., Any], apply: Callable[..., Any]) -> Form:
    def first(key: Any, x: Any) -> tuple[Any, Any]:
        made = init(key, x)
        if not isinstance(made, tuple) or len(made) != 2:
            raise FedaxError(
                "init(key, x) must give the pair (params, state) where apply takes (params, state, x, key, train), "
                f"not {type(made).__name__}"
            )
        return made

    return Form(first, apply)


def _flax(module: Any) -> Form:
    def switches(train: bool) -> dict[str, bool]:
        return mode(type(module).__call__, train)

    def init(key: Any, x: Any) -> tuple[Any, Any]:
        variables = module.init(key, x, **switches(False))
        state = {name: part for name, part in variables.items() if name != "params"}
        return {name: part for name, part in variables.items() if name == "params"}, state

    def apply(params: Any, state: Any, x: Any, key: Any, train: bool) -> tuple[Any, Any]:
        from flax import errors

        variables = {**params, **state} if state else params
        rngs = None if key is None else {"params": key}  # where dropout and others find no key of their own
        try:
            if train and state:
                outputs, changed = module.apply(variables, x, rngs=rngs, mutable=list(state), **switches(True))
                return outputs, {**state, **changed}
            return module.apply(variables, x, rngs=rngs, **switches(train)), state
        except (errors.InvalidRngError, errors.ModifyScopeVariableError) as error:
            if train:
                raise
            what = "draws" if isinstance(error, errors.InvalidRngError) else "changes its state"
            name = type(module).__name__
            raise FedaxError(
                f"the model {name} {what} in evaluation too: let its __call__ take train or deterministic"
            ) from error

    return Form(init, apply)


def _scaled(model: Normalised) -> Form:
    inner = form_of(model.model)
    return Form(
        lambda key, x: inner.init(key, model.scaled(x)),
        lambda params, state, x, key, train: inner.apply(params, state, model.scaled(x), key, train),
        inner.simple,
        inner.is_trained,
    )


def draws(form: Form, params: Any, state: Any, x: Any) -> bool:
    """Whether the model draws when it trains: whether its outputs or its state depend on its key.

    >>> import jax.numpy as jnp
    >>> noisy = form_of((lambda key, x: (1.0, ()), lambda p, s, x, key, train: (x + jax.random.normal(key), s)))
    >>> draws(noisy, 1.0, (), jnp.zeros(3))
    True
    """
    program = jax.make_jaxpr(lambda key: form.apply(params, state, x, key, True))(jax.random.key(0)).jaxpr
    _, used = partial_eval.dce_jaxpr(program, [True] * len(program.outvars))
    return bool(used[0])
