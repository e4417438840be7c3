"""A generated table of eight hospitals: who is readmitted, with coefficients that differ from hospital to hospital."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedax.data import Federation, from_table
from fedax.extras import needed

HOSPITALS = ("Alta", "Bergen", "Chur", "Dover", "Evora", "Faro", "Graz", "Hove")


def table(seed: int = 0, most: int = 400) -> Any:
    """Patients with age, stay, two laboratory values, ward and smoking; hospitals have 60 to `most` of them.

    The probability of readmission is a logistic function; each hospital's coefficients are those of all plus its own
    draw, its ages are shifted, and its share of wards differs.

    >>> table(most=60).shape
    (480, 8)
    """
    pandas = needed("pandas", "tables", "a table")

    rng = np.random.default_rng(seed)
    common, parts = np.array([0.9, 0.5, -0.8, 0.4, 0.6]), []
    for number, hospital in enumerate(HOSPITALS):
        rows = int(np.linspace(60, most, len(HOSPITALS))[number])
        own = common + rng.normal(0, 0.5, common.size)
        age, stay = rng.normal(60 + 4 * rng.normal(), 14, rows), rng.gamma(2.0, 3.0, rows)
        sodium, creatinine = rng.normal(139, 3, rows), rng.lognormal(0, 0.35, rows)
        smokes, ward = rng.random(rows) < 0.3, rng.choice(["a", "b", "c"], rows, p=rng.dirichlet([2, 2, 2]))
        inputs = [(age - 60) / 14, (stay - 6) / 4, (sodium - 139) / 3, (creatinine - 1) / 0.4, smokes - 0.3]
        ill = rng.random(rows) < 1 / (1 + np.exp(-(np.column_stack(inputs) @ own + rng.normal(0, 0.5))))
        columns = {"age": age, "stay": stay, "sodium": sodium, "creatinine": creatinine, "smokes": smokes, "ward": ward}
        parts.append(pandas.DataFrame({**columns, "readmitted": np.where(ill, "yes", "no"), "hospital": hospital}))
    return pandas.concat(parts, ignore_index=True)


def hospitals(seed: int = 0, most: int = 400) -> Federation:
    """The table, divided by hospital: 60 % of each one's rows for training, 20 % each for validation and test.

    >>> hospitals(most=60).clients
    8
    """
    return from_table(table(seed, most), label="readmitted", client="hospital", split=(0.6, 0.2, 0.2), seed=seed)
