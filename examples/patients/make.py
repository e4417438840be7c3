"""Generated patients of twelve hospitals: who is back within thirty days?

    python examples/patients/make.py [DIRECTORY] [ROWS]

patients.csv    20,000 rows with missing values, dates, ids and notes; 7 % are readmitted
new.csv         5,000 further rows without the label
truth.csv       their labels, to see how good the predictions are

The risk depends on eight of the columns. Hospitals differ in size, in their patients' age, in how often they are
readmitted, and in what a long stay means there. Nothing here is of real people.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas

HOSPITALS = (
    *("Bergen", "Bodo", "Drammen", "Hamar", "Kristiansand", "Lillehammer"),
    *("Molde", "Oslo", "Skien", "Stavanger", "Tromso", "Trondheim"),
)
WARDS = ("cardiology", "geriatrics", "medicine", "oncology", "surgery")
LABS = ("sodium", "potassium", "calcium", "albumin", "glucose", "platelets", "leukocytes", "bilirubin")
NOTES = ("came with family", "seen by the night shift", "sent by the general practitioner", "walks with a stick")


def patients(rows: int, seed: int) -> pandas.DataFrame:
    """A table of patients; the hospitals are the same for every seed."""
    hospitals = np.random.default_rng(7)
    shares = hospitals.dirichlet(np.full(len(HOSPITALS), 2.0)) * 0.7 + 0.3 / len(HOSPITALS)
    older, sicker, longer = (hospitals.normal(0, size, len(HOSPITALS)) for size in (4, 0.3, 0.25))
    rng = np.random.default_rng([seed, 11])
    at = rng.choice(len(HOSPITALS), rows, p=shares)
    age = np.clip(rng.normal(66 + older[at], 15), 18, 102).round()
    stay = np.ceil(rng.gamma(1.5, 3.0, rows))
    earlier = rng.poisson(0.6, rows)
    crp = rng.lognormal(2.0, 1.1, rows).round(1)
    creatinine = rng.lognormal(4.4, 0.35, rows).round()
    haemoglobin = rng.normal(13.2, 1.8, rows).round(1)
    diabetes, smokes = rng.random(rows) < 0.18, rng.random(rows) < 0.22
    ward = rng.choice(WARDS, rows, p=[0.2, 0.15, 0.35, 0.1, 0.2])
    labs = {name: rng.normal(0, 1, rows).round(3) for name in LABS}
    risk = (
        -3.62
        + sicker[at]
        + 0.030 * (age - 66)
        + (0.10 + 0.25 * longer[at]) * (stay - 4.5)
        + 0.55 * earlier
        + 0.45 * (np.log(crp) - 2)
        + 0.8 * (np.log(creatinine) - 4.4)
        - 0.20 * (haemoglobin - 13.2)
        + 0.5 * diabetes
        + 0.6 * (ward == "geriatrics")
    )
    again = rng.random(rows) < 1 / (1 + np.exp(-risk))
    days = rng.integers(0, 730, rows)
    frame = pandas.DataFrame(
        {
            "patient_id": [f"P{number:06d}" for number in rng.permutation(900_000)[:rows]],
            "hospital": np.array(HOSPITALS)[at],
            "admitted": (pandas.Timestamp("2024-01-01") + pandas.to_timedelta(days, "D")).strftime("%Y-%m-%d"),
            "ward": ward,
            "sex": rng.choice(["f", "m"], rows),
            "age": age,
            "stay_days": stay,
            "earlier_stays": earlier,
            "crp": crp,
            "creatinine": creatinine,
            "haemoglobin": haemoglobin,
            "diabetes": diabetes,
            "smokes": smokes,
            **labs,
            "country": "NO",
            "note": [f"{rng.choice(NOTES)}, bed {rng.integers(900)}, file {rng.integers(10**6)}" for _ in range(rows)],
            "readmitted": np.where(again, "yes", "no"),
        }
    )
    for name, share in (("crp", 0.12), ("creatinine", 0.08), ("haemoglobin", 0.05), ("ward", 0.01), ("albumin", 0.3)):
        frame.loc[rng.random(rows) < share, name] = None
    return frame


def write(folder: Path, rows: int = 20_000) -> None:
    """Write the three files."""
    folder.mkdir(parents=True, exist_ok=True)
    patients(rows, seed=0).to_csv(folder / "patients.csv", index=False)
    new = patients(rows // 4, seed=1)
    new.drop(columns=["readmitted"]).to_csv(folder / "new.csv", index=False)
    new[["patient_id", "readmitted"]].to_csv(folder / "truth.csv", index=False)


if __name__ == "__main__":
    given = sys.argv[1:]
    write(Path(given[0]) if given else Path(__file__).parent, int(given[1]) if len(given) > 1 else 20_000)
