"""A problem: model, loss, regularizer, metrics; and the oracle through which a method sees it."""

from fedax.problem.problem import Problem

__all__ = ["Problem"]
