"""Audits of objective perturbation on adversarial data.

The power depends on the data. The gradient of a record approaches its bound L only if the other
records drive theta to a point at which its response is very unlikely. The gradients of two such
records are nearly opposite only if their features are, while theta must fit both. Features at an
angle of about 150 degrees, with many fixed records in favour of both, reach 97% of the
sensitivity 2 L. A random data set reaches so little that a factor of two is not detected.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_gym import validation
from dpb_gym.audits.audit_report import AuditReport
from dpb_gym.audits.distinguisher import audit_scores
from dpb_gym.audits.likelihood_ratio import Tap
from dpb_gym.privacy.curator import Curator
from dpb_gym.privacy.guarantee import Guarantee
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.objective_perturbation import ObjectivePerturbation
from dpb_gym.privacy.releasers.minimiser import LossMinimiser
from dpb_gym.validation import FloatArray

ANGLE = 150.0
FROZEN = 100_000


@dataclass(frozen=True)
class ChoiceData:
    """Multinomial-logit records with an outside option, with multiplicities.

    The logistic model is the case of one item: features ``zeta phi``, chosen or not.

    Attributes:
        items: Features of the offered items ``(n, K, d)``.
        chosen: Position of the chosen item, -1 for none ``(n,)``.
        counts: Multiplicity of each record ``(n,)``.
    """

    items: FloatArray
    chosen: tuple[int, ...]
    counts: tuple[int, ...]

    def derivatives(self, theta: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return summed loss ``(m,)``, gradient ``(m, d)``, Hessian ``(m, d, d)`` at m points."""
        m, d = theta.shape
        value, gradient, hessian = np.zeros(m), np.zeros((m, d)), np.zeros((m, d, d))
        for x, chosen, times in zip(self.items, self.chosen, self.counts):
            utility = theta @ x.T
            top = np.maximum(utility.max(axis=1), 0.0)
            weight = np.exp(utility - top[:, None])
            total = np.exp(-top) + weight.sum(axis=1)
            p = weight / total[:, None]
            mean = p @ x
            picked = utility[:, chosen] if chosen >= 0 else 0.0
            value += times * (top + np.log(total) - picked)
            gradient += times * (mean - (x[chosen] if chosen >= 0 else 0.0))
            second = np.einsum("mk,ki,kj->mij", p, x, x)
            hessian += times * (second - mean[:, :, None] * mean[:, None, :])
        return value, gradient, hessian


def hostile_choices(frozen: int = FROZEN) -> tuple[ChoiceData, ChoiceData]:
    """Return neighbouring data sets for the multinomial logit, features in the unit ball (L = 2).

    Slates {x, -x} and {x', -x'}; the fixed customers bought x and x', the target bought -x in
    the first data set and -x' in the second.
    """
    x, other = _at_angle()
    slates = np.stack([np.stack([v, -v]) for v in (x, other)])
    return _neighbours(slates, 1, frozen)


def curved_choices(items: int = 16) -> tuple[ChoiceData, ChoiceData]:
    """Return neighbouring data sets of one record, which reveal too small a ridge.

    The target met items x and -x in the first data set, and items without features in the second.
    Only the first record has curvature, which concentrates the minimiser near 0. There the ratio
    of the densities is that of the Jacobians, up to (ridge + 1) / ridge.
    """
    slate = np.tile([[1.0, 0.0], [-1.0, 0.0]], (items // 2, 1))
    one, other = (ChoiceData(part[None], (0,), (1,)) for part in (slate, 0.0 * slate))
    return one, other


def hostile_demand(zeta: float = 4.0, frozen: int = FROZEN) -> tuple[ChoiceData, ChoiceData]:
    """Return two neighbouring data sets for logistic demand with link scale zeta (L = zeta).

    The fixed customers bought at both features, the target did not buy.
    """
    x, other = _at_angle()
    return _neighbours(zeta * np.stack([x, other])[:, None, :], -1, frozen)


def _at_angle() -> tuple[FloatArray, FloatArray]:
    half = math.radians(ANGLE) / 2
    x = np.array([math.cos(half), math.sin(half)])
    return x, x * [1.0, -1.0]


def _neighbours(slates: FloatArray, target: int, counts: int) -> tuple[ChoiceData, ChoiceData]:
    """Return both data sets: fixed customers bought the first item of both slates."""
    one, other = (
        ChoiceData(np.concatenate([slates, slates[i : i + 1]]), (0, 0, target), (counts, counts, 1))
        for i in range(2)
    )
    return one, other


def audit_objective(
    plan: ObjectivePerturbation,
    worlds: Sequence[ChoiceData],
    *,
    claimed: Guarantee | None = None,
    runs: int = 2000,
    seed: int = 0,
    **said: Any,
) -> AuditReport:
    """Audit a plan on two neighbouring data sets, with 2 x `runs` private minimisers.

    Args:
        plan: Ridge, noise and cost of one release.
        worlds: Two data sets that differ in one record, e.g. `hostile_choices`.
        claimed: The claim; by default the cost that the plan charges.
        runs: Runs in each world.
        seed: Seed of the noise.
        **said: See `audit_scores`: `subject`, `confidence`.
    """
    validation.integer("runs", runs, 1)
    scores, outputs, guarantee = [], [], claimed
    for world, data in enumerate(worlds):
        noise = NoiseSource.from_seed([seed, world], runs)
        curator = Curator("rho=1", ("joint", "user-round"), noise=noise)
        curator.as_printed("audit of a plan")
        releaser = _Minimiser(curator, plan.dim, calibration=plan, data=data)
        tap = Tap(releaser, np.full(runs, 1.0 - 2.0 * world))
        tap.other.data = worlds[1 - world]
        outputs.append(releaser.release())
        scores.append(tap.law()[0])
        guarantee = curator.guarantee if claimed is None else claimed
    points = np.concatenate(outputs)
    gap = worlds[0].derivatives(points)[1] - worlds[1].derivatives(points)[1]
    reached = f"gradients differ by {float(np.median(np.sqrt((gap**2).sum(axis=1)))):.4g}"
    said = {"subject": "objective perturbation", **said}
    said["details"] = {"sensitivity": f"{reached}, of {plan.event.sensitivity:.4g} at most"}
    return audit_scores(scores[0], scores[1], guarantee, **said)


class _Minimiser(LossMinimiser):
    """Minimiser whose replicates all have the same records."""

    def __init__(self, curator: Curator, dim: int, *, data: ChoiceData, **options: Any) -> None:
        super().__init__(curator, dim, loss=data.derivatives, **options)
        self.data = data

    def _losses(self, which: NDArray[np.bool_], points: FloatArray, *out: FloatArray) -> None:
        for into, derivative in zip(out, self.data.derivatives(points[which])):
            into[which] = derivative

    def derivatives(self, theta: FloatArray) -> tuple[FloatArray, FloatArray]:
        return self.data.derivatives(theta)[1:]
