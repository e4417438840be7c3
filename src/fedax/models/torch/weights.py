"""Weights from a PyTorch module to arrays, and back."""

from __future__ import annotations

import copy
import io
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedax.errors import FedaxError
from fedax.models.torch.refusals import installed

Arrays = dict[str, np.ndarray]


def weights_of(net: Any) -> tuple[Arrays, Arrays]:
    """Parameters and buffers, by the first of their names, in NumPy: no device is used yet."""
    named, buffers = dict(net.named_parameters()), dict(net.named_buffers())
    return {name: as_numpy(p) for name, p in named.items()}, {name: as_numpy(b) for name, b in buffers.items()}


def first_names(net: Any) -> dict[str, str]:
    """Every name of a parameter or buffer, and the first of the names that it has."""
    first: dict[int, str] = {}
    found = {}
    for named in (net.named_parameters, net.named_buffers):
        for name, tensor in named(remove_duplicate=False):
            found[name] = first.setdefault(id(tensor), name)
    return found


def as_numpy(tensor: Any) -> np.ndarray:
    """A tensor's values, which the tensor does not share."""
    torch = installed()
    if tensor.dtype == torch.bfloat16:
        return np.asarray(tensor.detach().float().numpy()).astype(jnp.bfloat16)
    return np.array(tensor.detach().numpy())


def as_tensor(array: Any, like: Any = None) -> Any:
    """An array's values as a tensor, of another one's type if that is given."""
    torch, values = installed(), np.asarray(array)
    half = values.dtype == jnp.bfloat16
    made = torch.from_numpy(values.astype(np.float32) if half else np.array(values))
    return made.to(like.dtype if like is not None else torch.bfloat16 if half else made.dtype)


def state_dict(net: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by the first of their names, as the module's `load_state_dict` takes them; others are the module's own."""
    names, found = first_names(net), {}
    if unknown := [name for name in values if names.get(name) != name]:
        raise FedaxError(
            f"{unknown[0]!r} is not in {type(net).__name__}: the parameters are those of another architecture"
        )
    for name, tensor in net.state_dict().items():
        value = values.get(names.get(name, name))
        if value is not None and np.shape(value) != tuple(tensor.shape):
            raise FedaxError(
                f"{name!r} has shape {np.shape(value)} and in {type(net).__name__} {tuple(tensor.shape)}: the "
                "parameters are those of another architecture"
            )
        found[name] = tensor.detach().clone() if value is None else as_tensor(value, tensor)
    return found


def with_weights(net: Any, values: Mapping[str, Any]) -> Any:
    """A copy of the module with other weights."""
    made = _copied(net)
    made.load_state_dict(state_dict(net, values))
    return made


def _copied(net: Any) -> Any:
    try:
        return copy.deepcopy(net)
    except RuntimeError as error:
        raise FedaxError(
            f"PyTorch cannot copy {type(net).__name__}: where it uses torch.nn.utils.weight_norm, take that of "
            "torch.nn.utils.parametrizations"
        ) from error


def saved(net: Any, params: Any, state: Any, *, known: bool = False) -> bytes:
    """A state dict as `torch.save` writes it.

    net: the module, whose other parameters and buffers go along; None where it is not at hand, and only what was
        trained, kept frozen or changed is written. known: whether the parameters are a PyTorch module's all the same.
    """
    torch, net = installed(), getattr(net, "net", net)  # of a TorchModel its module
    if not (isinstance(net, torch.nn.Module) if net is not None else known and isinstance(params, dict)):
        raise FedaxError("the model is no PyTorch module, so that no state dict can be made of it")
    values = {**params, **(state or {})}
    file = io.BytesIO()
    torch.save({k: as_tensor(v) for k, v in values.items()} if net is None else state_dict(net, values), file)
    return file.getvalue()


def reset(net: Any, seed: int) -> Any:
    """A copy of the module with weights drawn by its layers, the children before the module that has them."""
    torch = installed()
    fresh = _copied(net)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        for name, module in reversed(list(fresh.named_modules())):
            draw = getattr(module, "reset_parameters", None) or getattr(module, "_reset_parameters", None)
            if draw is not None:
                draw()
            elif any(p.requires_grad for p in module.parameters(recurse=False)):
                raise FedaxError(
                    f"init='reset': {name or 'the module'} ({type(module).__name__}) has parameters of its own and no "
                    "reset_parameters() that would draw them: add it, or take init='module'"
                )
    return fresh
