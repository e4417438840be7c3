"""The theorems as tools: iterate bias, drift, instability, bounds, and step sizes with the theorem they come from."""

from fedax import bounds
from fedax.bounds import Bound, optimal_mixing_weight
from fedax.papers.theory.advice import Proposal, Work, advise
from fedax.papers.theory.bias import Bias, exponent, iterate_bias, sde_bias, third_derivative
from fedax.papers.theory.drift import Instance, drift, identical_clients, lower_bound_instance, normal_rows, worst_case
from fedax.papers.theory.estimate import Constants, Estimate, estimate
from fedax.papers.theory.instability import fedac_one, separation, standard_agd, unstable_objective
from fedax.papers.theory.stochastic import Stochastic, of_client, piecewise_quadratic, smooth_bend, with_noise

__all__ = [
    "Bias",
    "Bound",
    "Constants",
    "Estimate",
    "Instance",
    "Proposal",
    "Stochastic",
    "Work",
    "advise",
    "bounds",
    "drift",
    "estimate",
    "exponent",
    "fedac_one",
    "identical_clients",
    "iterate_bias",
    "lower_bound_instance",
    "normal_rows",
    "of_client",
    "optimal_mixing_weight",
    "piecewise_quadratic",
    "sde_bias",
    "separation",
    "smooth_bend",
    "standard_agd",
    "third_derivative",
    "unstable_objective",
    "with_noise",
    "worst_case",
]
