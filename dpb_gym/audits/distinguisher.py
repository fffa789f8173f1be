"""Audit of a claim by two samples of outputs or scores.

Runs are split once, in order: runs that choose the test (direction of the discriminant and
threshold) do not evaluate it, so the bounds hold for any choice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.audits import bounds
from dpb_gym.audits.audit_report import AuditReport, Comparison
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import accounting
from dpb_gym.privacy.budget import REPORT_DELTA
from dpb_gym.privacy.guarantee import Guarantee
from dpb_gym.validation import FloatArray

THRESHOLD_SHARE = 0.3
FIT_SHARE = 0.3
CAUTION = 0.9995
SMALL = 1e-3
FAR = 0.5
DELTAS = (REPORT_DELTA, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.2, 0.3, 0.5)
MIN_RUNS = 50
ABOVE_ONE = np.array([1.001])
EXACT = "exact log-likelihood ratio"


class Refutable:
    """Quantities of a guarantee that an audit can refute.

    Args:
        guarantee: The claim; `None` or non-private for no claim.
    """

    def __init__(self, guarantee: Guarantee | None) -> None:
        self.guarantee = guarantee
        self.mu: float | None = None
        self.rho: float | None = None
        self.kl: float | None = None
        self.epsilons: dict[float, float | None] = dict.fromkeys(DELTAS)
        if guarantee is None or guarantee.curve is None:
            return
        self.mu = accounting.total_mu(guarantee.curve.events)
        self.rho = guarantee.rho
        # divergence increases with the order, so a bound above 1 is a bound at 1
        near = sum(float(event.rdp(ABOVE_ONE)[0]) for event in guarantee.curve.events)
        near = min(near, math.inf if self.rho is None else self.rho)
        self.kl = near if math.isfinite(near) else None
        claims = {delta: guarantee.epsilon(delta) for delta in (0.0, *DELTAS)}
        known = {d: e if math.isfinite(e) else None for d, e in claims.items()}
        self.epsilons = {d: e for d, e in known.items() if d or e is not None}

    def compare(self, fpr: float, fnr: float) -> tuple[Comparison, ...]:
        """Return every bound from two error rates beside the claim."""
        comparisons = [
            Comparison("mu", float(bounds.mu_bound(fpr, fnr)), self.mu),
            Comparison("rho", bounds.rho_bound(fpr, fnr), self.rho),
        ]
        comparisons += [
            Comparison("eps", float(bounds.epsilon_bound(fpr, fnr, delta)), claim, delta)
            for delta, claim in self.epsilons.items()
        ]
        return tuple(comparisons)

    def excess(self, fpr: FloatArray, fnr: FloatArray) -> FloatArray:
        """Return the largest bound in units of the claim; without a claim, mu."""
        if self.mu is not None:
            return bounds.mu_bound(fpr, fnr) / max(self.mu, SMALL)
        ratios = [
            bounds.epsilon_bound(fpr, fnr, delta) / max(claim, SMALL)
            for delta, claim in self.epsilons.items()
            if claim is not None
        ]
        if self.rho is not None:
            rhos = [bounds.rho_bound(a, b) for a, b in zip(fpr, fnr)]
            ratios.append(np.array(rhos) / max(self.rho, SMALL))
        return np.max(ratios, axis=0) if ratios else bounds.mu_bound(fpr, fnr)


def audit_scores(
    first: ArrayLike,
    second: ArrayLike,
    claimed: Guarantee | None,
    *,
    subject: str = "mechanism",
    score: str = EXACT,
    confidence: float = 0.95,
    details: Mapping[str, Any] | None = None,
) -> AuditReport:
    """Audit a claim by one score per run, larger where the second world is likelier.

    30% of the runs choose the threshold, the others are counted. Both error rates get upper
    Clopper-Pearson limits, from which mu, rho and epsilon are bounded; beside them the scores'
    divergence is bounded from below (`divergence_bound`). All hold together at `confidence`.

    Args:
        first: Scores of the runs in the first world, at least 50.
        second: Scores of the runs in the second world, as many.
        claimed: The claim.
        subject: Name of what is audited.
        score: Name of the score.
        confidence: Joint confidence of all bounds.
        details: Further facts for the report, plain JSON values.

    Raises:
        ParameterError: If there are too few runs, not equally many, or a score is NaN.

    Example:
        >>> import numpy as np
        >>> from dpb_gym.privacy import Composition, GaussianEvent, Guarantee
        >>> claim = Guarantee("central", "reward", curve=Composition.of(GaussianEvent(1.0, 1.0)))
        >>> rng = np.random.default_rng(0)
        >>> noise = rng.standard_normal((2, 2000))
        >>> audit_scores(noise[0], noise[1] + 1.0, claim).verdict
        'PASS'
        >>> audit_scores(0.5 * noise[0], 0.5 * noise[1] + 1.0, claim).verdict
        'FAIL'
    """
    zero = _scores(first)
    one = _scores(second)
    if zero.size != one.size:
        raise ParameterError(f"both worlds need as many runs; got {zero.size} and {one.size}")
    validation.real("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    cut = round(THRESHOLD_SHARE * zero.size)
    chosen = (zero[:cut], one[:cut])
    counted = (zero[cut:], one[cut:])
    said = {"subject": subject, "score": score, "details": details or {}}
    return _evaluate(chosen, counted, Refutable(claimed), zero.size, said, confidence)


def audit_outputs(
    first: ArrayLike | Mapping[str, ArrayLike],
    second: ArrayLike | Mapping[str, ArrayLike],
    claimed: Guarantee | None,
    *,
    confidence: float = 0.95,
    **said: Any,
) -> AuditReport:
    """Audit a claim by outputs, scored with a linear discriminant.

    30% of the runs fit the discriminant, 30% choose the threshold, 40% are counted. Given
    several named views of the outputs, one discriminant is fitted to each and one to all of
    them; the runs that choose the threshold also choose among these.

    Args:
        first: Outputs ``(runs, numbers)`` in the first world, or a mapping of such views.
        second: The same for the second world.
        claimed: See `audit_scores`, as the others.

    Raises:
        ParameterError: If there are too few runs, shapes do not fit, or an output is not finite.
    """
    zero = _views(first)
    one = _views(second)
    if zero.keys() != one.keys() or not zero:
        raise ParameterError(f"both worlds need the same views; got {[*zero]} and {[*one]}")
    lengths = {len(view) for view in (*zero.values(), *one.values())}
    runs = min(lengths)
    if len(lengths) > 1 or runs < MIN_RUNS:
        raise ParameterError(
            f"all views need equally many runs, at least {MIN_RUNS} in each world; got "
            f"{sorted(lengths)}"
        )
    if len(zero) > 1:
        zero["all"] = np.concatenate(list(zero.values()), axis=1)
        one["all"] = np.concatenate(list(one.values()), axis=1)
    claim = Refutable(claimed)
    fit = round(FIT_SHARE * runs)
    cut = round((FIT_SHARE + THRESHOLD_SHARE) * runs)
    tried: list[tuple[float, str, bounds.Samples, bounds.Samples]] = []
    for name in zero:
        weights = fit_discriminant(zero[name][:fit], one[name][:fit])
        scores = zero[name] @ weights, one[name] @ weights
        chosen = (scores[0][fit:cut], scores[1][fit:cut])
        merit = _threshold(chosen, claim)[1]
        tried.append((merit, name, chosen, (scores[0][cut:], scores[1][cut:])))
    _, name, chosen, counted = max(tried, key=lambda one: one[0])
    width = zero[name].shape[1]
    score = f"linear discriminant on {width} number{'s' if width > 1 else ''}"
    score += "" if len(zero) == 1 else f" of {name}"
    said = {"subject": "mechanism", **said, "score": score}
    return _evaluate(chosen, counted, claim, runs, said, confidence)


def fit_discriminant(first: FloatArray, second: FloatArray) -> FloatArray:
    """Return a direction in the space of outputs along which the second world has larger scores.

    Numbers that are constant within a world but differ between worlds get a very large weight. With
    many numbers and few runs the pooled correlation is shrunk towards the identity by the ratio of
    numbers to runs.

    Args:
        first: Outputs ``(n0, p)`` of the first world.
        second: Outputs ``(n1, p)`` of the second world.

    Returns:
        Weights ``(p,)``.

    Raises:
        ParameterError: If the shapes do not fit.
    """
    if first.shape[1:] != second.shape[1:]:
        raise ParameterError(
            f"both worlds need equally many numbers; got {first.shape} and {second.shape}"
        )
    gap = second.mean(axis=0) - first.mean(axis=0)
    inner = np.concatenate([first - first.mean(axis=0), second - second.mean(axis=0)])
    runs, width = inner.shape
    variance = (inner**2).mean(axis=0)
    size = np.abs(np.concatenate([first, second])).max(axis=0, initial=0.0)
    # differences by rounding are ignored; a number that is constant in the fit may vary later
    gap[np.abs(gap) <= 1e-9 * size] = 0.0
    constant = variance <= (1e-9 * size) ** 2
    scale = np.sqrt(np.where(constant, np.maximum((1e-6 * size) ** 2, 1e-300), variance))
    inner = inner / scale
    correlation = inner.T @ inner / runs
    shrink = 1e-9 if 8 * width <= runs else width / (width + runs)
    correlation[np.diag_indices(width)] += 1e-12
    target = (1 - shrink) * correlation + shrink * np.eye(width)
    weights = np.linalg.lstsq(target, gap / scale, rcond=1e-13)[0] / scale
    weights[constant & (gap == 0)] = 0.0
    longest = np.abs(weights).max(initial=0.0)
    direction: FloatArray = weights / longest if longest > 0 else weights
    return direction


def _scores(values: ArrayLike) -> FloatArray:
    scores = np.asarray(values, dtype=np.float64).ravel()
    if scores.size < MIN_RUNS:
        raise ParameterError(
            f"an audit needs at least {MIN_RUNS} runs in each world; got {scores.size}"
        )
    if np.isnan(scores).any():
        raise ParameterError("scores must not be NaN")
    return scores


def _views(outputs: ArrayLike | Mapping[str, ArrayLike]) -> dict[str, FloatArray]:
    named = outputs if isinstance(outputs, Mapping) else {"outputs": outputs}
    views = {}
    for name, value in named.items():
        view = validation.array(name, value, (None, None))
        if view.shape[1]:
            views[name] = view
    return views


def _threshold(scores: bounds.Samples, claim: Refutable) -> tuple[float, float]:
    """Return the threshold with the largest conservative excess over the claim, and the excess."""
    zero = np.sort(scores[0])
    one = np.sort(scores[1])
    values = np.unique(np.concatenate([zero, one]))
    if values.size == 1:
        return float(values[0]), 0.0
    above = zero.size - np.searchsorted(zero, values[:-1], side="right")
    below = np.searchsorted(one, values[:-1], side="right")
    # Stricter limits than in the evaluation, because the maximum over many thresholds would
    # otherwise select random tails.
    limits = [bounds.clopper_pearson_upper(k, zero.size, CAUTION) for k in (above, below)]
    merit = claim.excess(limits[0], limits[1])
    k = int(np.argmax(merit))
    if merit[k] < FAR:  # far below the claim: choose the largest mu instead
        mu = bounds.mu_bound(limits[0], limits[1])
        k = int(np.argmax(mu))
        if mu[k] == 0:
            return 0.5 * float(zero.mean() + one.mean()), 0.0
    return 0.5 * float(values[k] + values[k + 1]), float(merit[k])


def _evaluate(
    chosen: bounds.Samples,
    counted: bounds.Samples,
    claim: Refutable,
    runs: int,
    said: Mapping[str, Any],
    confidence: float,
) -> AuditReport:
    evaluated = counted[0].size
    threshold, _ = _threshold(chosen, claim)
    false_positives = int((counted[0] > threshold).sum())
    false_negatives = int((counted[1] <= threshold).sum())
    # half of the error for the two rates, half for the divergence
    level = 1.0 - 0.25 * (1.0 - confidence)
    divergence = bounds.divergence_bound(chosen, counted, 1.0 - 0.5 * (1.0 - confidence))
    fpr = float(bounds.clopper_pearson_upper(false_positives, evaluated, level))
    fnr = float(bounds.clopper_pearson_upper(false_negatives, evaluated, level))
    least = float(bounds.clopper_pearson_upper(0, evaluated, level))
    normal = None if claim.mu is None else bounds.gaussian_mu_bound(*counted, confidence)
    return AuditReport(
        **said,
        claimed=claim.guarantee,
        runs=runs,
        evaluated=evaluated,
        false_positives=false_positives,
        false_negatives=false_negatives,
        fpr_limit=fpr,
        fnr_limit=fnr,
        comparisons=(*claim.compare(fpr, fnr), Comparison("kl", divergence, claim.kl)),
        parametric_mu=normal,
        ceiling=float(bounds.mu_bound(least, least)),
        confidence=confidence,
    )
