"""The models by name, with what each option may be; light enough to list without loading JAX or Flax."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedax.errors import FedaxError, unknown
from fedax.models.adapters import library_of
from fedax.outside import call, is_outside, load

if TYPE_CHECKING:
    from flax import linen as nn


@dataclass(frozen=True)
class Option:
    """One option of a model: its default, what is allowed, and how a value is read.

    `read` returns the value in the form that the module wants, or raises TypeError or ValueError.

    >>> MODELS["cnn"].options["kernel"].allowed
    'a whole number of at least 1'
    >>> MODELS["mlp"].options["hidden"].read([100, 50])
    (100, 50)
    """

    default: Any
    allowed: str
    read: Callable[[Any], Any]


@dataclass(frozen=True)
class Entry:
    """A model that `model` can build: one line about it, where its class lives, and its options.

    >>> MODELS["mlp"].summary
    'fully connected layers with ReLU'
    >>> MODELS["mlp"].load().__name__
    'MLP'
    """

    summary: str
    target: str
    options: Mapping[str, Option] = field(default_factory=dict)

    def load(self) -> type[nn.Module]:
        """Import the model's class."""
        module, _, name = self.target.partition(":")
        found: type[nn.Module] = getattr(import_module(module), name)
        return found


def _count(value: Any) -> int:
    if isinstance(value, bool) or operator.index(value) < 1:
        raise ValueError
    return operator.index(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _count_option(default: int) -> Option:
    return Option(default, "a whole number of at least 1", _count)


def _counts_option(default: tuple[int, ...], *, at_least: int) -> Option:
    def read(value: Any) -> tuple[int, ...]:
        numbers = tuple(_count(v) for v in value)
        if len(numbers) < at_least:
            raise ValueError
        return numbers

    some = "one or more" if at_least else "any number of"
    return Option(default, f"a list of {some} whole numbers, each at least 1", read)


def _choice_option(*names: str) -> Option:
    def read(value: Any) -> str:
        return names[names.index(value)]

    return Option(names[0], " or ".join(map(repr, names)), read)


_OUTPUTS = Option(None, "a whole number of at least 1", _count)
_FIRST = _choice_option("lecun", "pytorch")
_LINEAR = {"use_bias": Option(True, "true or false", _flag), "kernel_init": _choice_option("zeros", "lecun")}

MODELS: dict[str, Entry] = {
    "linear": Entry("linear regression: one dense layer", "fedax.models.linear:Linear", _LINEAR),
    "logistic": Entry(
        "logistic regression: one dense layer of logits, 1 output for two classes or one a class",
        "fedax.models.linear:Linear",
        _LINEAR,
    ),
    "trace": Entry(
        "regression on matrices: the inner product with a parameter of a row's shape",
        "fedax.models.trace:Trace",
        {"use_bias": Option(True, "true or false", _flag)},
    ),
    "mlp": Entry(
        "fully connected layers with ReLU",
        "fedax.models.mlp:MLP",
        {"hidden": _counts_option((200, 200), at_least=0), "kernel_init": _FIRST},
    ),
    "cnn": Entry(
        "convolutions with ReLU and 2x2 max pooling, then fully connected layers",
        "fedax.models.cnn:CNN",
        {
            "channels": _counts_option((32, 64), at_least=1),
            "dense": _counts_option((1024, 512), at_least=0),
            "kernel": _count_option(3),
            "kernel_init": _FIRST,
        },
    ),
    "resnet18": Entry(
        "ResNet-18 with group normalisation",
        "fedax.models.resnet:ResNet18",
        {
            "channels": _counts_option((64, 128, 256, 512), at_least=1),
            "groups": _count_option(2),
            "stem": _choice_option("3x3", "7x7"),
        },
    ),
    "small_cnn_gn": Entry(
        "convolutions with group normalisation, ReLU and 2x2 max pooling, then one dense layer",
        "fedax.models.resnet:SmallCNN",
        {"channels": _counts_option((32, 64, 128), at_least=1), "groups": _count_option(2)},
    ),
}


def model(name: str, *, outputs: int, **options: Any) -> Any:
    """Build a model by its name.

    Args:
        name: one of `MODELS`; or "mymodule:MyModel" or "file.py:MyModel", a Flax module class, a function that returns
            a model, or a model itself: all that `fedax.Problem` takes. A PyTorch module made by a function or a class
            has the same first weights in every process.
        outputs: how many numbers the model gives for each row (classes, or regression targets), 1 or more.
        **options: the options in `MODELS[name].options`; a list will do for a tuple.

    Raises:
        FedaxError: the name or an option is unknown, or a value is out of its range.

    >>> cnn = model("cnn", outputs=10, channels=[16, 32])
    >>> cnn.channels, cnn.kernel
    ((16, 32), 3)
    >>> model("mlp", outputs=10, hiden=[50])
    Traceback (most recent call last):
    ...
    fedax.errors.FedaxError: unknown mlp option 'hiden': did you mean 'hidden'? Allowed: hidden, kernel_init
    >>> model("cnn", outputs=10, kernel=0)
    Traceback (most recent call last):
    ...
    fedax.errors.FedaxError: cnn option kernel is 0: allowed is a whole number of at least 1
    """
    if is_outside(name):
        return _from_outside(name, _read(name, "outputs", _OUTPUTS, outputs), options)
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    entry = MODELS[name]
    values = {"outputs": _read(name, "outputs", _OUTPUTS, outputs)}
    for key, value in options.items():
        if key not in entry.options:
            raise unknown(f"{name} option", key, entry.options)
        values[key] = _read(name, key, entry.options[key], value)
    return entry.load()(**values)


@dataclass(frozen=True)
class Pair:
    """Two functions as one model.

    >>> Pair(init=lambda key, x: 2.0, apply=lambda params, x: params * x).apply(2.0, 3.0)
    6.0
    """

    init: Callable[[Any, Any], Any]
    apply: Callable[[Any, Any], Any]


def outside_model(name: str) -> Any:
    """The object that a model's name from outside names: a class, a function that makes a model, or a model.

    >>> outside_model("fedax.models.mlp:MLP").__name__
    'MLP'
    """
    advice = "it must have init(key, x) and apply(params, x), be that pair, or be a function that returns a model"
    return load(name, "model", lambda found: _is_model(found) or callable(found), advice)


def _from_outside(name: str, outputs: int, options: Mapping[str, Any]) -> Any:
    found = outside_model(name)
    if _is_model(found) and not isinstance(found, type):
        if options:
            raise FedaxError(f"{name} is a model and has no options: {', '.join(options)} must be left out")
        return Pair(*found) if isinstance(found, tuple) else found
    with _seeded():
        made = call(name, found, options, outputs=outputs)
    if not _is_model(made):
        raise FedaxError(
            f"{name} makes no model but {type(made).__name__}: it must have init(key, x), apply(params, x)"
        )
    return Pair(*made) if isinstance(made, tuple) else made


@contextmanager
def _seeded() -> Iterator[None]:
    """PyTorch's generator started from one seed within the block, and restored after it.

    So a module that is made by name has the same first weights in every process: when a run is resumed, and at every
    site of a network.
    """
    torch = sys.modules.get("torch")  # the name's own module has imported it already
    if torch is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(0)
        yield


def _is_model(found: Any) -> bool:
    pair = isinstance(found, tuple) and len(found) == 2 and all(map(callable, found))
    return pair or (hasattr(found, "init") and hasattr(found, "apply")) or library_of(found) is not None


def _read(name: str, key: str, option: Option, value: Any) -> Any:
    try:
        return option.read(value)
    except (TypeError, ValueError) as error:
        raise FedaxError(f"{name} option {key} is {value!r}: allowed is {option.allowed}") from error
