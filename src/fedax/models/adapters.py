"""Models from other libraries. Nothing is imported to find out what a model is."""

from __future__ import annotations

from typing import Any


def is_torch(model: Any) -> bool:
    """Whether a model is a PyTorch module.

    >>> is_torch("a name")
    False
    """
    return any(cls.__module__ == "torch.nn.modules.module" and cls.__name__ == "Module" for cls in type(model).__mro__)


def as_model(model: Any) -> Any:
    """A model with `init` and `apply`: a PyTorch module as a `TorchModel`, any other as it is.

    >>> pair = (lambda key, x: 2.0, lambda params, x: params * x)
    >>> as_model(pair) is pair
    True
    """
    if not is_torch(model):
        return model
    from fedax.models.torch.torch_model import TorchModel

    return TorchModel(model)
