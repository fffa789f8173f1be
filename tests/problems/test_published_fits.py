"""Fits of published choice data beside published estimates and independent maximum likelihood.

Published: Biogeme's example 1a on Swissmetro (biogeme.epfl.ch), whose coefficients of cost, time
and the constants an independent optimiser reproduces; the mlogit package's conditional logit of the
electricity data. The data are not part of the repository.
"""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import dpb_data
from dpb_gym.problems.logged import LoggedAssortment

FOLDER = Path(os.environ.get("DPB_DATA") or "nowhere") / "choice"
pytestmark = [
    pytest.mark.real_data("choice"),
    pytest.mark.skipif(not FOLDER.exists(), reason="the choice data are not here (set DPB_DATA)"),
]
BIOGEME = {"cost": -1.083790, "time": -1.277859, "TRAIN": -0.701187, "CAR": -0.154633}
MLOGIT = {
    "pf": -0.6252,
    "cl": -0.1083,
    "loc": 1.4422,
    "wk": 0.9955,
    "tod": -5.4628,
    "seas": -5.8400,
}


def lines(name: str) -> list[dict[str, str]]:
    with gzip.open(FOLDER / name, "rt") as file:
        return list(csv.DictReader(file))


def conditional(x: Any, offered: Any, took: Any) -> tuple[Any, Any]:
    """Return the maximum-likelihood coefficients of a conditional logit and standard errors.

    Args:
        x: Attributes ``(n, m, k)``.
        offered: Mask ``(n, m)``.
        took: Chosen alternative ``(n,)``.
    """

    def chances(b: Any) -> Any:
        utility = np.where(offered, x @ b, -np.inf)
        weight = np.exp(utility - utility.max(axis=1, keepdims=True))
        return weight / weight.sum(axis=1, keepdims=True)

    def loss(b: Any) -> Any:
        p = chances(b)
        slope = np.einsum("nm,nmk->k", p, x) - x[np.arange(len(x)), took].sum(axis=0)
        return -float(np.log(p[np.arange(len(x)), took]).sum()), slope

    best = minimize(loss, np.zeros(x.shape[2]), jac=True, method="BFGS", options={"gtol": 1e-6}).x
    p = chances(best)
    mean = np.einsum("nm,nmk->nk", p, x)
    information = np.einsum("nm,nmk,nml->kl", p, x, x) - mean.T @ mean
    return best, np.sqrt(np.diag(np.linalg.inv(information)))


def in_units(problem: LoggedAssortment, name: str) -> float:
    """Return the coefficient of an attribute in the units of the file."""
    low, high = problem.bounds[name]
    fitted = dict(zip(problem.fit.names, problem.fit.coefficients))[name]
    return float(fitted / (high - low))  # relative attributes of twice the scale are halved


def test_swissmetro_has_the_coefficients_of_biogeme() -> None:
    names = ("TRAIN", "SM", "CAR")
    table: dict[str, list[Any]] = {k: [] for k in ("set", "alt", "took", "cost", "time")}
    for s, row in enumerate(lines("swissmetro.csv.gz")):
        if row["PURPOSE"] not in "13" or row["CHOICE"] == "0":
            continue
        for k, name in enumerate(names):
            if row[f"{name}_AV"] != "1" or (name != "SM" and row["SP"] == "0"):
                continue
            paid = float(row[f"{name}_CO"]) * (name == "CAR" or row["GA"] == "0")
            values = (s, name, int(row["CHOICE"] == str(k + 1)), paid / 100)
            for key, value in zip(table, (*values, float(row[f"{name}_TT"]) / 100)):
                table[key].append(value)
    columns = {"case": "set", "item": "alt", "chosen": "took", "features": ["cost", "time"]}
    choices = dpb_data.choices(table, **columns)
    assert choices.n_sets == 6768
    problem = LoggedAssortment(choices, outside="SM", revenue="cost")
    for name in ("cost", "time"):
        assert in_units(problem, name) == pytest.approx(BIOGEME[name], abs=0.02)
    effect = problem.effects["cost"]
    assert effect.plain == pytest.approx(BIOGEME["cost"], abs=0.002)
    assert effect.plain_error == pytest.approx(0.0518, abs=0.001)  # Biogeme's standard error
    assert problem.doubts == ()
    named = dict(zip(problem.fit.names, problem.fit.plain))  # type: ignore[arg-type]
    # attributes relative to an item have no centre, so the constants are those of the file
    for name in ("TRAIN", "CAR"):
        assert named[f"is {name}"] == pytest.approx(BIOGEME[name], abs=0.01)


def test_electricity_has_the_coefficients_of_mlogit() -> None:
    rows = lines("electricity.csv.gz")
    names = list(MLOGIT)
    x = np.array([[float(row[name]) for name in names] for row in rows]).reshape(-1, 4, 6)
    took = np.array([row["choice"] == "TRUE" for row in rows]).reshape(-1, 4).argmax(axis=1)
    best, errors = conditional(x, np.ones((len(x), 4), bool), took)
    np.testing.assert_allclose(best, list(MLOGIT.values()), atol=6e-4)
    # ours has a constant per place in the list, which mlogit's has not
    table = dpb_data.load_choices(FOLDER / "electricity.csv.gz")
    problem = LoggedAssortment(table, outside=4, revenue="pf")
    for name, value, error in zip(names, best, errors):
        assert in_units(problem, name) == pytest.approx(value, abs=1.5 * error), name
    effect = problem.effects["pf"]
    assert effect.interval[0] < MLOGIT["pf"] < effect.interval[1]
    assert effect.error > errors[0], "of persons with up to 12 choices each"
    assert problem.doubts == ()


@pytest.mark.slow
@pytest.mark.parametrize("income", [False, True])
def test_mode_canada_has_the_coefficients_of_an_independent_fit(income: bool) -> None:
    modes, about = ["air", "bus", "car", "train"], ["cost", "ivt", "ovt", "freq"]
    rows = lines("ModeCanada.csv.gz")
    index = {case: k for k, case in enumerate(dict.fromkeys(row["case"] for row in rows))}
    n = len(index)
    x = np.zeros((n, 4, 4 + 3 + 3 * income))
    offered, took = np.zeros((n, 4), bool), np.zeros(n, int)
    for row in rows:
        s, m = index[row["case"]], modes.index(row["alt"])
        offered[s, m] = True
        x[s, m, :4] = [float(row[name]) for name in about]
        if row["alt"] != "car":
            place = [mode for mode in modes if mode != "car"].index(row["alt"])
            x[s, m, 4 + place] = 1.0
            if income:
                x[s, m, 7 + place] = float(row["income"]) / 10
        if row["choice"] == "1":
            took[s] = m
    usable = offered[:, 2] & (offered.sum(axis=1) > 1)
    best, errors = conditional(x[usable], offered[usable], took[usable])
    table = dpb_data.choices(
        FOLDER / "ModeCanada.csv.gz", case="case", item="alt", chosen="choice",
        features=[*about, "income"] if income else about,
    )  # fmt: skip
    problem = LoggedAssortment(table, outside="car", revenue="cost")
    for name, value, error in zip(about, best, errors):
        assert in_units(problem, name) == pytest.approx(value, abs=0.5 * error), name
    effect = problem.effects["cost"]
    assert effect.plain == pytest.approx(best[0], abs=0.02 * errors[0])
    assert effect.plain_error == pytest.approx(errors[0], rel=0.02)
    assert problem.doubts == ()
