"""Verdicts on claims from paired intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from dpb_gym.errors import ResultError
from dpb_gym.papers.claims import Claim, FigureTable
from dpb_gym.papers.curves import Curve, counterparts, word, words
from dpb_gym.papers.pairing import Measured, interval, jackknife, p_value
from dpb_gym.papers.quantities import constant
from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.results.metrics import MIN_REPLICATES

HOLDS = "HOLDS"
CONDITIONAL = "CONDITIONAL"
FAILS = "FAILS"
UNDECIDED = "UNDECIDED"
NO_DIFFERENCE = "NO DIFFERENCE"
NOT_TESTED = "NOT TESTED"
VERDICTS = (HOLDS, CONDITIONAL, FAILS, NO_DIFFERENCE, UNDECIDED, NOT_TESTED)
NAMED = 3
"""Most comparisons without support that a summary names."""

OUTCOMES = SUPPORTED, CONTRADICTED, OPEN, EQUAL = (
    "supported", "contradicted", "undecided", "equal",
)  # fmt: skip
MEANING = (
    "A comparison supports a claim if its paired 95% t-interval lies on the claim's side. Both "
    "sides are equal if the interval lies within 1% (within 0.5% where percentages of rewards are "
    "compared: 0.5 points is the smallest difference that AdaPrivate's paper reports). Otherwise "
    "the interval contradicts the claim if it rules out an effect of that size. Fewer than "
    f"{MIN_REPLICATES} replicates decide nothing. HOLDS: every comparison supports the claim. "
    "FAILS: in every variant fewer comparisons support it "
    "than not, and at least as many contradict it as are equal. NO DIFFERENCE: the same, with more "
    "that are equal. CONDITIONAL: some comparisons do not support it, but in some variant at least "
    "half do. Comparisons that are undecided leave the verdict UNDECIDED if it depends on them. "
    "NOT TESTED: the run differs from what the paper states of its experiment, as in its "
    "data, horizon or protocol; the comparisons count what the run shows. A choice where the paper "
    "is silent is named, and the verdict is for that choice."
)


@dataclass(frozen=True)
class PairedComparison:
    """One comparison of a claim.

    Attributes:
        variant: Value of each variant axis.
        left: Description of the left-hand side.
        right: Description of the right-hand side.
        left_value: Quantity on the left with its 95% interval.
        right_value: Quantity on the right with its 95% interval.
        effect: Margin of the claim in units of the quantity, with its paired interval; positive
            values support the claim.
        outcome: ``"supported"``, ``"contradicted"``, ``"undecided"`` or ``"equal"``.
        replicates: Shared replicates; 0 if nothing is random.
        p_value: Two-sided paired t-test of no difference; None if nothing is random.
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
    def variant_name(self) -> str:
        """Values of the variant as text."""
        return " ".join(word(v) for v in self.variant.values() if v is not None)

    @property
    def place(self) -> str:
        """Variant, left and right as text."""
        return " ".join(x for x in (self.variant_name, self.left, "against", self.right) if x)


@dataclass(frozen=True)
class Judgement:
    """A claim with the comparisons that decide it.

    Attributes:
        claim: The claim.
        comparisons: All comparisons.
        problem: Reason why it could not be decided, or None.
        samples: The claim judged with the first replicates only, by their number.
    """

    claim: Claim
    comparisons: tuple[PairedComparison, ...]
    problem: str | None = None
    samples: Mapping[int, Judgement] = field(default_factory=dict)

    @property
    def by_variant(self) -> dict[str, list[str]]:
        """Outcomes of the comparisons by variant."""
        outcomes: dict[str, list[str]] = {}
        for comparison in self.comparisons:
            outcomes.setdefault(comparison.variant_name, []).append(comparison.outcome)
        return outcomes

    @property
    def verdict(self) -> str:
        """See `verdict`; NOT TESTED if the paper's conditions are not met."""
        return NOT_TESTED if self.claim.untested else verdict(list(self.by_variant.values()))

    @property
    def variants(self) -> dict[str, str]:
        """Verdict of each variant alone."""
        if self.claim.untested:
            return dict.fromkeys(self.by_variant, NOT_TESTED)
        return {variant: verdict([outcomes]) for variant, outcomes in self.by_variant.items()}

    @property
    def summary(self) -> str:
        """Counts in one line, naming the comparisons without support if there are few."""
        if self.problem is not None:
            return self.problem
        outcomes = [c.outcome for c in self.comparisons]
        total = len(outcomes)
        text = f"{outcomes.count(SUPPORTED)} of {total} comparisons support it"
        verbs = {CONTRADICTED: "contradict it", EQUAL: "show no difference", OPEN: "undecided"}
        for outcome, verb in verbs.items():
            if outcome in outcomes:
                text += f", {outcomes.count(outcome)} {verb}"
        others = [c for c in self.comparisons if c.outcome != SUPPORTED]
        if 0 < len(others) <= min(NAMED, total - 1):
            text += f" ({'; '.join(c.place for c in others)})"
        few = [c.replicates for c in self.comparisons if 0 < c.replicates < MIN_REPLICATES]
        text += f"; {min(few)} replicates decide nothing" if few else ""
        if self.claim.untested:
            return f"{self.claim.untested} In this run {text}"
        return f"{text}; chosen here: {self.claim.chosen}" if self.claim.chosen else text


def verdict(variants: Sequence[Sequence[str]]) -> str:
    """Return the verdict from the outcomes of comparisons, grouped by variant.

    If every comparison is decided, the verdict is HOLDS if all support the claim. If in every
    variant fewer support it than not, it is NO DIFFERENCE if more of the others are equal than
    contradict it, else FAILS. It is CONDITIONAL if some do not support it but in some variant at
    least as many do as not. If some comparisons are undecided, the verdict is the one that every
    way of deciding them gives, and UNDECIDED if they differ. Deciding them therefore never changes
    a verdict other than UNDECIDED.
    """
    counts = [tuple(map(group.count, (SUPPORTED, CONTRADICTED, EQUAL, OPEN))) for group in variants]
    if counts and all(group[1:] == (0, 0, 0) for group in counts):
        return HOLDS
    if counts and all(s + unknown < c + e for s, c, e, unknown in counts):
        contradicted, equal, unknown = (sum(group[i] for group in counts) for i in (1, 2, 3))
        if equal > contradicted + unknown:
            return NO_DIFFERENCE
        return FAILS if contradicted >= equal + unknown else UNDECIDED
    prevails = any(s >= c + e + unknown for s, c, e, unknown in counts)
    return CONDITIONAL if prevails and any(c + e for _, c, e, _ in counts) else UNDECIDED


def judge(
    claim: Claim,
    curves: Sequence[Curve],
    variants: Sequence[str],
    tables: Sequence[FigureTable] = (),
) -> Judgement:
    """Decide a claim for each variant from all curves of its figure.

    `tables` contain the paper's numbers.
    """
    try:
        comparisons = [
            _compare(claim, curve, right, axes, curves, variants)
            for curve, right, axes in _pairs(claim, curves, tables)
        ]
    except ResultError as error:
        return Judgement(claim, (), f"not decided: {error}")
    return Judgement(
        claim, tuple(comparisons), None if comparisons else "not decided: no curves to compare"
    )


Pair = tuple[Curve, "Curve | float", tuple[str, ...]]


def _pairs(claim: Claim, curves: Sequence[Curve], tables: Sequence[FigureTable]) -> list[Pair]:
    """Return the pairs compared, a curve and a curve or number, and the axes they differ on."""
    left = [curve for curve in curves if curve.matches(claim.where)]
    if claim.value is not None:
        return [(curve, claim.value, ()) for curve in left]
    if claim.printed is not None:
        table = next(table for table in tables if table.id == claim.printed)
        cells = [(curve, table.printed_for(curve)) for curve in left]
        return [(c, own.value, ()) for c, own in cells if own and own.value is not None]
    if claim.than is not None:
        than = claim.than
        axes = tuple(claim.than)
        return [(c, other, axes) for c in left for other in counterparts(c, than, curves)]
    assert claim.along is not None
    return [(after, before, (claim.along,)) for before, after in _neighbours(left, claim.along)]


def _neighbours(curves: Sequence[Curve], axis: str) -> list[tuple[Curve, Curve]]:
    groups: dict[tuple[Any, ...], list[Curve]] = {}
    for curve in curves:
        if curve.axes[axis] is not None:
            rest = tuple(v for a, v in curve.axes.items() if a != axis)
            groups.setdefault(rest, []).append(curve)
    pairs = []
    for group in groups.values():
        for before, after in pairwise(sorted(group, key=lambda curve: curve.axes[axis])):
            if before.axes[axis] == after.axes[axis]:
                at = word(before.axes[axis])
                raise ResultError(f"several curves have {axis}={at}: give another axis")
            pairs.append((before, after))
    return pairs


def _compare(
    claim: Claim,
    curve: Curve,
    right: Curve | float,
    axes: Sequence[str],
    curves: Sequence[Curve],
    variants: Sequence[str],
) -> PairedComparison:
    against: Measured
    if isinstance(right, Curve):
        against = claim.quantity.of(right, curves)
        description = words({axis: right.axes[axis] for axis in axes})
    else:
        against = constant(right)
        description = word(right)
    (value, reference), replicates = jackknife(claim.quantity.of(curve, curves), against)
    left = interval(value, replicates)
    other = interval(reference, replicates)
    near = claim.expect == "near"
    # positive values support the claim
    ahead = reference - value if claim.expect in ("falls", "below") else value - reference
    margin = (
        claim.tolerance - np.abs(ahead) if near else ahead + claim.tolerance * np.abs(reference)
    )
    effect = interval(margin, replicates)
    if 0 < replicates < MIN_REPLICATES:
        outcome = OPEN
    elif near:
        outcome = _near(left, other.mean, claim.tolerance)
    elif effect.low > 0:
        outcome = SUPPORTED
    else:
        # A claim with a tolerance says itself which miss counts.
        least = 0.0 if claim.tolerance else claim.least * abs(other.mean)
        apart = interval(ahead, replicates)
        if not claim.tolerance and -least <= apart.low and apart.high <= least:
            outcome = EQUAL
        else:
            outcome = CONTRADICTED if effect.high <= least else OPEN
    return PairedComparison(
        variant={axis: curve.axes[axis] for axis in variants},
        left=words({a: v for a, v in curve.axes.items() if a not in variants}),
        right=description,
        left_value=left,
        right_value=other,
        effect=effect,
        outcome=outcome,
        replicates=replicates,
        p_value=p_value(value - reference),
    )


def _near(value: Interval, target: float, tolerance: float) -> str:
    if target - tolerance <= value.low and value.high <= target + tolerance:
        return SUPPORTED
    apart = value.high < target - tolerance or value.low > target + tolerance
    return CONTRADICTED if apart else OPEN
