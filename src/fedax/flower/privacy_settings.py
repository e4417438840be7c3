"""The privacy of uploads: the norm that they are clipped to, the noise on their mean, and whom the guarantee covers.

A client scales its upload down to an L2 norm of at most S, with all parts as one vector: for SCAFFOLD the changes of
the model and of the control variate together. The server adds Gaussian noise of standard deviation z S / m to the mean
of m uploads, that is z S to their sum. Every method here uploads changes, zero where there is nothing to learn, so
clipping shortens a client's pull and does not move the model; a method of one's own must do so too. What does not
depend on anybody's rows (the step sizes that a client has travelled, which mirror methods upload beside the change) is
left as it is.

The guarantee is for a client's whole data set, against everybody who sees models and not the noise: the server is
trusted. `fedax.privacy.accounting` counts it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

from fedax.errors import FedaxError, unknown
from fedax.options import check_float32
from fedax.privacy.accounting import Cohorts, Guarantee, load

FIELDS = ("clip", "noise", "delta", "cohorts")


@dataclasses.dataclass(frozen=True)
class Privacy:
    """What a federation asks of uploads.

    clip: S, the L2 norm that an upload is scaled down to, above 0.
    noise: z, the noise multiplier, from 0 on; 0 for none, and no guarantee.
    delta: of (epsilon, delta), in (0, 1); below one over the number of clients.
    cohorts: "known": drawn from the seed, which every site knows; "secret": from a secret that the server keeps.

    >>> Privacy(clip=1.0, noise=4.0).guarantee
    Guarantee(noise=4.0, delta=1e-05, cohorts='known')
    """

    clip: float
    noise: float = 0.0
    delta: float = 1e-5
    cohorts: Cohorts = "known"

    def __post_init__(self) -> None:
        _number("clip", self.clip, "above 0", lambda value: value > 0)
        _number("noise", self.noise, "from 0 on", lambda value: value >= 0)
        for name, value in {"clip": self.clip, "noise": self.noise, "clip times noise": self.clip * self.noise}.items():
            check_float32(name, value)
        _number("delta", self.delta, "above 0 and below 1", lambda value: 0 < value < 1)
        if self.cohorts not in ("known", "secret"):
            raise unknown("cohorts", self.cohorts, ["known", "secret"])

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Privacy | None:
        """From Flower's run configuration: `clip`, and with it `noise`, `delta` and `cohorts`; None without `clip`.

        >>> Privacy.of({"clip": 1.0, "noise": 2.0})
        Privacy(clip=1.0, noise=2.0, delta=1e-05, cohorts='known')
        """
        found = {name: config[name] for name in FIELDS if config.get(name)}
        if "clip" in found:
            return cls(**found)
        if "noise" in found:
            how = "it must be the norm that uploads are clipped to, of which noise is a multiple"
            raise FedaxError(f"clip is missing: {how}")
        return None

    @property
    def guarantee(self) -> Guarantee:
        """What the noise is to guarantee."""
        return Guarantee(self.noise, self.delta, self.cohorts)

    def refuse(self, *, weighted: bool) -> None:
        """Raise a FedaxError where the noise would not cover what one client can do, or could not be accounted for."""
        if weighted and self.noise:
            raise FedaxError("weighted is true: with noise it must be false, so that every client counts the same")
        if self.noise:
            load()


def _number(name: str, value: Any, allowed: str, good: Callable[[Any], bool]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not good(value):
        raise FedaxError(f"{name} is {value!r}: it must be a number {allowed}")
