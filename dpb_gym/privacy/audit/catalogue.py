"""One audit per releaser and calibration, each on the records that attain its sensitivity."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dpb_gym.privacy.audit.objective import audit_objective, hostile_choices, hostile_demand
from dpb_gym.privacy.audit.report import AuditReport
from dpb_gym.privacy.audit.sums import audit_sum
from dpb_gym.privacy.budget import Budget
from dpb_gym.privacy.calibration import calibrate_scale
from dpb_gym.privacy.checks import positive
from dpb_gym.privacy.events import PoissonGaussianEvent
from dpb_gym.privacy.ledger import Ledger
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.objective import calibrate_objective
from dpb_gym.privacy.papers import objective_cs, objective_csw
from dpb_gym.privacy.releasers.base import Releaser
from dpb_gym.privacy.releasers.bounds import PSDBall, Segment
from dpb_gym.privacy.releasers.continual import ContinualSum
from dpb_gym.privacy.releasers.gaussian import GaussianSum

Audit = Callable[..., AuditReport]
ROUNDS = 16
CAPACITY = 4
RECORDS = 200_001
_E1, _E2 = np.array([1.0, 0.0]), np.array([0.0, 1.0])


def grams(capacity: int) -> tuple[Any, Any]:
    """Gram matrices of `capacity` copies of e1 and of e2: the pair that attains
    ``sqrt(2) capacity`` (erratum A1)."""
    return capacity * np.outer(_E1, _E1), capacity * np.outer(_E2, _E2)


def mechanism_audits(rho: float = 0.5) -> dict[str, Audit]:
    """Audits of everything that releases, by name.

    Those of secure noise are there if OpenDP is; they cannot be repeated.

    Args:
        rho: zCDP to spend on each. Below about 0.1 two thousand runs show little.

    Returns:
        Functions of ``runs`` and ``seed`` (both keyword arguments) that audit.

    Example:
        >>> audits = mechanism_audits(0.5)
        >>> audits["Gaussian sum, vectors"](runs=500).verdict
        'PASS'
    """
    positive("rho", rho)
    audits: dict[str, Audit] = {
        "Gaussian sum, vectors": partial(audit_sum, _gaussian(rho, dim=2, clip=1.0), _E1, -_E1),
        "Gaussian sum, rewards": partial(
            audit_sum,
            _gaussian(rho, dim=2, clip=Segment(0.0, 1.0), cumulative=True),
            0.0,
            1.0,
            direction=_E1,
            rounds=4,
            ledger=partial(Ledger, notion="central", unit="reward"),
        ),
        f"Gaussian sum, Gram matrices of {CAPACITY} items": partial(
            audit_sum,
            _gaussian(rho, symmetric=2, clip=PSDBall(CAPACITY)),
            *grams(CAPACITY),
        ),
        "Gaussian sum, Poisson-sampled rewards (q = 0.3)": _sampled(rho),
    }
    for mechanism in ("blt", "sqrt-toeplitz", "binary-tree"):
        audits[f"continual sum, {mechanism}, vectors"] = partial(
            audit_sum, _continual(mechanism, rho, dim=2, clip=1.0), _E1, -_E1, rounds=ROUNDS
        )
        audits[f"continual sum, {mechanism}, Gram matrices of {CAPACITY} items"] = partial(
            audit_sum,
            _continual(mechanism, rho, symmetric=2, clip=PSDBall(CAPACITY)),
            *grams(CAPACITY),
            rounds=ROUNDS,
        )
    audits |= _secure(rho) | _objectives(rho)
    return {name: _named(name, audit) for name, audit in audits.items()}


def _secure(rho: float) -> dict[str, Audit]:
    """Sums with noise from the operating system's entropy, where OpenDP is installed."""
    if importlib.util.find_spec("opendp") is None:
        return {}

    def one(replicates: int, noise: NoiseSource, ledger: Ledger) -> Releaser:
        return GaussianSum(
            2, replicates, clip=1.0, rho=rho, noise="secure", ledger=ledger, horizon=1
        )

    def tree(replicates: int, noise: NoiseSource, ledger: Ledger) -> Releaser:
        return ContinualSum(
            "binary-tree",
            horizon=ROUNDS,
            dim=2,
            replicates=replicates,
            clip=1.0,
            rho=rho,
            noise="secure",
            ledger=ledger,
        )

    return {
        "Gaussian sum, vectors, secure noise": partial(audit_sum, one, _E1, -_E1),
        "continual sum, binary-tree, vectors, secure noise": partial(
            audit_sum, tree, _E1, -_E1, rounds=ROUNDS
        ),
    }


def _objectives(rho: float) -> dict[str, Audit]:
    choice: dict[str, Any] = {"dim": 2, "gradient_bound": 2.0, "curvature": 1.0}
    demand: dict[str, Any] = {"dim": 2, "gradient_bound": 4.0, "curvature": 4.0}
    plan = partial(calibrate_objective, rho, records=RECORDS)
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
    return {
        "objective perturbation, choices, verified": partial(
            audit_objective, plan(**choice), hostile_choices()
        ),
        "objective perturbation, choices, verified for all orders": partial(
            audit_objective, plan(**choice, orders="all"), hostile_choices()
        ),
        "objective perturbation, choices, zcdp": partial(
            audit_objective, plan(**choice, method="zcdp"), hostile_choices()
        ),
        "objective perturbation, choices, as in CS (true cost)": partial(
            audit_objective, objective_cs(rho, dim=2, rank=1, records=RECORDS), hostile_choices()
        ),
        "objective perturbation, demand, verified": partial(
            audit_objective, plan(**demand), hostile_demand()
        ),
        "objective perturbation, demand, as in CSW (true cost)": partial(
            audit_objective, csw, hostile_demand()
        ),
    }


def _named(name: str, audit: Audit) -> Audit:
    def run(*, runs: int = 2000, seed: int = 0) -> AuditReport:
        return audit(runs=runs, seed=seed, subject=name)

    return run


def _gaussian(rho: float, **kwargs: Any) -> Callable[[int, NoiseSource, Ledger], Releaser]:
    def make(replicates: int, noise: NoiseSource, ledger: Ledger) -> Releaser:
        return GaussianSum(replicates=replicates, noise=noise, ledger=ledger, rho=rho, **kwargs)

    return make


def _continual(
    mechanism: str, rho: float, **kwargs: Any
) -> Callable[[int, NoiseSource, Ledger], Releaser]:
    def make(replicates: int, noise: NoiseSource, ledger: Ledger) -> Releaser:
        return ContinualSum(
            mechanism,
            horizon=ROUNDS,
            replicates=replicates,
            noise=noise,
            ledger=ledger,
            rho=rho,
            **kwargs,
        )

    return make


def _sampled(rho: float, q: float = 0.3, delta: float = 1e-5) -> Audit:
    """Rewards sampled at rate q, accounted exactly at an epsilon of 4 rho."""
    budget = Budget.approx(4 * rho, delta)

    def run(**kwargs: Any) -> AuditReport:
        sigma = calibrate_scale(budget, lambda scale: [PoissonGaussianEvent(q, scale)])
        event = PoissonGaussianEvent(q, sigma)

        def make(replicates: int, noise: NoiseSource, ledger: Ledger) -> Releaser:
            return GaussianSum(
                2,
                replicates,
                clip=Segment(0.0, 1.0),
                sigma=sigma,
                event=event,
                noise=noise,
                ledger=ledger,
            )

        ledger = partial(Ledger, notion="central", unit="reward")
        return audit_sum(make, 0.0, 1.0, direction=_E1, sample=q, ledger=ledger, **kwargs)

    return run
