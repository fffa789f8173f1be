"""Verdicts: what the paired intervals say about each claim."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from dpb_gym.errors import ResultError
from dpb_gym.evaluation import metrics
from dpb_gym.papers.claims import Claim
from dpb_gym.papers.curves import Curve, same
from dpb_gym.papers.layout import Table
from dpb_gym.papers.pairing import paired_t, resample
from dpb_gym.papers.quantities import counterparts, measure, printed_in
from dpb_gym.report.model import Interval

HOLDS, CONDITIONAL, FAILS, UNDECIDED = "HOLDS", "CONDITIONAL", "FAILS", "UNDECIDED"
VERDICTS = (HOLDS, CONDITIONAL, FAILS, UNDECIDED)
NAMED = 3
"""At most so many comparisons that do not support a claim are named in its summary."""

SUPPORTED, CONTRADICTED, OPEN = "supported", "contradicted", "undecided"


@dataclass(frozen=True)
class Comparison:
    """One comparison of a claim.

    Attributes:
        variant: Value of each variant axis.
        left: What is compared, in words.
        right: With what.
        left_value: The quantity on the left, with its 95% interval.
        right_value: The same on the right.
        effect: How far the claim is met, in units of the quantity, with its paired interval;
            positive speaks for the claim.
        outcome: ``"supported"``, ``"contradicted"`` or ``"undecided"``.
        replicates: Shared replicates.
        p_value: Two-sided paired t-test of no effect; None where nothing is random.
    """

    variant: Mapping[str, Any]
    left: str
    right: str
    left_value: Interval
    right_value: Interval
    effect: Interval
    outcome: str
    replicates: int
    p_value: float | None = None

    @property
    def place(self) -> str:
        """Variant, left and right, in words."""
        parts = (self.variant_name, self.left, "against", self.right)
        return " ".join(part for part in parts if part)

    @property
    def variant_name(self) -> str:
        """The variant by its values."""
        return " ".join(_text(v) for v in self.variant.values() if v is not None)


@dataclass(frozen=True)
class Judgement:
    """A claim with everything that decides it.

    Attributes:
        claim: The claim.
        comparisons: All of them.
        problem: Why it could not be decided, None if it could.
        samples: The same claim judged with the first few replicates only, by their number.
    """

    claim: Claim
    comparisons: tuple[Comparison, ...]
    problem: str | None = None
    samples: Mapping[int, Judgement] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """HOLDS: every comparison supports it. FAILS: some contradict it, and they prevail in
        every variant. UNDECIDED: nothing supports and nothing contradicts it. CONDITIONAL:
        the rest."""
        return verdict(list(self.by_variant.values()))

    @property
    def by_variant(self) -> dict[str, list[str]]:
        """Outcomes of the comparisons of each variant, named by its values."""
        found: dict[str, list[str]] = {}
        for comparison in self.comparisons:
            found.setdefault(comparison.variant_name, []).append(comparison.outcome)
        return found

    @property
    def variants(self) -> dict[str, str]:
        """The verdict in each variant alone."""
        return {variant: verdict([outcomes]) for variant, outcomes in self.by_variant.items()}

    def count(self, outcome: str) -> int:
        """How many comparisons have this outcome."""
        return sum(comparison.outcome == outcome for comparison in self.comparisons)

    @property
    def summary(self) -> str:
        """The counts, in one line; what does not support the claim by name if it is little."""
        if self.problem is not None:
            return self.problem
        total = len(self.comparisons)
        text = f"{self.count(SUPPORTED)} of {total} comparisons support it"
        if self.count(CONTRADICTED):
            text += f", {self.count(CONTRADICTED)} contradict it"
        if self.count(OPEN):
            text += f", {self.count(OPEN)} undecided"
        others = [c for c in self.comparisons if c.outcome != SUPPORTED]
        if 0 < len(others) <= min(NAMED, total - 1):
            text += f" ({'; '.join(c.place for c in others)})"
        return text


def verdict(variants: Sequence[Sequence[str]]) -> str:
    """The verdict of comparisons' outcomes, grouped by variant; see `Judgement.verdict`."""
    outcomes = [outcome for group in variants for outcome in group]
    if outcomes and all(outcome == SUPPORTED for outcome in outcomes):
        return HOLDS
    if all(outcome == OPEN for outcome in outcomes):
        return UNDECIDED
    prevails = [group.count(SUPPORTED) > group.count(CONTRADICTED) for group in variants]
    if CONTRADICTED in outcomes and not any(prevails):
        return FAILS
    return CONDITIONAL


def name(coordinates: Mapping[str, Any]) -> str:
    """Coordinates in words, e.g. ``"rho=0.1, contexts=clip"``."""
    return ", ".join(f"{axis}={_text(v)}" for axis, v in coordinates.items() if v is not None)


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def judge(
    claim: Claim,
    curves: Sequence[Curve],
    variants: Sequence[str],
    tables: Sequence[Table] = (),
) -> Judgement:
    """Decides a claim from the curves of its figure.

    Args:
        claim: The claim.
        curves: All curves of the figure.
        variants: Axes along which the claim is judged anew.
        tables: Tables of the figure, with the paper's numbers.
    """
    try:
        comparisons = _comparisons(claim, curves, variants, tables)
    except ResultError as error:
        return Judgement(claim, (), f"not decided: {error}")
    if not comparisons:
        return Judgement(claim, (), "not decided: no curves to compare")
    return Judgement(claim, tuple(comparisons))


def _comparisons(
    claim: Claim, curves: Sequence[Curve], variants: Sequence[str], tables: Sequence[Table]
) -> list[Comparison]:
    left = [curve for curve in curves if curve.matches(claim.where)]
    if claim.value is not None:
        return [_with_number(claim, claim.value, curve, curves, variants) for curve in left]
    if claim.printed is not None:
        table = next(table for table in tables if table.id == claim.printed)
        known = [(curve, printed_in(table, curve)) for curve in left]
        return [
            _with_number(claim, cell.value, curve, curves, variants)
            for curve, cell in known
            if cell is not None
        ]
    if claim.than is not None:
        pairs = [(c, other) for c in left for other in counterparts(c, claim.than, curves)]
        axes = list(claim.than)
    else:
        assert claim.along is not None
        pairs = [(after, before) for before, after in _neighbours(left, claim.along)]
        axes = [claim.along]
    return [_with_curve(claim, a, b, axes, curves, variants) for a, b in pairs]


def _neighbours(curves: Sequence[Curve], axis: str) -> list[tuple[Curve, Curve]]:
    groups: list[list[Curve]] = []
    for curve in curves:
        if curve.axes[axis] is None:
            continue
        others = [a for a in curve.axes if a != axis]
        for group in groups:
            if all(same(curve.axes[a], group[0].axes[a]) for a in others):
                group.append(curve)
                break
        else:
            groups.append([curve])
    pairs = []
    for group in groups:
        ordered = sorted(group, key=lambda curve: curve.axes[axis])
        values = [curve.axes[axis] for curve in ordered]
        if any(same(a, b) for a, b in pairwise(values)):
            raise ResultError(f"several curves have {axis}={_text(values[0])}: give another axis")
        pairs += list(pairwise(ordered))
    return pairs


def _with_number(
    claim: Claim,
    target: float,
    curve: Curve,
    curves: Sequence[Curve],
    variants: Sequence[str],
) -> Comparison:
    quantities = [measure(curve, claim.quantity, curves)]
    found, replicates = resample(quantities)
    value = found[0]
    p_value = paired_t(quantities, lambda values: values[0] - target)
    if claim.expect == "near":
        distance = abs(value - target)
        effect = _interval(claim.tolerance - distance)
        measured = _interval(value)
        inside = abs(measured.low - target) <= claim.tolerance >= abs(measured.high - target)
        outside = min(measured.high, target + claim.tolerance) < max(
            measured.low, target - claim.tolerance
        )
        outcome = SUPPORTED if inside else CONTRADICTED if outside else OPEN
    else:
        effect = _interval(_effect(claim, value, np.full_like(value, target)))
        outcome = _outcome(claim, effect, target, replicates)
    variant, rest = _split(curve, variants)
    return Comparison(
        variant,
        name(rest),
        _text(target),
        _interval(value),
        Interval(target, target, target),
        effect,
        outcome,
        replicates,
        p_value,
    )


def _with_curve(
    claim: Claim,
    curve: Curve,
    other: Curve,
    axes: Sequence[str],
    curves: Sequence[Curve],
    variants: Sequence[str],
) -> Comparison:
    measured = [measure(c, claim.quantity, curves) for c in (curve, other)]
    (value, reference), replicates = resample(measured)
    effect = _interval(_effect(claim, value, reference))
    right = _interval(reference)
    variant, rest = _split(curve, variants)
    return Comparison(
        variant,
        name(rest),
        name({axis: other.axes[axis] for axis in axes}),
        _interval(value),
        right,
        effect,
        _outcome(claim, effect, right.mean, replicates),
        replicates,
        paired_t(measured, lambda values: values[0] - values[1]),
    )


def _effect(claim: Claim, value: Any, reference: Any) -> Any:
    """How far the claim is met: positive speaks for it."""
    slack = claim.tolerance * np.abs(reference)
    falling = claim.expect in ("falls", "below")
    return reference - value + slack if falling else value - reference + slack


def _outcome(claim: Claim, effect: Interval, reference: float, replicates: int) -> str:
    if replicates == 1:  # no interval, no evidence
        return OPEN
    if effect.low > 0:
        return SUPPORTED
    return CONTRADICTED if effect.high <= claim.least * abs(reference) else OPEN


def _interval(values: Any) -> Interval:
    if not np.isfinite(values).all():
        raise ResultError("a quantity is infinite or undefined: nothing to compare")
    centre = float(values[0])
    if len(values) == 1:
        return Interval(centre, centre, centre)
    tail = 50.0 * (1.0 - metrics.CONFIDENCE)
    low, high = np.percentile(values[1:], [tail, 100.0 - tail])
    return Interval(centre, float(min(low, centre)), float(max(high, centre)))


def _split(curve: Curve, variants: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    variant = {axis: curve.axes[axis] for axis in variants}
    return variant, {a: v for a, v in curve.axes.items() if a not in variant}
