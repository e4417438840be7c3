"""Models by name, as Flax modules; any other `init` / `apply` pair works as well.

Listing them loads neither JAX nor Flax: `MODELS` holds names, one-line descriptions and options, and the
module itself is imported when `model` builds it.

>>> from fedax.models import MODELS, model
>>> MODELS["mlp"].summary
'fully connected layers with ReLU'
>>> model("mlp", outputs=10, hidden=[100]).hidden
(100,)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedax.models.registry import MODELS, Entry, Option, model

if TYPE_CHECKING:
    from fedax.kernels.convolution import convolve, max_pool
    from fedax.models.cnn import CNN
    from fedax.models.linear import Linear
    from fedax.models.mlp import MLP
    from fedax.models.normalised import Normalised
    from fedax.models.resnet import ResNet18, SmallCNN
    from fedax.models.torch import TorchModel
    from fedax.models.trace import Trace

__all__ = [
    "CNN",
    "MLP",
    "MODELS",
    "Entry",
    "Linear",
    "Normalised",
    "Option",
    "ResNet18",
    "SmallCNN",
    "TorchModel",
    "Trace",
    "convolve",
    "max_pool",
    "model",
]

_HOME = {
    "CNN": "cnn",
    "MLP": "mlp",
    "Linear": "linear",
    "Normalised": "normalised",
    "ResNet18": "resnet",
    "SmallCNN": "resnet",
    "TorchModel": "fedax.models.torch",
    "Trace": "trace",
    "convolve": "fedax.kernels.convolution",
    "max_pool": "fedax.kernels.convolution",
}


def __getattr__(name: str) -> Any:
    if name == "torch":
        return import_module("fedax.models.torch")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOME[name]
    return getattr(import_module(home if "." in home else f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
