"""Axes and tables as data."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dpb_gym.evaluation.suite_parts import Slug, Strict
from dpb_gym.papers.claims import Axis, Quantity, Scalar, Selector, tuples

AxisPath = Annotated[str, Field(pattern=r"^(agent|task|budget)\.[A-Za-z_][A-Za-z0-9_]*$")]


class AxisMap(Strict):
    """Where an axis has its value, and what that stands for.

    Attributes:
        path: Where the value stands; of several places the first that has one.
        values: Pairs of a value found there and the value on the axis; all others have
            none. Values stand for themselves if there are no pairs.
    """

    path: tuple[AxisPath, ...] = Field(min_length=1)
    values: tuple[tuple[Scalar, Scalar], ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if isinstance(data, dict):
            data = {**data, "path": [data["path"]]} if isinstance(data.get("path"), str) else data
            data = tuples(data, top=("path", "values"))
            if isinstance(data.get("values"), tuple):
                pairs = (tuple(p) if isinstance(p, list) else p for p in data["values"])
                data["values"] = tuple(pairs)
        return data


class PrintedCell(Strict):
    """A number of the paper.

    Attributes:
        row: Value on the table's row axis.
        column: Value on its column axis, None without one.
        value: The number.
        spread: What the paper prints behind the plus-minus, if anything.
    """

    row: Scalar
    column: Scalar | None
    value: float = Field(allow_inf_nan=False)
    spread: float | None = Field(default=None, ge=0.0, allow_inf_nan=False)


class Table(Strict):
    """A table of one quantity.

    Attributes:
        id: Unique within the figure.
        title: Heading.
        quantity: What it shows: means with standard deviations over replicates where the
            quantity is one number per replicate, else with 95% intervals.
        rows: Axis of the rows.
        columns: Axis of the columns; a single column without one.
        where: Which curves it shows.
        digits: Digits after the point.
        printed: The paper's numbers. In YAML a mapping from row to column to
            ``[value, spread]`` or value; without columns from row to those.
    """

    id: Slug
    title: str = Field(min_length=1)
    quantity: Quantity
    rows: Axis
    columns: Axis | None = None
    where: Selector = Field(default_factory=dict)
    digits: int = Field(default=1, ge=0, le=6)
    printed: tuple[PrintedCell, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("printed"), dict):
            flat = data.get("columns") is None
            cells = [
                {"row": row, "column": column, **_number(cell)}
                for row, line in data["printed"].items()
                for column, cell in ([(None, line)] if flat else _items(line))
            ]
            data = {**data, "printed": tuple(cells)}
        return tuples(data, "where")

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of all axes it uses."""
        columns = () if self.columns is None else (self.columns,)
        return (self.rows, *columns, *self.where, *(self.quantity.reference or {}))


class Study(Strict):
    """What is measured of the trained agents; see `dpb_gym.papers.studies`.

    Attributes:
        kind: ``"ope"``: off-policy estimates of the frozen agent from a uniform log.
        rounds: Rounds of that log, which follow those of the training.
        samples: How often a random policy is asked per round.
    """

    kind: Literal["ope"]
    rounds: int = Field(default=10_000, ge=2)
    samples: int = Field(default=20, ge=1)


def _items(line: Any) -> list[tuple[Any, Any]]:
    if not isinstance(line, dict):
        raise ValueError(f"printed: a row maps columns to numbers, got {line!r}")
    return list(line.items())


def _number(cell: Any) -> dict[str, Any]:
    if isinstance(cell, list) and len(cell) == 2:
        return {"value": cell[0], "spread": cell[1]}
    return {"value": cell}
