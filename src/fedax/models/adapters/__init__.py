"""Models from other libraries, each as an object with `init` and `apply`.

Nothing is imported to find out what a model is: the names of its class's modules say it. Parameters and state are flat
dictionaries by dotted names such as "layers.0.kernel", and start from the model's own values for every seed.
"""

from __future__ import annotations

from typing import Any

from fedax.errors import FedaxError


def is_torch(model: Any) -> bool:
    """Whether a model is a PyTorch module.

    >>> is_torch("a name")
    False
    """
    return library_of(model) == "torch"


def library_of(model: Any) -> str | None:
    """The library that a model is from: "torch", "nnx", "equinox" or "keras"; None for any other model.

    An Equinox model may come with its state, as the pair that `equinox.nn.make_with_state` gives.

    >>> print(library_of((lambda key, x: 2.0, lambda params, x: params * x)))
    None
    """
    if isinstance(model, tuple) and len(model) == 2 and type(model[1]).__module__ == "equinox.nn._stateful":
        model = model[0]
    modules = [cls.__module__ for cls in type(model).__mro__]
    if any(name.startswith("keras.src.layers.layer") for name in modules):  # on the torch backend, torch's as well
        return "keras"
    if "torch.nn.modules.module" in modules:
        return "torch"
    if "flax.nnx.module" in modules:
        return "nnx"
    return "equinox" if any(name.startswith("equinox._module") for name in modules) else None


def as_model(model: Any) -> Any:
    """A model with `init` and `apply`: one from another library in its adapter, any other as it is.

    >>> pair = (lambda key, x: 2.0, lambda params, x: params * x)
    >>> as_model(pair) is pair
    True
    """
    library = library_of(model)
    if library == "torch":
        from fedax.models.torch.torch_model import TorchModel

        return TorchModel(model)
    if library == "nnx":
        from fedax.models.adapters.nnx_model import NNXModel

        return NNXModel(model)
    if library == "equinox":
        from fedax.models.adapters.equinox_model import EquinoxModel

        return EquinoxModel(model)
    if library == "keras":
        from fedax.models.adapters.keras_model import KerasModel

        return KerasModel(model)
    return model


def with_init(model: Any, init: Any) -> Any:
    """A PyTorch module that starts from its own weights ("module"), or from weights drawn for each seed ("reset").

    >>> with_init((lambda key, x: 2.0, lambda params, x: params * x), "reset")
    Traceback (most recent call last):
    fedax.errors.FedaxError: init='reset' is for a PyTorch module: another model draws its first parameters itself
    """
    if not isinstance(init, str):
        raise FedaxError("give either a model or init=function(key), not both")
    if library_of(model) != "torch":
        raise FedaxError(f"init={init!r} is for a PyTorch module: another model draws its first parameters itself")
    from fedax.models.torch.torch_model import TorchModel

    return TorchModel(model, init=init)  # type: ignore[arg-type]  # it checks the name


def with_values(model: Any, params: Any, state: Any) -> Any:
    """A copy of another library's model with these parameters and this state, in that library's own structure."""
    if library_of(model) is None:
        raise FedaxError(
            f"{type(model).__name__} is no model of PyTorch, Flax NNX, Equinox or Keras: take the parameters themselves"
        )
    if not isinstance(params, dict):
        raise FedaxError(f"the parameters are a {type(params).__name__}, not arrays by their names in the model")
    return as_model(model).restored(params, state or {})
