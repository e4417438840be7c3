"""Checks what a node says about itself against the experiment, and against what the server knows."""

from __future__ import annotations

import math

from fedax.flower.agreement import Setting, compare, layout_of, show
from fedax.flower.messages import Hello

PARTS = ("train", "validation", "test")


def refusal(setting: Setting, hello: Hello, max_rows: int) -> str | None:
    """Why a node cannot be a client of this run, or None.

    max_rows: the most rows of a part that a client may claim; with `weighted`, its weight.
    """
    assert setting.clients is not None
    if hello.client >= setting.clients:
        return f"its client's number is {hello.client}: it must be from 0 to {setting.clients - 1}"
    if hello.fingerprint != setting.fingerprint:
        apart = compare(hello.described, setting.described)
        return f"its experiment is {hello.fingerprint} and the server's {setting.fingerprint}: {apart}"
    return _rows(setting, hello, max_rows) or _steps(setting, hello) or _layout(setting, hello)


def _rows(setting: Setting, hello: Hello, max_rows: int) -> str | None:
    if setting.federation is not None:
        known = tuple(int(setting.federation.part(part).count[hello.client]) for part in PARTS)
        return None if hello.rows == known else f"it claims {hello.rows} rows: the experiment gives it {known}"
    if not hello.rows[0] >= 1 or max(hello.rows) > max_rows:
        return f"it claims {hello.rows} rows: it must be 1 or more to train on, and at most {max_rows} (max-rows)"
    return None


def _steps(setting: Setting, hello: Hello) -> str | None:
    """Local steps follow from the schedule and the rows."""
    if setting.local_epochs is None:
        wanted = setting.local_steps or 1
    else:
        rows = hello.rows[0]
        batch = rows if setting.batch_size is None else min(setting.batch_size, rows)
        wanted = max(1, math.ceil(setting.local_epochs * rows / batch))
    wanted = setting.slowed(wanted, hello.client)
    return None if hello.steps == wanted else f"it claims {hello.steps} local steps a round: it must be {wanted}"


def _layout(setting: Setting, hello: Hello) -> str | None:
    if setting.federation is None:
        return None
    known = layout_of(setting.federation.arrays)
    return None if hello.layout == known else f"its rows are {show(hello.layout)} and the experiment's {show(known)}"
