"""Columns that all tables of responses have: features of customers, and who they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from dpb_data.column_reader import Array, Column, Opened, take_columns
from dpb_data.rating_table import digest_of, encode_features, renumber
from dpb_data.table_repair import Repair


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ResponseColumns:
    """Base of the tables of customers' responses.

    Attributes:
        name: Name of the file.
        features: float64 ``(n, d)``, finite; text as one feature per level but the first.
        feature_names: d names.
        people: int64 ``(n,)``, index of the customer, or None.
        notes: What was repaired when the table was read, each with the number of rows.
        unit: Currency or percent sign of the price, or empty.
        grouped: Whether `people` numbers rows of several customers each, such as days, and no
            persons.
    """

    name: str
    features: Array
    feature_names: tuple[str, ...]
    people: Array | None = None
    notes: tuple[str, ...] = ()
    unit: str = ""
    grouped: bool = False

    def digest(self) -> str:
        """Return a hexadecimal digest of the contents; the name does not count."""
        own = (getattr(self, f.name) for f in fields(self)[7:])
        return digest_of(*own, self.features, self.feature_names, self.people)

    def __len__(self) -> int:
        return len(self.features)


def read_responses(
    source: Any,
    own: list[Column],
    features: Sequence[str],
    person: str | None,
    name: str | None,
    repair: Repair,
) -> tuple[Opened, dict[str, Array], dict[str, Any]]:
    """Open a table; read its columns `own`, and the fields of `ResponseColumns`."""
    features = [features] if isinstance(features, str) else features
    about = [Column(feature, kind="any") for feature in features]
    about += [Column(person, kind="id")] if person else []
    opened, read = take_columns(source, [*own, *about], repair)
    name = name or opened.name
    matrix = np.empty((len(read[own[0].name]), 0))
    names: tuple[str, ...] = ()
    if features:
        matrix, names = encode_features({f: read[f] for f in features}, name)
    people = renumber(person, read[person])[0] if person else None
    shared = {"features": matrix, "feature_names": names, "people": people}
    return opened, read, {"name": name, **shared}
