"""What torch.export loses of a module's gradients, put back or refused.

`detach`, and what is computed under `torch.no_grad`, are marked before PyTorch's decompositions drop them; a gradient
through them would be wrong without a warning. torch.export leaves out the backward of an autograd.Function, so it is
refused.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator
from typing import Any

from fedax.errors import FedaxError
from fedax.models.torch.refusals import installed


def mark_constants(program: Any) -> None:
    """Put `stop_gradient` after `detach`, and after what is computed under `torch.no_grad`."""
    torch = installed()
    modules = [module for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    for module in modules:
        for node in list(module.graph.nodes):
            if str(node.target) == "aten.detach.default" and not _is_written_to(node):
                node.target = _stop_gradient()
            elif str(node.target) == "wrap_with_set_grad_enabled" and node.args[0] is False:
                for part in [user for user in node.users if user.target is operator.getitem]:
                    with module.graph.inserting_after(part):
                        marked = module.graph.call_function(_stop_gradient(), (part,))
                    marked.meta = dict(part.meta)
                    part.replace_all_uses_with(marked, delete_user_cb=lambda user, own=marked: user is not own)
        module.recompile()


def _is_written_to(node: Any) -> bool:
    """Whether the forward changes a detached tensor in place, and so the one that it was detached from."""
    users = [user.target for user in node.users if user.args and user.args[0] is node]
    return any(getattr(target, "_schema", None) is not None and target._schema.is_mutable for target in users)


@functools.cache
def _stop_gradient() -> Any:
    """An operation of our own that PyTorch's decompositions leave as it is."""
    torch = installed()

    def forward(x: Any) -> Any:
        return x.clone()

    forward.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    made = torch.library.custom_op("fedax::stop_gradient", forward, mutates_args=())
    made.register_fake(torch.empty_like)
    return torch.ops.fedax.stop_gradient.default


@contextlib.contextmanager
def inference_without_gradients() -> Iterator[None]:
    """Let `torch.inference_mode` in the forward be `torch.no_grad`, which torch.export sees."""
    torch = installed()
    kind = torch.inference_mode
    own = kind.__enter__, kind.__exit__

    def enter(context: Any) -> None:
        context.before = torch.is_grad_enabled()
        torch._C._set_grad_enabled(context.before and not context.mode)

    def leave(context: Any, *error: Any) -> None:
        torch._C._set_grad_enabled(context.before)

    kind.__enter__, kind.__exit__ = enter, leave
    try:
        yield
    finally:
        kind.__enter__, kind.__exit__ = own


@contextlib.contextmanager
def own_gradients_refused(net: Any) -> Iterator[None]:
    """Refuse a forward with an autograd.Function of one's own: torch.export would lose its backward."""

    def refusal(name: str) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            raise FedaxError(
                f"the forward of {type(net).__name__} calls {name}, an autograd.Function, whose backward torch.export "
                "leaves out: write it with operations that have the gradient you want, and .detach()"
            )

        return staticmethod(forward)

    waiting, own = [installed().autograd.Function], {}
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if "forward" in vars(cls) and cls.__module__.partition(".")[0] != "torch":
            own[cls] = vars(cls)["forward"]
    try:
        for cls in own:
            cls.forward = refusal(cls.__name__)
        yield
    finally:
        for cls, forward in own.items():
            cls.forward = forward
