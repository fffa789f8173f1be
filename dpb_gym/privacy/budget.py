"""Privacy budgets and their text form."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import dataclass, replace
from typing import Any

from dpb_gym import portable, state, validation
from dpb_gym.errors import BudgetError, shown

REPORT_DELTA = 1e-5
"""Delta at which epsilon is stated if the budget has none."""
LARGEST_USEFUL_EPSILON = 50.0
LARGEST_USEFUL_DELTA = 1e-2
TRUSTS = ("curator", "aggregator", "shuffler", "local")
_FORMS = "'rho=0.5', 'eps=1,delta=1e-5' or 'none', with '@local' for another trust model"


@state.register
@dataclass(frozen=True, slots=True)
class Budget:
    """Upper bound on the privacy loss of one agent. No budget (`None`) means non-private.

    Create it with `Budget.zcdp`, `Budget.approx` or `Budget.parse`. It is immutable, hashable
    and comparable. Its text, ``rho=0.5`` or ``eps=1,delta=1e-5``, is exact, and the same on the
    command line, in YAML, in recipes, in Python and in labels. A pydantic field of this type
    accepts a `Budget` or its text, and is stored as text. ``@local`` behind it is the trust model.

    Attributes:
        rho: zCDP parameter, or None.
        epsilon: epsilon of (epsilon, delta)-differential privacy, or None.
        delta: delta of the same, in (0, 1), or None.
        trust: Who is trusted with raw records: ``"curator"``: the curator (not written in the
            text); ``"aggregator"``: nobody, and a secure aggregator adds up masked messages;
            ``"shuffler"``: nobody, and a shuffler permutes the bits of messages; ``"local"``:
            nobody.

    Raises:
        BudgetError: If it is neither rho alone nor epsilon and delta, out of range, or the trust
            model is unknown.

    Example:
        >>> Budget.parse("eps=1, delta=1e-5") == Budget.approx(1.0, 1e-5)
        True
        >>> str(Budget.zcdp(0.5)), str(Budget.approx(1.0, 1e-5))
        ('rho=0.5', 'eps=1,delta=1e-5')
        >>> Budget.parse("rho=0.5@local").trust
        'local'
    """

    rho: float | None = None
    epsilon: float | None = None
    delta: float | None = None
    trust: str = "curator"

    def __post_init__(self) -> None:
        given = [name for name in ("rho", "epsilon", "delta") if getattr(self, name) is not None]
        if given not in (["rho"], ["epsilon", "delta"]):
            raise BudgetError("a budget is either rho, or epsilon and delta; not both, not half")
        # 0 would be perfect privacy and 1 none: neither has a finite noise scale
        inside: dict[str, Any] = {"open_low": True, "open_high": True, "error": BudgetError}
        for name in given:
            most = 1.0 if name == "delta" else math.inf
            value = validation.real(name, getattr(self, name), 0.0, most, **inside)
            object.__setattr__(self, name, value)
        if self.trust not in TRUSTS:
            raise BudgetError(
                f"the trust model is one of {', '.join(TRUSTS)}; got {shown(self.trust)}"
            )

    @classmethod
    def zcdp(cls, rho: float) -> Budget:
        """Return a zCDP budget with parameter `rho` (Bun & Steinke 2016).

        Raises:
            BudgetError: If `rho` is not positive and finite.
        """
        return cls(rho=rho)

    @classmethod
    def approx(cls, epsilon: float, delta: float) -> Budget:
        """Return an (epsilon, delta)-differential-privacy budget.

        Raises:
            BudgetError: If `epsilon` is not positive and finite, or `delta` not in (0, 1).
        """
        return cls(epsilon=epsilon, delta=delta)

    @classmethod
    def parse(cls, text: str | Budget | None) -> Budget | None:
        """Parse ``"rho=0.5"``, ``"eps=1,delta=1e-5@local"`` or ``"none"``.

        A `Budget` or None is returned unchanged.

        Raises:
            BudgetError: If the text is anything else, or a number is out of range.
        """
        if text is None or isinstance(text, Budget):
            return text
        if not isinstance(text, str):
            raise BudgetError(f"a budget is {_FORMS}; got {shown(text)}")
        return _parsed(text)

    @staticmethod
    def text(budget: Budget | None) -> str:
        """Return the text of a budget, ``"none"`` for None."""
        return "none" if budget is None else str(budget)

    @property
    def limit(self) -> float:
        """The bound in the budget's unit: rho, or epsilon."""
        value = self.epsilon if self.rho is None else self.rho
        assert value is not None
        return value

    @property
    def kind(self) -> str:
        """``"zcdp"`` or ``"approx"``."""
        return "approx" if self.rho is None else "zcdp"

    @property
    def amount(self) -> Budget:
        """The same bound under the trusted curator, to compare budgets of all trust models."""
        return replace(self, trust="curator")

    def __str__(self) -> str:
        where = "" if self.trust == "curator" else f"@{self.trust}"
        if self.rho is not None:
            return f"rho={_number(self.rho)}{where}"
        assert self.epsilon is not None and self.delta is not None
        return f"eps={_number(self.epsilon)},delta={_number(self.delta)}{where}"

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        from pydantic_core import core_schema

        def read(value: Any) -> Budget:
            budget = cls.parse(value)
            if budget is None:
                raise BudgetError(f"a budget is needed here, 'rho=0.5' say; got {shown(value)}")
            return budget

        return core_schema.no_info_plain_validator_function(
            read, serialization=core_schema.to_string_ser_schema()
        )


def report_delta(budget: Budget | None) -> float:
    """Return the delta at which epsilon is stated: the budget's own, or `REPORT_DELTA`."""
    return REPORT_DELTA if budget is None or budget.delta is None else budget.delta


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> Budget | None:
    """Return the budget of a text, see `Budget.parse`; cached, as boards read the same few."""
    # people write spaces, capitals and epsilon in many ways, and mean the same budget
    plain = re.sub(r"\s+", "", text).lower().replace("epsilon=", "eps=")
    if plain == "none":
        return None
    plain, at, trust = plain.partition("@")
    parts = [part.partition("=")[::2] for part in plain.split(",")]
    names = sorted(name for name, _ in parts)
    if names == ["eps"] and "=" in plain:
        raise BudgetError(f"an epsilon needs its delta, e.g. 'eps=1,delta=1e-5'; got {shown(text)}")
    if names not in (["rho"], ["delta", "eps"]):
        raise BudgetError(f"a budget is {_FORMS}; got {shown(text)}")
    try:
        numbers = {name: float(number) for name, number in parts}
    except ValueError:
        raise BudgetError(f"a budget is {_FORMS}; not a number behind = in {shown(text)}") from None
    return Budget(
        numbers.get("rho"),
        numbers.get("eps"),
        numbers.get("delta"),
        trust if at else "curator",
    )


@functools.lru_cache(maxsize=1024)
def _number(value: float) -> str:
    """Return the shortest text that parses to the same number; cached, see `_parsed`."""
    text = repr(value).removesuffix(".0")
    return re.sub(r"e([+-])0*(\d)", lambda m: f"e{m[1].strip('+')}{m[2]}", text)


def check_protects(budget: Budget | str) -> Budget:
    """Return a budget that protects somebody, as advice for real customers needs.

    Raises:
        BudgetError: If it is none, or its epsilon (for rho: at delta = 1e-6) exceeds
            `LARGEST_USEFUL_EPSILON`, or delta `LARGEST_USEFUL_DELTA`.
    """
    parsed = Budget.parse(budget)
    if parsed is None:
        raise BudgetError("give a budget: the agents without one are always compared")
    epsilon = parsed.epsilon
    if parsed.rho is not None:
        # an upper bound without the accountant, as only the order of magnitude counts
        epsilon = parsed.rho + 2.0 * math.sqrt(parsed.rho * portable.log(1e6))  # Bun & Steinke 2016
    if epsilon is not None and epsilon > LARGEST_USEFUL_EPSILON:
        raise BudgetError(
            f"{parsed} protects nobody: epsilon {epsilon:.3g} allows odds to change by a factor of "
            f"e^{epsilon:.3g}; give at most epsilon {LARGEST_USEFUL_EPSILON:g}"
        )
    if parsed.delta is not None and parsed.delta > LARGEST_USEFUL_DELTA:
        raise BudgetError(
            f"{parsed} protects nobody: delta is the chance that a person's data are revealed; "
            f"give at most {LARGEST_USEFUL_DELTA:g}, less than one over the number of customers"
        )
    return parsed
