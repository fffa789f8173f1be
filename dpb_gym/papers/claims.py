"""Claims as data: a quantity, which curves are compared, what is expected."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dpb_gym.evaluation.suite_parts import Slug, Strict

Scalar = str | int | float | bool
Selector = dict[str, Scalar | tuple[Scalar, ...]]
Axis = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=30)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
REFERRING = (
    "relative-regret",
    "regret-drop",
    "relative-reward",
    "percent-of-reference",
    "normalised-score",
    "regret-excess",
)


class Quantity(Strict):
    """What of a curve is compared.

    Attributes:
        kind: ``"final-regret"``, ``"final-reward"``; ``"average-regret"`` (per round);
            ``"relative-regret"`` and ``"relative-reward"`` (the curve's mean over that of its
            reference), ``"regret-drop"`` (the reference's regret minus the curve's);
            ``"slope-ratio"`` (regret per round in the `late` part over that in the `early`
            part: below 1 is sublinear growth); ``"spent"`` (the true cost over the budget
            that was asked for); ``"percent-of-reference"`` (100 times the reward over that of
            the reference, replicate by replicate, as recommendation papers print it);
            ``"normalised-score"`` (1 minus the regret over that of the reference, which is
            random play: random scores 0, the oracle 1); ``"regret-excess"`` (the curve's
            regret minus that of the reference); ``"root-regret"`` (regret over sqrt(T));
            ``"reward-rate"`` (reward per round); ``"guarantee-epsilon"`` (the true epsilon,
            at the budget's delta or 1e-5); ``"recorded"`` (a number of the curve's own that a
            study recorded under `name`).
        name: Of a recorded number.
        over: Of another one, by whose mean the first one's is divided.
        reference: Picks the reference: a curve that matches this, and agrees with the curve
            on every other axis that both have; the curve itself if it is the only one.
        early: Part of the horizon, as fractions of it.
        late: The same.
    """

    kind: Literal[
        "final-regret",
        "final-reward",
        "average-regret",
        "relative-regret",
        "relative-reward",
        "regret-drop",
        "slope-ratio",
        "spent",
        "percent-of-reference",
        "normalised-score",
        "regret-excess",
        "root-regret",
        "reward-rate",
        "guarantee-epsilon",
        "recorded",
    ]
    name: str = ""
    over: str = ""
    reference: Selector | None = None
    early: tuple[Fraction, Fraction] = (0.1, 0.3)
    late: tuple[Fraction, Fraction] = (0.8, 1.0)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        return tuples({"kind": data} if isinstance(data, str) else data, "reference")

    @model_validator(mode="after")
    def _check(self) -> Quantity:
        if (self.kind in REFERRING) != (self.reference is not None):
            raise ValueError(f"{' and '.join(REFERRING)} need a reference, the others have none")
        if (self.kind == "recorded") != bool(self.name) or (self.over and not self.name):
            raise ValueError("recorded numbers, and only they, have a name")
        for name, (low, high) in (("early", self.early), ("late", self.late)):
            if low >= high:
                raise ValueError(f"{name} must be two increasing fractions, got {[low, high]}")
        return self


class Claim(Strict):
    """One claim, and how it is decided.

    The curves that match `where` are compared, each comparison by a paired bootstrap interval
    over replicates, in one of four ways: along an axis (neighbours in its order), with other
    curves (`than`), with a number (`value`), or with the numbers that the paper prints
    (`printed`).

    Attributes:
        id: Unique within the figure.
        text: The claim in our own words.
        source: Where the paper makes it.
        by: ``"paper"``, or ``"control"`` for what stands beside a claim of the paper.
        quantity: What is compared.
        where: Which curves.
        along: Axis whose neighbouring values are compared.
        than: Which curves they are compared with; may match several.
        value: Number they are compared with.
        printed: Id of a table of the figure: each curve is compared with what the paper
            prints in its place there; curves without a printed number are left out.
        expect: ``"falls"`` or ``"grows"`` with `along`; ``"below"`` or ``"above"`` with
            `than`; those or ``"near"`` with `value` and `printed`.
        tolerance: Fraction of the right-hand side by which the claim may be missed; with
            ``"near"``, the absolute distance allowed.
        least: An effect surely below this fraction of the right-hand side counts as none and
            contradicts the claim.
    """

    id: Slug
    text: str = Field(min_length=1)
    source: str = ""
    by: Literal["paper", "control"] = "paper"
    quantity: Quantity
    where: Selector = Field(default_factory=dict)
    along: Axis | None = None
    than: Selector | None = None
    value: float | None = Field(default=None, allow_inf_nan=False)
    printed: Slug | None = None
    expect: Literal["falls", "grows", "below", "above", "near"]
    tolerance: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    least: float = Field(default=0.01, ge=0.0, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        return tuples(data, "where", "than")

    @model_validator(mode="after")
    def _check(self) -> Claim:
        given = [n for n in ("along", "than", "value", "printed") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of along, than, value and printed, got {given or 'none'}"
            )
        allowed = {
            "along": ("falls", "grows"),
            "than": ("below", "above"),
            "value": ("below", "above", "near"),
            "printed": ("below", "above", "near"),
        }[given[0]]
        if self.expect not in allowed:
            raise ValueError(f"with {given[0]}, expect must be one of {', '.join(allowed)}")
        return self


def tuples(data: Any, *selectors: str, top: tuple[str, ...] = ()) -> Any:
    """YAML has lists only; strict models want tuples."""
    if not isinstance(data, dict):
        return data
    data = {
        k: tuple(v) if isinstance(v, list) and k in (*top, "early", "late") else v
        for k, v in data.items()
    }
    for name in selectors:
        if isinstance(data.get(name), dict):
            data[name] = {k: tuple(v) if isinstance(v, list) else v for k, v in data[name].items()}
    return data
