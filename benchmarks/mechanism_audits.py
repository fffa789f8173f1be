"""Audits of all releasers and calibrations, each on records that attain the sensitivity."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from objective_audits import audit_objective, curved_choices, hostile_choices, hostile_demand

from dpb_gym.audits import AuditReport, audit_sum
from dpb_gym.audits.releaser_audits import MakeSum
from dpb_gym.privacy.budget import Budget
from dpb_gym.privacy.curator import Curator
from dpb_gym.privacy.objective_perturbation import objective_plan
from dpb_gym.privacy.printed_calibrations import objective_cs, objective_csw
from dpb_gym.privacy.releasers.record_bounds import PSDBall

Audit = Callable[..., AuditReport]
ROUNDS = 16
CAPACITY = 4
RECORDS = 200_001
_E1, _E2 = np.array([1.0, 0.0]), np.array([0.0, 1.0])


def grams(capacity: int) -> tuple[Any, Any]:
    """Return Gram matrices of `capacity` copies of e1 and of e2, at distance
    ``sqrt(2) capacity`` (erratum A1)."""
    return capacity * np.outer(_E1, _E1), capacity * np.outer(_E2, _E2)


def mechanism_audits(rho: float = 0.5) -> dict[str, Audit]:
    """Return the audits of all releasers and calibrations, by name.

    Audits of secure noise need OpenDP and are not reproducible.

    Args:
        rho: zCDP to spend on each. Below about 0.1 two thousand runs show little.

    Returns:
        Audits as functions of ``runs`` and ``seed`` (keyword arguments).

    Example:
        >>> audits = mechanism_audits(0.5)
        >>> audits["batch sums, vectors"](runs=500).verdict
        'PASS'
    """
    budget = Budget.zcdp(rho)

    def sums(make: MakeSum, first: Any, second: Any, **options: Any) -> Audit:
        return partial(audit_sum, make, first, second, budget, **options)

    running = partial(partial, Curator.running_sum)
    rewards: dict[str, Any] = {"direction": _E1, "protects": ("central", "reward")}
    audits: dict[str, Audit] = {
        "batch sums, vectors": sums(lambda c: c.batch_sum(2, clip=1.0), _E1, -_E1),
        "batch sums, rewards": sums(
            lambda c: c.batch_sum(2, reward=(0.0, 1.0), cumulative=True), 0.0, 1.0,
            rounds=4, **rewards,
        ),
        f"batch sums, Gram matrices of {CAPACITY} items": sums(
            lambda c: c.batch_sum(symmetric=2, clip=PSDBall(CAPACITY)), *grams(CAPACITY)
        ),
        "shuffled sums, vectors": sums(
            lambda c: c.shuffled_sum(2, clip=1.0, batch=1), _E1, -_E1, rounds=4
        ),
        "batch sums, Poisson-sampled rewards (q = 0.3)": partial(
            audit_sum, lambda c: c.batch_sum(2, reward=(0.0, 1.0), sampling=0.3), 0.0, 1.0,
            Budget.approx(4 * rho, 1e-5), **rewards,
        ),
    }  # fmt: skip
    for name in ("blt", "sqrt-toeplitz", "binary-tree"):
        audits[f"running sum, {name}, vectors"] = sums(
            running(width=2, clip=1.0, mechanism=name), _E1, -_E1, rounds=ROUNDS
        )
        audits[f"running sum, {name}, Gram matrices of {CAPACITY} items"] = sums(
            running(symmetric=2, clip=PSDBall(CAPACITY), mechanism=name),
            *grams(CAPACITY), rounds=ROUNDS,
        )  # fmt: skip
    if importlib.util.find_spec("opendp") is not None:
        audits["batch sums, vectors, system noise"] = sums(
            lambda c: c.batch_sum(2, clip=1.0), _E1, -_E1, noise="system"
        )
        audits["running sum, binary-tree, vectors, system noise"] = sums(
            running(width=2, clip=1.0), _E1, -_E1,
            rounds=ROUNDS, noise="system",
        )  # fmt: skip
    audits |= _objectives(rho)
    return {name: partial(audit, subject=name) for name, audit in audits.items()}


def _objectives(rho: float) -> dict[str, Audit]:
    choice: dict[str, Any] = {"dim": 2, "gradient_bound": 2.0, "curvature": 1.0}
    demand: dict[str, Any] = {"dim": 2, "gradient_bound": 4.0, "curvature": 4.0}
    plan = partial(objective_plan, rho, records=RECORDS)
    nominal = {"epsilon": 4 * rho, "delta": 1e-5}
    csw = objective_csw(
        **nominal,
        dim=2,
        gradient_constant=4.0,
        curvature_constant=4.0,
        gradient_bound=4.0,
        curvature=4.0,
        records=RECORDS,
    )
    plans = {
        "choices, verified": plan(**choice),
        "curvature, verified": plan(**choice),
        "choices, verified for (epsilon, delta)": plan(**choice, every_order=False),
        "choices, zcdp": plan(**choice, method="zcdp"),
        "choices, as in CS (true cost)": objective_cs(rho, dim=2, rank=1, records=RECORDS),
        "demand, verified": plan(**demand),
        "demand, as in CSW (true cost)": csw,
    }
    hostile = {
        "choices": hostile_choices(), "curvature": curved_choices(), "demand": hostile_demand()
    }  # fmt: skip
    return {
        f"objective perturbation, {name}": partial(
            audit_objective, one, hostile[name.split(",")[0]]
        )
        for name, one in plans.items()
    }
