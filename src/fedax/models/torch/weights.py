"""Weights from a PyTorch module to arrays, and back."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from fedax.errors import FedaxError
from fedax.models.torch.refusals import installed

Arrays = dict[str, np.ndarray]


def weights_of(net: Any) -> tuple[Arrays, Arrays, Arrays]:
    """Trained and frozen parameters and buffers, by the first of their names, in NumPy: no device is used yet."""
    named = dict(net.named_parameters())
    trained = {name: as_numpy(p) for name, p in named.items() if p.requires_grad}
    frozen = {name: as_numpy(p) for name, p in named.items() if not p.requires_grad}
    return trained, frozen, {name: as_numpy(b) for name, b in net.named_buffers()}


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


def as_tensor(array: Any, like: Any) -> Any:
    """An array's values as a tensor of another one's type."""
    values = np.asarray(array)
    wide = values.astype(np.float32) if values.dtype == jnp.bfloat16 else np.array(values)
    return installed().from_numpy(wide).to(like.dtype)


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
    made = copy.deepcopy(net)
    made.load_state_dict(state_dict(net, values))
    return made


def reset(net: Any, seed: int) -> Any:
    """A copy of the module with weights drawn by its layers, the children before the module that has them."""
    torch = installed()
    fresh = copy.deepcopy(net)
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
