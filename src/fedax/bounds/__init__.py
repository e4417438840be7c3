"""Every theorem's bound as a function of its constants; each gives a `Bound`: its terms, its rate, its assumptions."""

from fedax.bounds.apfl_bounds import (
    apfl_theorem_1,
    apfl_theorem_2,
    apfl_theorem_3,
    least_alpha,
    optimal_mixing_weight,
)
from fedax.bounds.base import Bound, Given, Theorem, positive
from fedax.bounds.bias_bounds import theorem_a_1, theorem_a_4, theorem_a_7, theorem_a_9
from fedax.bounds.composite_bounds import theorem_4_3, theorem_4_4, theorem_4_7
from fedax.bounds.fedac_bounds import table_3_1, theorem_3_1, theorem_3_3, theorem_b_21
from fedax.bounds.fedac_convex_bounds import theorem_b_22, theorem_b_22_rate, theorem_b_23, theorem_b_23_rate
from fedax.bounds.fedavg_bounds import (
    proposition_2_1,
    proposition_3_2,
    table_2_1,
    theorem_2_19,
    theorem_2_22,
    theorem_2_23,
    theorem_3_4,
)
from fedax.bounds.lower_bounds import theorem_2_8, theorem_2_10
from fedax.bounds.outputs import weights_2_19, weights_3_2, weights_b_18, weights_c_13
from fedax.bounds.pfedfbe_bounds import (
    pfedfbe_lemma_1,
    pfedfbe_lemma_2,
    pfedfbe_lemma_3,
    pfedfbe_lemma_4,
    pfedfbe_personal_step,
    pfedfbe_proposition_1,
    pfedfbe_theorem_1,
)
from fedax.bounds.shared_model_bounds import feddeper_theorem_1, feddeper_theorem_2, fedspeed_theorem_4_4

__all__ = [
    "Bound",
    "Given",
    "Theorem",
    "apfl_theorem_1",
    "apfl_theorem_2",
    "apfl_theorem_3",
    "feddeper_theorem_1",
    "feddeper_theorem_2",
    "fedspeed_theorem_4_4",
    "least_alpha",
    "optimal_mixing_weight",
    "pfedfbe_lemma_1",
    "pfedfbe_lemma_2",
    "pfedfbe_lemma_3",
    "pfedfbe_lemma_4",
    "pfedfbe_personal_step",
    "pfedfbe_proposition_1",
    "pfedfbe_theorem_1",
    "positive",
    "proposition_2_1",
    "proposition_3_2",
    "table_2_1",
    "table_3_1",
    "theorem_2_8",
    "theorem_2_10",
    "theorem_2_19",
    "theorem_2_22",
    "theorem_2_23",
    "theorem_3_1",
    "theorem_3_3",
    "theorem_3_4",
    "theorem_4_3",
    "theorem_4_4",
    "theorem_4_7",
    "theorem_a_1",
    "theorem_a_4",
    "theorem_a_7",
    "theorem_a_9",
    "theorem_b_21",
    "theorem_b_22",
    "theorem_b_22_rate",
    "theorem_b_23",
    "theorem_b_23_rate",
    "weights_2_19",
    "weights_3_2",
    "weights_b_18",
    "weights_c_13",
]
