"""Which method for my data? A search over the methods that fit a problem, on validation rows and an equal budget."""

from __future__ import annotations

from fedax.selection.recommendation import Recommendation
from fedax.selection.search import recommend

__all__ = ["Recommendation", "recommend"]
