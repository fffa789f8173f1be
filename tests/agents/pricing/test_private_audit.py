"""End-to-end audits of private-pricing where there is something to see.

By default most of the budget pays for private MLEs, whose verified bound an attacker cannot
exhaust (the target's gradient at the released theta is at most half of its bound), and the
target of the first round meets a random price. With the budget on the Gram matrix and price 1
from the first round on, her record moves the running sum by the whole sensitivity sqrt 2.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dpb_agents.pricing.explore_commit import ExploreCommit
from dpb_agents.pricing.private import PrivatePricing
from dpb_gym import Budget
from dpb_gym.evaluation.audit import audit

TELLING = {"explore": 0, "max_updates": 1, "share": 0.01, "growth": 1e9}
WHERE = {"env_id": "DPB/Pricing-v0", "env_kwargs": {"dim": 2}, "horizon": 32}


class PrintedSensitivity(PrivatePricing):
    """Erratum P1: Gram noise for sensitivity 1, charged as if that were true."""

    def __init__(self):
        super().__init__(**TELLING)

    def begin(self, problem, streams, curator):
        super().begin(problem, streams, curator)
        self._curator.gram._scale /= math.sqrt(2.0)


@pytest.mark.parametrize(("rho", "least"), [(0.5, 0.05), (2.0, 0.5)])
def test_the_gram_matrix_shows_its_budget_and_no_more(rho, least):
    report = audit("private-pricing", Budget.zcdp(rho), runs=1000, params=TELLING, **WHERE)
    assert report.verdict == "PASS", report
    assert "gram (ContinualSum, 32 releases, 100% of its sensitivity)" in str(report)
    assert least < report.rho < rho, report


def test_erratum_p1_end_to_end():
    report = audit(PrintedSensitivity, Budget.zcdp(2.0), runs=2000, **WHERE)
    assert report.verdict == "FAIL", report


class QuietFit(ExploreCommit):
    """Explore then commit with a sixteenth of the noise variance that it is charged for."""

    def begin(self, problem, streams, curator):
        super().begin(problem, streams, curator)
        estimator = self._curator.estimator
        estimator.plan = replace(estimator.plan, sigma=0.25 * estimator.plan.sigma)


def test_private_fits_show_part_of_their_budget():
    """Many customers who all buy drive theta to where the target's gradient is large."""
    how = {"params": {"explore": 508}, "env_kwargs": {"dim": 2}, "horizon": 512}
    report = audit("explore-commit-pricing", Budget.zcdp(2.0), runs=500, **how)
    assert report.verdict == "PASS" and 0.1 < report.rho < 2.0, report
    how = {"env_id": "DPB/Pricing-v0", "env_kwargs": {"dim": 2}, "horizon": 512}
    quiet = audit(lambda: QuietFit(explore=508), Budget.zcdp(2.0), runs=500, **how)
    assert quiet.verdict == "FAIL", quiet
