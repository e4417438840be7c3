"""A rewriting of graphs that saves time: it moves activations from before a pooling to after it.

An activation that never falls as its input rises commutes with the maximum, and after the pooling a quarter of its work
is left, forwards and backwards. The move needs that no other step uses the activation or the places of the maxima.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fedax.models.torch.graph import Ref, Step

POOLINGS = ("aten.max_pool2d_with_indices.default", "aten.max_pool3d_with_indices.default")
RISING = ("aten.relu.default", "aten.tanh.default", "aten.sigmoid.default")


def pooled_first(steps: Sequence[Step], results: Any) -> tuple[Step, ...]:
    """The steps with poolings before rising activations; `results` are what is looked at beside the steps."""
    by_name = {step.name: step for step in steps}
    uses = Counter(references([results, *((step.args, step.kwargs) for step in steps)]))
    maxima = {step.args[0].name: step for step in steps if step.target == "operator.getitem" and step.args[1] == 0}
    moved: dict[str, Step] = {}  # for each maximum, the activation that is moved after it
    for step in steps:
        if step.target not in POOLINGS or not isinstance(step.args[0], Ref) or uses[step.name] != 1:
            continue
        before = by_name.get(step.args[0].name)
        if before is not None and before.target in RISING and uses[before.name] == 1 and step.name in maxima:
            moved[maxima[step.name].name] = before
            by_name[step.name] = dataclasses.replace(step, args=(before.args[0], *step.args[1:]))
    gone, found = {step.name for step in moved.values()}, []
    for step in steps:
        if step.name in gone:
            continue
        if step.name in moved:
            first = dataclasses.replace(step, name=f"{step.name}_of_inputs")
            found += [first, dataclasses.replace(moved[step.name], name=step.name, args=(Ref(first.name),))]
        else:
            found.append(by_name[step.name])
    return tuple(found)


def references(argument: Any) -> Iterator[str]:
    """The names of the steps that an argument is made of.

    >>> list(references([Ref("a"), {"b": (Ref("c"), 1)}]))
    ['a', 'c']
    """
    if isinstance(argument, Ref):
        yield argument.name
    elif isinstance(argument, Mapping):
        yield from references(list(argument.values()))
    elif isinstance(argument, list | tuple):
        for part in argument:
            yield from references(part)
