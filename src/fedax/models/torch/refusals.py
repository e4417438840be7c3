"""What is refused, in one sentence each: PyTorch missing or too old, modules that JAX cannot compute."""

from __future__ import annotations

import functools
import importlib
from typing import Any

import jax
import numpy as np

from fedax.errors import FedaxError
from fedax.own_code import place

OLDEST = (2, 13)


@functools.cache
def installed() -> Any:
    """PyTorch, if it is there and new enough."""
    try:
        torch = importlib.import_module("torch")
    except ImportError as error:
        raise FedaxError("a PyTorch module needs PyTorch: pip install 'fedax[torch]'") from error
    check_version(torch.__version__)
    return torch


def check_version(version: str) -> None:
    """Refuse a PyTorch whose graphs are different.

    >>> check_version("2.13.0+cpu")
    >>> check_version("2.9.1")
    Traceback (most recent call last):
    fedax.errors.FedaxError: PyTorch 2.9.1 is too old: Fedax needs 2.13 or later, so pip install 'torch>=2.13'
    """
    parts = version.split("+")[0].split(".")[:2]
    if tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in parts) < OLDEST:
        needed = ".".join(map(str, OLDEST))
        raise FedaxError(
            f"PyTorch {version} is too old: Fedax needs {needed} or later, so pip install 'torch>={needed}'"
        )


def check_module(net: Any) -> None:
    """Refuse a module with parameters or buffers that JAX cannot compute with."""
    torch = installed()
    if not isinstance(net, torch.nn.Module):
        raise FedaxError(f"TorchModel needs a torch.nn.Module, not {type(net).__name__}")
    for name, module in net.named_modules():
        if isinstance(module, torch.jit.ScriptModule):
            raise FedaxError(
                f"{name or type(net).__name__} is compiled by TorchScript: give the module that it was made from"
            )
        if type(module).__module__.startswith(("torch.ao.nn.quantized", "torch.nn.quantized")):
            raise FedaxError(f"{name or type(net).__name__} is quantised: train the module before it is quantised")
        if getattr(module, "max_norm", None) is not None:
            raise FedaxError(
                f"{name or type(net).__name__} has max_norm, which changes weights in the forward: leave it out"
            )
        if getattr(module, "track_running_stats", False) and module.momentum is None:
            raise FedaxError(
                f"{name or type(net).__name__} has momentum=None, which depends on the data: give it a number"
            )
    for name, p in [*net.named_parameters(), *net.named_buffers()]:
        kind = "parameter" if isinstance(p, torch.nn.Parameter) else "buffer"
        if isinstance(p, torch.nn.parameter.UninitializedTensorMixin):
            raise FedaxError(f"{kind} {name!r} has no shape yet: call the module once on a batch before")
        if p.is_quantized:
            raise FedaxError(f"{kind} {name!r} is quantised: train the module before it is quantised")
        if p.is_complex():
            raise FedaxError(f"{kind} {name!r} is complex: keep its real and imaginary parts as two")
        if p.device.type != "cpu":
            advice = "give it values first" if p.device.type == "meta" else "move the module to the CPU with net.cpu()"
            raise FedaxError(f"{kind} {name!r} is on the device {p.device}: {advice}, JAX has devices of its own")


def refused_export(net: Any, x: Any, train: bool, error: Exception) -> FedaxError:
    """The sentence for what torch.export, or the module's forward within it, raised."""
    name, words = type(net).__name__, _first_sentence(error)
    if isinstance(error, ValueError) and "more than 1 value per channel when training" in words:
        return FedaxError(
            f"batch normalisation in {name} needs two rows or more in training: take a larger batch_size, or another "
            "normalisation"
        )
    if "DataDependent" in type(error).__name__ or "data-dependent" in words or "Unsupported" in type(error).__name__:
        return FedaxError(
            f"the forward of {name} depends on the data, so that no program can be made of it ({words}): use "
            "torch.where in place of if, and tensors in place of .item()"
        )
    if "type must be tuple of ints,but got FakeTensor" in words:
        return FedaxError(
            f"the forward of {name} takes a size from a tensor's values, as packed sequences do: pad the rows to equal "
            "lengths, and mask what was added"
        )
    if ".numpy() is not supported" in words:
        return FedaxError(
            f"the forward of {name} computes in NumPy, where torch.export cannot follow: compute with torch's functions"
        )
    if "fake tensor in the exported program" in words:
        return FedaxError(
            f"the forward of {name} takes the values of a tensor past torch.export, by .data or the like: use "
            ".detach() and copy_() in place of .data"
        )
    shapes, where = jax.tree.map(lambda a: np.shape(a)[1:], x), place(error)
    said = words if where is None else f"{where} raises {type(error).__name__}: {words}"
    return FedaxError(f"{name} does not take rows of shape {shapes}: {said}")


def _first_sentence(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".:")
