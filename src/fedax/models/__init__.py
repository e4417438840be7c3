"""Models by name, as Flax modules; any other `init` / `apply` pair works as well.

Listing them loads neither JAX nor Flax: `MODELS` holds names, one-line descriptions and options, and the
module itself is imported when `model` builds it.

>>> from fedax.models import MODELS, model
>>> list(MODELS)
['linear', 'logistic', 'trace', 'mlp', 'cnn', 'resnet18', 'small_cnn_gn']
>>> model("mlp", outputs=10, hidden=[100]).hidden
(100,)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedax.models.registry import MODELS, Entry, Option, model

if TYPE_CHECKING:
    from fedax.models.cnn import CNN
    from fedax.models.convolution import convolve, max_pool
    from fedax.models.group_norm import ResNet18, SmallCNN
    from fedax.models.linear import Linear
    from fedax.models.mlp import MLP
    from fedax.models.normalised import Normalised
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
    "ResNet18": "group_norm",
    "SmallCNN": "group_norm",
    "Trace": "trace",
    "convolve": "convolution",
    "max_pool": "convolution",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
