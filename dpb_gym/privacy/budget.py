"""What a user asks for: `Budget.zcdp(rho)` or `Budget.approx(epsilon, delta)`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dpb_gym.errors import BudgetError
from dpb_gym.privacy.checks import positive, probability

_NO_DIRECT_CALL = "use Budget.zcdp(rho) or Budget.approx(epsilon, delta)"


@dataclass(frozen=True, slots=True)
class Budget:
    """An upper bound on the privacy loss of one agent. No budget (`None`) means non-private.

    Build it with `Budget.zcdp` or `Budget.approx`; it is immutable, hashable and comparable.

    Attributes:
        kind: ``"zcdp"`` or ``"approx"``.
        rho: zCDP parameter (``"zcdp"`` only).
        epsilon: epsilon of (epsilon, delta)-differential privacy (``"approx"`` only).
        delta: delta of the same, in (0, 1) (``"approx"`` only).

    Example:
        >>> str(Budget.zcdp(0.5)), str(Budget.approx(1.0, 1e-5))
        ('rho=0.5', 'eps=1, delta=1e-05')
    """

    kind: str
    rho: float | None = None
    epsilon: float | None = None
    delta: float | None = None

    def __post_init__(self) -> None:
        if self.kind == "zcdp":
            if self.epsilon is not None or self.delta is not None:
                raise BudgetError(f"a zCDP budget has rho only; {_NO_DIRECT_CALL}")
            object.__setattr__(self, "rho", positive("rho", self.rho, error=BudgetError))
        elif self.kind == "approx":
            if self.rho is not None:
                raise BudgetError(f"an (epsilon, delta) budget has no rho; {_NO_DIRECT_CALL}")
            epsilon = positive("epsilon", self.epsilon, error=BudgetError)
            delta = probability("delta", self.delta, error=BudgetError)
            object.__setattr__(self, "epsilon", epsilon)
            object.__setattr__(self, "delta", delta)
        else:
            raise BudgetError(f"unknown kind of budget {self.kind!r}; {_NO_DIRECT_CALL}")

    @classmethod
    def zcdp(cls, rho: float) -> Budget:
        """zCDP with parameter `rho` (Bun & Steinke 2016).

        Raises:
            BudgetError: If `rho` is not positive and finite.
        """
        return cls("zcdp", rho=rho)

    @classmethod
    def approx(cls, epsilon: float, delta: float) -> Budget:
        """(epsilon, delta)-differential privacy.

        Raises:
            BudgetError: If `epsilon` is not positive and finite, or `delta` not in (0, 1).
        """
        return cls("approx", epsilon=epsilon, delta=delta)

    @property
    def label(self) -> str:
        """Short text for tables, e.g. ``rho=1`` or ``eps=1, delta=1e-05``."""
        if self.kind == "zcdp":
            return f"rho={self.rho:g}"
        return f"eps={self.epsilon:g}, delta={self.delta:g}"

    def __str__(self) -> str:
        return self.label

    def to_dict(self) -> dict[str, Any]:
        """The budget as plain JSON values; inverse of `from_dict`."""
        if self.kind == "zcdp":
            return {"kind": "zcdp", "rho": self.rho}
        return {"kind": "approx", "epsilon": self.epsilon, "delta": self.delta}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Budget:
        """Rebuilds a budget from `to_dict`.

        Raises:
            BudgetError: If a key is missing, unknown or out of range.
        """
        try:
            return cls(**data)
        except TypeError as error:
            raise BudgetError(
                f"a budget is {{'kind': 'zcdp', 'rho'}} or {{'kind': 'approx', 'epsilon', "
                f"'delta'}}; got {dict(data)!r}"
            ) from error
