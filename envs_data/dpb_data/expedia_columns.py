"""The columns of Expedia's search files that the reader takes, and what their values may be."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpb_data.formats import shorten

NULLS = ("", "NULL")


@dataclass(frozen=True)
class Column:
    """A column that the reader takes, by its original name.

    Attributes:
        name: Original name.
        low: Least value.
        high: Largest value.
        whole: Whether values are whole numbers.
        required: Whether every file must have it.
        nullable: Whether single values may be missing.
        zero_is_unknown: Whether 0 means that the value is not known.
    """

    name: str
    low: float = 0.0
    high: float = math.inf
    whole: bool = False
    required: bool = True
    nullable: bool = True
    zero_is_unknown: bool = False

    @property
    def is_id(self) -> bool:
        """Whether values are ids: positive integers, never missing."""
        return self.whole and not self.nullable and self.low == 1.0

    @property
    def allowed(self) -> str:
        """What values may be, in words."""
        kind = "a whole number" if self.whole else "a number"
        limit = f"from {self.low:g}" + (f" to {self.high:g}" if self.high < math.inf else "")
        return f"{kind} {limit}" + (" or NULL" if self.nullable else "")

    def problem(self, text: str) -> str | None:
        """Says what is wrong with one field, or returns None."""
        value = text.strip()
        if value in NULLS:
            if self.nullable:
                return None
            return f"expected {self.name} to be {self.allowed}, found none"
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        fits = self.low <= number <= self.high and number < math.inf
        if not fits or (self.whole and not number.is_integer()):
            return f"expected {self.name} to be {self.allowed}, found {shorten(value)}"
        return None


def _id(name: str) -> Column:
    return Column(name, low=1.0, high=2.0**62, whole=True, nullable=False)


def _flag(name: str, required: bool = True, nullable: bool = True) -> Column:
    return Column(name, high=1.0, whole=True, required=required, nullable=nullable)


COLUMNS = (
    _id("srch_id"),
    _id("prop_id"),
    _id("srch_destination_id"),
    _flag("booking_bool", nullable=False),
    Column("prop_starrating", high=5.0, zero_is_unknown=True),
    _flag("prop_brand_bool"),
    Column("prop_location_score1"),
    Column("prop_log_historical_price", zero_is_unknown=True),
    Column("price_usd", zero_is_unknown=True),
    _flag("promotion_flag"),
    Column("srch_length_of_stay", low=1.0, whole=True),
    Column("srch_booking_window", whole=True),
    Column("srch_adults_count", whole=True),
    Column("srch_children_count", whole=True),
    Column("srch_room_count", whole=True),
    _flag("srch_saturday_night_bool"),
    Column("site_id", low=1.0, whole=True, required=False),
    Column("visitor_hist_starrating", high=5.0, required=False, zero_is_unknown=True),
    Column("visitor_hist_adr_usd", required=False, zero_is_unknown=True),
    Column("prop_review_score", high=5.0, required=False, zero_is_unknown=True),
    Column("position", low=1.0, whole=True, required=False, nullable=False),
    _flag("click_bool", required=False, nullable=False),
)
