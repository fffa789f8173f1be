"""End-to-end audits of private-pricing where there is something to see.

By default most of the budget pays for private MLEs, whose bound an attacker cannot exhaust (the
target's gradient at the released theta is at most half of its bound), and the target of the first
round meets a random price. With the budget on the Gram matrix and price 1 from the first round on,
her record moves the running sum by the whole sensitivity sqrt 2.
"""

from __future__ import annotations

import math
from typing import ClassVar

import pytest

from dpb_agents.pricing.private_pricing import PrivatePricing
from dpb_gym import Budget
from dpb_gym.audits import audit
from dpb_gym.privacy.releasers.releaser import behind

TELLING = {"explore": 0, "max_updates": 1, "share": 0.01, "growth": 1e9}
WHERE = {"env_id": "DPB/Pricing-v0", "env_kwargs": {"dim": 2}, "horizon": 32}


class PrintedSensitivity(PrivatePricing):
    """Erratum P1: Gram noise for sensitivity 1, charged as if that were true."""

    protects = ("anticipating", "user-round")
    audit_params: ClassVar = {}

    def __init__(self):
        super().__init__(**TELLING)

    def begin(self, problem, streams, curator):
        super().begin(problem, streams, curator)
        curator.seal()
        behind(self._releasers.gram)._scale /= math.sqrt(2.0)


@pytest.mark.slow
@pytest.mark.parametrize(("rho", "least"), [(0.5, 0.05), (2.0, 0.5)])
def test_the_gram_matrix_shows_its_budget_and_no_more(rho, least):
    report = audit("private-pricing", Budget.zcdp(rho), runs=500, params=TELLING, **WHERE)
    assert report.verdict == "PASS" and report.control == "FAIL", report
    assert "Gram matrix of phi (Sum, 32 releases" in str(report)
    assert least < report.rho < rho, report


@pytest.mark.slow
def test_erratum_p1_end_to_end():
    """Half of the variance, seen by the divergence where the threshold test does not see it."""
    report = audit(PrintedSensitivity, Budget.zcdp(2.0), runs=2000, **WHERE)
    assert report.verdict == "FAIL", report
