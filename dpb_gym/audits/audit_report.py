"""Report of an audit: lower bounds beside the claim."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dpb_gym import validation
from dpb_gym.audits.bounds import epsilon_bound
from dpb_gym.errors import ParameterError
from dpb_gym.files import text_template
from dpb_gym.privacy.budget import REPORT_DELTA
from dpb_gym.privacy.guarantee import Guarantee

PASS = "PASS"
FAIL = "FAIL"
NO_CLAIM = "NO CLAIM"
NO_POWER = "NO POWER"
READS_RAW = "READS RAW DATA"
LAYOUT = Path(__file__).with_name("audit_report.txt.j2")


@dataclass(frozen=True)
class Comparison:
    """A lower bound and the same quantity of the claim.

    Attributes:
        quantity: ``"mu"``, ``"rho"``, ``"eps"``, or ``"kl"``: the divergence of order 1.
        delta: For ``"eps"``: at which delta.
        bound: Lower bound on the real privacy loss.
        claim: The guarantee's value, `None` if it has none for this quantity.
    """

    quantity: str
    bound: float
    claim: float | None = None
    delta: float | None = None

    @property
    def violated(self) -> bool:
        """Whether the bound refutes the claim."""
        return self.claim is not None and self.bound > self.claim * (1 + 1e-9)

    def __str__(self) -> str:
        name = self.quantity if self.delta is None else f"eps({self.delta:g})"
        claim = "no claim" if self.claim is None else f"claimed {self.claim:.4g}"
        mark = "  <- refuted" if self.violated else ""
        return f"{name} >= {self.bound:.4g} ({claim}){mark}"


@dataclass(frozen=True)
class AuditReport:
    """Result of one audit.

    All comparisons hold jointly at the stated confidence: if the claim is true, none of them is
    violated with that probability.

    Attributes:
        subject: Name of what was audited.
        claimed: Its guarantee; `None` or non-private without one.
        runs: Runs in each of the two worlds.
        evaluated: Runs used for the bounds (the others chose the test).
        score: Name of the test statistic.
        false_positives: Evaluated runs of the first world that are classified as the second.
        false_negatives: Evaluated runs of the second world that are classified as the first.
        fpr_limit: Upper confidence limit of the false positive rate.
        fnr_limit: Upper confidence limit of the false negative rate.
        comparisons: Lower bounds beside the claim.
        parametric_mu: Bound on mu that assumes normal scores, for Gaussian mechanisms only;
            no part of the verdict.
        ceiling: Largest mu that an audit with this number of runs can show.
        confidence: Joint confidence of all bounds.
        control: Verdict of the same audit with a third of the noise; None without a control. An
            audit that does not fail its control has no power.
        interference: Whether an action, or a record of another round, changed with the raw
            feedback while releases were fixed.
        residuals: Whether the noise of the releases differs from the charged noise.
        distance: Whether records of two neighbours are further apart than is charged.
        details: Further facts: the two worlds, the attained share of the sensitivity.
        origin: Arguments and versions with which `audit` gives the same report; None if they
            cannot be written down, such as an agent that is not registered.
    """

    subject: str
    claimed: Guarantee | None
    runs: int
    evaluated: int
    score: str
    false_positives: int
    false_negatives: int
    fpr_limit: float
    fnr_limit: float
    comparisons: tuple[Comparison, ...]
    parametric_mu: float | None = None
    ceiling: float = math.inf
    confidence: float = 0.95
    control: str | None = None
    interference: bool = False
    residuals: bool = False
    distance: bool = False
    details: Mapping[str, Any] = field(default_factory=dict)
    origin: Mapping[str, Any] | None = None

    @property
    def private(self) -> bool:
        """Whether there is a claim."""
        return self.claimed is not None and self.claimed.private

    @property
    def violations(self) -> tuple[Comparison, ...]:
        """Comparisons that refute the claim."""
        return tuple(c for c in self.comparisons if c.violated)

    @property
    def verdict(self) -> str:
        """``"PASS"``; ``"FAIL"``; ``"READS RAW DATA"``; ``"NO POWER"`` if the control with a
        third of the noise passes; ``"NO CLAIM"`` without a guarantee."""
        if not self.private:
            return NO_CLAIM
        if self.interference:
            return READS_RAW
        if self.violations or self.residuals or self.distance:
            return FAIL
        return PASS if self.control in (None, FAIL) else NO_POWER

    @property
    def passed(self) -> bool:
        """Whether no bound refutes the claim."""
        return self.verdict == PASS

    @property
    def mu(self) -> float:
        """Lower bound on mu of Gaussian differential privacy."""
        return self._bound("mu")

    @property
    def rho(self) -> float:
        """Lower bound on rho of zCDP (for the orders of the claim)."""
        return self._bound("rho")

    def epsilon(self, delta: float = REPORT_DELTA) -> float:
        """Return a lower bound on epsilon at `delta` in [0, 1)."""
        validation.real("delta", delta, 0.0, 1.0, open_high=True)
        return float(epsilon_bound(self.fpr_limit, self.fnr_limit, delta))

    def _bound(self, quantity: str) -> float:
        return next(c.bound for c in self.comparisons if c.quantity == quantity)

    def leaderboard_row(self) -> dict[str, Any] | None:
        """Return ``claimed``, ``lower_bound`` (epsilon at 1e-5) and ``verdict``; `None` without a
        finite claim."""
        claimed = math.inf if self.claimed is None else self.claimed.epsilon(REPORT_DELTA)
        if not math.isfinite(claimed):
            return None
        return {"claimed": claimed, "lower_bound": self.epsilon(), "verdict": self.verdict}

    def __str__(self) -> str:
        layout = text_template(LAYOUT, trim_blocks=True)
        return layout.render(report=self, delta=REPORT_DELTA).rstrip("\n")

    def _repr_html_(self) -> str:
        from dpb_gym.report.notebook import grid

        head, *rest = str(self).split("\n")
        return grid(["", ""], [line.split(None, 1) for line in rest], head)

    def summary(self) -> dict[str, Any]:
        """Return what a certificate states of an audit, as plain JSON values.

        Numbers have nine digits, so that they are the same on another machine.
        """
        return {
            "subject": self.subject,
            "verdict": self.verdict,
            "claimed": "non-private" if self.claimed is None else str(self.claimed),
            "runs": self.runs,
            "control": self.control,
            "epsilon": float(f"{self.epsilon():.9g}"),
            "mu": float(f"{self.mu:.9g}"),
            "origin": None if self.origin is None else dict(self.origin),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values (infinite numbers as ``"inf"``); inverse of `from_dict`."""
        return _plain(self) | {
            "verdict": self.verdict,
            "claimed": None if self.claimed is None else self.claimed.to_dict(),
            "claimed_text": "non-private" if self.claimed is None else str(self.claimed),
            "comparisons": [_plain(c) for c in self.comparisons],
            "details": dict(self.details),
            "origin": None if self.origin is None else dict(self.origin),
        }

    def to_json(self, indent: int | None = None) -> str:
        """Return the report as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AuditReport:
        """Return the report of `to_dict`.

        Raises:
            ParameterError: If the data are not a report.
        """
        try:
            names = [f.name for f in fields(cls) if f.name != "origin"]
            kept = {**{name: data[name] for name in names}, "origin": data.get("origin")}
            for name in ("parametric_mu", "ceiling"):
                kept[name] = _maybe(kept[name])
            if kept["claimed"] is not None:
                kept["claimed"] = Guarantee.from_dict(kept["claimed"])
            kept["comparisons"] = tuple(
                Comparison(c["quantity"], float(c["bound"]), _maybe(c["claim"]), c["delta"])
                for c in kept["comparisons"]
            )
            return cls(**kept)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ParameterError(f"not an audit report: {error!r}") from error


def _plain(of: Any) -> dict[str, Any]:
    """Return the fields of a dataclass, infinite numbers as text."""
    values = {f.name: getattr(of, f.name) for f in fields(of)}
    infinite = {k: "inf" for k, v in values.items() if isinstance(v, float) and math.isinf(v)}
    return values | infinite


def _maybe(value: Any) -> float | None:
    return None if value is None else float(value)
