"""Every theorem's bound as a function of its constants; each gives a `Bound`: its terms, its rate, its assumptions."""

from fedax.bounds.apfl_bounds import (
    apfl_theorem_1,
    apfl_theorem_2,
    apfl_theorem_3,
    least_alpha,
    optimal_mixing_weight,
)
from fedax.bounds.base import Bound, Given, Theorem, positive
from fedax.bounds.composite_bounds import pfedfbe_theorem_1, theorem_4_3, theorem_4_4, theorem_4_7
from fedax.bounds.fedac_bounds import table_3_1, theorem_3_1, theorem_3_3, theorem_b_21
from fedax.bounds.fedavg_bounds import (
    proposition_2_1,
    table_2_1,
    theorem_2_19,
    theorem_2_22,
    theorem_2_23,
    theorem_3_4,
)
from fedax.bounds.shared_model_bounds import feddeper_theorem_1, fedspeed_theorem_4_4

__all__ = [
    "Bound",
    "Given",
    "Theorem",
    "apfl_theorem_1",
    "apfl_theorem_2",
    "apfl_theorem_3",
    "feddeper_theorem_1",
    "fedspeed_theorem_4_4",
    "least_alpha",
    "optimal_mixing_weight",
    "pfedfbe_theorem_1",
    "positive",
    "proposition_2_1",
    "table_2_1",
    "table_3_1",
    "theorem_2_19",
    "theorem_2_22",
    "theorem_2_23",
    "theorem_3_1",
    "theorem_3_3",
    "theorem_3_4",
    "theorem_4_3",
    "theorem_4_4",
    "theorem_4_7",
    "theorem_b_21",
]
