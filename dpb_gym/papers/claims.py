"""Claims as data: a quantity, the curves compared, and the expected outcome; axes and tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from dpb_gym.errors import ResultError
from dpb_gym.papers.curves import Curve, Scalar, counterparts
from dpb_gym.papers.pairing import Measured
from dpb_gym.papers.quantities import quantity_kind
from dpb_gym.suites.schema import Many, Slug, Spec

T = TypeVar("T")
OneOrMany = Annotated[Many[T], BeforeValidator(lambda v: [v] if isinstance(v, str) else v)]
"""A tuple; a single text is read as a tuple of one."""
Selector = dict[str, Scalar | Many[Scalar]]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Axis = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=30)]


class Quantity(Spec):
    """The number of a curve that is compared; in YAML its name, or a mapping with ``kind: NAME``.

    Attributes:
        kind: Name of a registered quantity; see `dpb_gym.papers.quantities`.
        reference: Selector of the reference curve, for quantities that need one. The reference
            agrees with the curve on every other axis that both have. It is the curve itself if no
            other curve matches.
        options: Options of the quantity; in YAML next to `kind`.
    """

    kind: str
    reference: Selector | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if isinstance(data, str):
            return {"kind": data}
        if isinstance(data, dict) and "options" not in data:
            own = {key: data[key] for key in ("kind", "reference") if key in data}
            return {**own, "options": {k: v for k, v in data.items() if k not in own}}
        return data

    @model_validator(mode="after")
    def _check(self) -> Quantity:
        kind = quantity_kind(self.kind)
        if kind.reference != (self.reference is not None):
            raise ValueError(f"{self.kind} {'needs a' if kind.reference else 'has no'} reference")
        try:
            options = kind.options.model_validate(self.options)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, (self.kind, *first["loc"])))
            raise ValueError(f"{where}: {first['msg'].removeprefix('Value error, ')}") from None
        object.__setattr__(self, "options", dict(options))
        return self

    def of(self, curve: Curve, curves: Sequence[Curve]) -> Measured:
        """Return the quantity of one curve; `curves` are all curves of the figure.

        Raises:
            ResultError: If the curve has no or several references.
        """
        kind = quantity_kind(self.kind)
        if self.reference is None:
            return kind.measure(curve, **self.options)
        references = counterparts(curve, self.reference, curves)
        if not references and curve.matches(self.reference):
            references = [curve]
        if len(references) != 1:
            raise ResultError(f"{curve.label} has {len(references)} references, expected one")
        return kind.measure(curve, references[0], **self.options)


class Claim(Spec):
    """A claim and the comparisons that decide it.

    The curves that match `where` are compared, each comparison by a paired interval over
    replicates, in one of four ways: along an axis (neighbours in its order), with other curves
    (`than`), with a number (`value`), or with the numbers that the paper prints (`printed`).

    Attributes:
        id: Unique within the figure.
        text: The claim in our own words.
        source: Place of the claim in the paper.
        by: ``"paper"``, or ``"control"`` for a claim of ours that supplements one of the paper.
        quantity: Quantity compared.
        where: Selector of the curves compared.
        along: Axis whose neighbouring values are compared.
        than: Selector of the curves they are compared with; may match several.
        value: Number they are compared with.
        printed: Id of a table of the figure. Each curve is compared with the paper's number in its
            cell; curves without one are left out.
        expect: ``"falls"`` or ``"grows"`` with `along`; ``"below"`` or ``"above"`` with
            `than`; those or ``"near"`` with `value` and `printed`.
        tolerance: Fraction of the right-hand side by which the claim may be missed; with
            ``"near"``, the absolute distance allowed.
        least: Smallest relevant effect, as a fraction of the right-hand side. An interval within
            it shows no difference, and any other below it contradicts the claim. Without effect
            where there is a tolerance.
        untested: What the paper states of its experiment and the run does not meet, in a sentence.
            The verdict of such a claim is NOT TESTED. Empty if it is met; not for a control.
        chosen: What the paper leaves open and the run had to choose, with the choice. The verdict
            is for that choice. Empty: as for the figure.
    """

    id: Slug
    text: str = Field(min_length=1)
    source: str = ""
    by: Literal["paper", "control"] = "paper"
    quantity: Quantity
    where: Selector = Field(default_factory=dict)
    along: Axis | None = None
    than: Selector | None = None
    value: Finite | None = None
    printed: Slug | None = None
    expect: Literal["falls", "grows", "below", "above", "near"]
    tolerance: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    least: float = Field(default=0.01, ge=0.0, allow_inf_nan=False)
    untested: str = ""
    chosen: str = ""

    @model_validator(mode="after")
    def _check(self) -> Claim:
        if self.untested and self.by == "control":
            raise ValueError("a control is about the run itself: it has no untested")
        given = [n for n in ("along", "than", "value", "printed") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one of along, than, value and printed, got {given or 'none'}"
            )
        number = ("below", "above", "near")
        allowed = {"along": ("falls", "grows"), "than": number[:2]}.get(given[0], number)
        if self.expect not in allowed:
            raise ValueError(f"with {given[0]}, expect must be one of {', '.join(allowed)}")
        return self

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of all axes used."""
        reference = self.quantity.reference or {}
        along = (self.along,) if self.along else ()
        return (*self.where, *(self.than or {}), *reference, *along)


AxisPath = Annotated[str, Field(pattern=r"^(agent|task|budget)\.[A-Za-z_][A-Za-z0-9_]*$")]


class AxisMap(Spec):
    """Source of an axis's values; in YAML also a path alone.

    Attributes:
        path: Path of the value; the first of several paths that has one is used.
        values: Pairs of a value found there and the value on the axis; other values are dropped.
            Without pairs the values are used as found.
    """

    path: OneOrMany[AxisPath] = Field(min_length=1)
    values: Many[Annotated[tuple[Scalar, Scalar], Field(strict=False)]] = ()

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        return {"path": data} if isinstance(data, str) else data


_RANGE = re.compile(r"(\S+) to (\S+)")
_BOUND = re.compile(r"< *(\S+)")


class Printed(Spec):
    """What the paper prints in a cell: a number, a range, or an upper bound.

    In YAML a number, ``[number, spread]``, ``"LOW to HIGH"`` or ``"< HIGH"``.

    Attributes:
        value: The number; None for a range or a bound, which claims are not compared with.
        spread: The spread that the paper prints after the number.
        low: Lower end of a range.
        high: Upper end of a range, or the bound.
    """

    value: Finite | None = None
    spread: Annotated[Finite, Field(ge=0.0)] | None = None
    low: Finite | None = None
    high: Finite | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if isinstance(data, dict):
            return data
        if isinstance(data, list) and len(data) == 2:
            return {"value": data[0], "spread": data[1]}
        if not isinstance(data, str):
            return {"value": data}
        if match := _RANGE.fullmatch(data):
            low = _number(match[1])
            high = _number(match[2])
            if not low < high:
                raise ValueError(f"the lower end of {data!r} must be below the upper end")
            return {"low": low, "high": high}
        if match := _BOUND.fullmatch(data):
            return {"high": _number(match[1])}
        raise ValueError(
            f'allowed is a number, [number, spread], "LOW to HIGH" or "< HIGH": {data!r}'
        )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None


class FigureTable(Spec):
    """A table of one quantity.

    Attributes:
        id: Unique within the figure.
        title: Heading.
        quantity: Quantity shown, as means with standard deviations over replicates if it is one
            number per replicate, else with 95% intervals.
        rows: Axis of the rows.
        columns: Axis of the columns; a single column without one.
        where: Selector of the curves shown.
        digits: Decimals.
        printed: What the paper prints by row and column; the column is None without `columns`. In
            YAML a mapping from row to column to `Printed`; or from row to those.
    """

    id: Slug
    title: str = Field(min_length=1)
    quantity: Quantity
    rows: Axis
    columns: Axis | None = None
    where: Selector = Field(default_factory=dict)
    digits: int = Field(default=1, ge=0, le=6)
    printed: dict[tuple[Scalar, Scalar | None], Printed] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if not (isinstance(data, dict) and isinstance(data.get("printed"), dict)):
            return data
        cells = {}
        for row, line in data["printed"].items():
            columns = {None: line} if data.get("columns") is None else line
            if not isinstance(columns, dict):
                raise ValueError(f"printed: a row maps columns to numbers, got {line!r}")
            for column, cell in columns.items():
                cells[row, column] = cell
        return {**data, "printed": cells}

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of all axes used."""
        columns = () if self.columns is None else (self.columns,)
        return (self.rows, *columns, *self.where, *(self.quantity.reference or {}))

    def printed_for(self, curve: Curve) -> Printed | None:
        """Return what the paper prints in a curve's cell, None without it."""
        if not curve.matches(self.where):
            return None
        return self.printed.get((curve.axes[self.rows], self.columns and curve.axes[self.columns]))
