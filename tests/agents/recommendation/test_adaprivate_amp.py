"""AdaPrivate-TS-Amp: privacy of sampling by quadrature, and the releases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from dpb_agents.recommendation.adaprivate import AdaPrivateAmp
from dpb_gym import make_agent, make_problem
from dpb_gym.audits import audit
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.privacy import (
    Budget,
    Composition,
    Curator,
    Guarantee,
    NoiseSource,
    PoissonGaussianEvent,
    accounting,
    amplified_sigma_ru,
)
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.streams import AgentStreams

DELTA = 1e-5
NAME = "adaprivate-amp"


def begun(budget, replicates=1, **params):
    problem = make_problem("DPB/Recommendation-v0", horizon=1000)
    agent = make_agent(NAME, **params)
    agent.set_up(problem.info, AgentStreams(range(replicates)), budget)
    return agent


def hockey_stick(q, sigma, first, second, epsilon):
    """Divergence of the sampled, noisy contributions of two rewards, by quadrature."""

    def gap(x):
        blank = (1 - q) * stats.norm.pdf(x, 0, sigma)
        one = blank + q * stats.norm.pdf(x, first, sigma)
        other = blank + q * stats.norm.pdf(x, second, sigma)
        return np.maximum(one - math.exp(epsilon) * other, 0.0)

    ends = min(0, first, second) - 12 * sigma, max(0, first, second) + 12 * sigma
    x = np.linspace(*ends, 8_001)
    return float(integrate.trapezoid(gap(x), x))


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize(("eps", "q"), [(0.5, 0.3), (1.0, 0.5), (2.0, 0.9), (5.0, 0.1)])
def test_noise_of_the_verified_calibration_is_exact(centre, eps, q):
    agent = begun(Budget.approx(eps, DELTA), sampling=q, centre=centre)
    sigma = agent.plan.sums.sigma
    worst = (0.5, -0.5) if centre else (1.0, 0.0)
    assert hockey_stick(q, sigma, *worst, eps) == pytest.approx(DELTA, rel=1e-4)
    # the guarantee is the budget, and so is the charge in the ledger
    assert agent.curator.guarantee.epsilon(DELTA) == pytest.approx(eps, rel=1e-6)
    assert agent.curator.guarantee.epsilon(DELTA) <= eps
    assert agent.curator.guarantee.unit == "reward"


def sampled(budget, reward, q):
    """Sums of a sample of rewards, calibrated."""
    curator = Curator(budget, noise=NoiseSource.from_seed(0))
    sums = curator.batch_sum(1, reward=reward, sampling=q)
    curator.seal()
    return sums, curator.ledger.entries[0].event


@settings(max_examples=30, deadline=None)
@given(
    st.floats(0.05, 1.0),
    st.floats(0.15, 3.0),
    st.floats(-0.5, 0.5),
    st.floats(-0.5, 0.5),
    st.floats(0.0, 3.0),
)
def test_no_pair_of_centred_rewards_is_worse_than_the_ends(q, sigma, first, second, epsilon):
    allowed = accounting.delta(
        Composition.of(PoissonGaussianEvent(q, sigma, 1.0, pair="symmetric")), epsilon
    )
    assert hockey_stick(q, sigma, first, second, epsilon) <= allowed * (1 + 1e-5) + 1e-9


@settings(max_examples=20, deadline=None)
@given(st.floats(0.05, 0.95), st.floats(1.0, 5.0), st.floats(1.0, 5.0), st.floats(0.0, 2.0))
def test_rewards_far_from_zero_cost_their_absolute_value(q, first, second, epsilon):
    """An excluded reward counts as 0, which lies outside 1..5: the range is no bound."""
    sums, event = sampled(Budget.approx(1.0, DELTA), (1.0, 5.0), q)
    assert event.sensitivity == 5.0
    allowed = accounting.delta(Composition.of(event), epsilon)
    assert hockey_stick(q, sums.sigma, first, second, epsilon) <= allowed * (1 + 1e-4) + 1e-9


@pytest.mark.parametrize("eps", [0.1, 0.5, 1.0, 2.0, 5.0])
@pytest.mark.parametrize("q", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_sampling_never_reduces_the_noise(eps, q):
    """Erratum R3: rescaled, the noise exceeds that without sampling."""
    budget = Budget.approx(eps, DELTA)
    amplified = sampled(budget, (0.0, 1.0), q)[0].sigma / q
    plain = make_agent("adaprivate-ts")
    plain.set_up(make_problem("DPB/Recommendation-v0", horizon=10).info, AgentStreams([0]), budget)
    assert amplified > plain.plan.sums.sigma


@pytest.mark.parametrize(
    ("q", "eps", "sigma", "true"),
    [
        (0.3, 0.5, None, 2.3),
        (0.3, 1.0, 0.343, 14.0),
        (0.3, 2.0, None, 114.0),
        (0.3, 5.0, None, 36_952.0),
        (0.5, 1.0, 0.572, 7.5),
        (0.5, 5.0, None, 13_600.0),
    ],
)
def test_the_papers_noise_is_reported_with_its_true_epsilon(q, eps, sigma, true):
    """RU, Eq. 3.6; erratum R2."""
    agent = begun(Budget.approx(eps, DELTA), sampling=q, calibration="paper")
    noise = agent.plan.sums.sigma
    if sigma is not None:
        assert noise == pytest.approx(sigma, abs=5e-4)

    def nominal(order):
        terms = [
            math.comb(order, j) * (2 * q * q / noise**2) ** (j / 2) for j in range(2, order + 1)
        ]
        return math.log1p(sum(terms)) / (order - 1) + math.log(1 / DELTA) / (order - 1)

    assert min(map(nominal, (2, 3, 4, 5, 6, 8, 16, 32, 64))) == pytest.approx(eps, rel=1e-6)
    assert agent.curator.guarantee.epsilon(DELTA) == pytest.approx(true, rel=0.02)
    assert f"eps={agent.curator.guarantee.epsilon(DELTA):.4g}" in str(agent.curator.guarantee)
    assert agent.curator.guarantee.basis.startswith("as printed")


def test_budgets_that_cannot_be_calibrated():
    with pytest.raises(ParameterError, match=r"Eq\. 3\.6 never reaches epsilon=0\.1"):
        begun(Budget.approx(0.1, DELTA), calibration="paper")
    with pytest.raises(BudgetError, match=r"takes an \(epsilon, delta\) budget"):
        begun(Budget.zcdp(0.5), calibration="paper")


def test_a_zcdp_budget_has_no_amplification():
    """zCDP holds at every Renyi order, and sampling does not help at large orders."""
    agent = begun(Budget.zcdp(0.5), sampling=0.3)
    assert agent.plan.sums.sigma == pytest.approx(1.0)
    assert agent.curator.guarantee.rho == pytest.approx(0.5)
    q, sigma = 0.3, 1.0

    def log_ratio(x):
        return np.log1p(q * np.expm1((x - 0.5) / sigma**2))

    x = np.linspace(-30, 400, 40_001)
    for order, least in ((2.0, 0.1), (200.0, 0.9)):
        logs = order * log_ratio(x) + stats.norm.logpdf(x, 0, sigma)
        top = logs.max()
        divergence = (top + math.log(integrate.trapezoid(np.exp(logs - top), x))) / (order - 1)
        assert least * 0.5 * order < divergence <= 0.5 * order


def test_ledger_of_a_run(play):
    run = play(NAME, range(2), 950, Budget.approx(1.0, DELTA))
    ledger, promised = run.agent.curator.ledger, run.agent.curator.guarantee
    assert len(ledger.entries) == 1 and run.agent.plan.sums.releases == 3
    assert ledger.spent == pytest.approx(1.0, rel=1e-6)
    assert ledger.guarantee == promised
    assert Guarantee.from_dict(promised.to_dict()) == promised


def chosen_records(run, rounds):
    lanes = run.actions[:rounds, :, None, None]
    return np.take_along_axis(run.features[:rounds], lanes, axis=2)[:, :, 0, :].astype(np.float64)


def test_releases_are_rescaled_sums_of_secret_samples(play, recorder):
    """With vanishing noise every release is a subset sum over q, unbiased."""
    q, B, kept = 0.4, 150, {}

    def prepare(agent):
        kept["it"] = recorder(agent.plan.sums)
        agent.plan = agent.plan._replace(sums=kept["it"])

    params = {"sampling": q, "batch": 12}
    run = play(NAME, range(B), 24, Budget.zcdp(1e20), params, prepare=prepare, dim=30)
    first, second = kept["it"].releases
    x = chosen_records(run, 24)
    counts, errors = [], []
    for start, released in ((0, first), (12, second - first)):
        for b in range(B):
            mine, reward = x[start : start + 12, b], run.rewards[start : start + 12, b]
            used = reward > 0
            # 12 directions in 30 dimensions: the sample can be read off
            weights = np.linalg.lstsq(mine[used].T, q * released[b], rcond=None)[0]
            if len(np.unique(mine[used], axis=0)) < used.sum():
                continue
            np.testing.assert_allclose(weights, np.round(weights), atol=1e-5)
            assert set(np.round(weights)) <= {0.0, 1.0}
            counts.extend(np.round(weights))
            errors.append(released[b] - (mine * reward[:, None]).sum(axis=0))
    n = len(counts)
    assert n > 500
    assert abs(np.mean(counts) - q) < 4.5 * math.sqrt(q * (1 - q) / n)
    errors = np.array(errors)
    assert np.abs(errors.mean(axis=0) / (errors.std(axis=0) / math.sqrt(len(errors)))).max() < 4.5


def test_inclusion_bits_come_from_the_privacy_stream_only(play, recorder):
    """The bits depend on the seed and not on the rewards."""
    kept = []
    for tamper in (lambda t, r: np.ones(len(r)), lambda t, r: np.full(len(r), 0.25)):

        def prepare(agent):
            agent.plan = agent.plan._replace(sums=recorder(agent.plan.sums))
            kept.append(agent.plan.sums)

        params = {"batch": 30, "sampling": 0.5}
        play(NAME, range(3), 30, Budget.zcdp(1e20), params, prepare=prepare, tamper=tamper)
    ones, quarters = kept[0].releases[0], kept[1].releases[0]
    np.testing.assert_allclose(quarters, 0.25 * ones, atol=1e-6)
    assert len({tuple(np.round(row, 6)) for row in ones}) == 3


class Nominal(AdaPrivateAmp):
    """The agent with the nominal epsilon that the paper claims for Eq. 3.6."""

    def __init__(self):
        super().__init__(batch=1, sampling=0.3, calibration="verified")
        self.protects = ("central", "reward")

    def start(self, problem, sums):
        budget = behind(sums).curator.budget
        sums.ready()
        behind(sums)._sigma = amplified_sigma_ru(budget.epsilon, budget.delta, 0.3).sigma
        return super().start(problem, sums)


@pytest.mark.slow
def test_audits_accept_the_exact_noise_and_reject_the_printed_claim():
    budget = Budget.approx(1.0, DELTA)
    how = {"runs": 1000, "horizon": 6}
    verified = {"batch": 1, "sampling": 0.3}
    assert audit(NAME, budget, params=verified, **how).verdict == "PASS"
    assert audit(NAME, budget, params={**verified, "centre": True}, **how).verdict == "PASS"
    env = {"env_id": "DPB/Recommendation-v0", "env_kwargs": {"dim": 2, "n_arms": 12}}
    assert audit(Nominal, budget, **env, **how).verdict == "FAIL"
    shipped = audit(NAME, budget, params={**verified, "calibration": "paper"}, **how)
    assert shipped.verdict == "PASS", "its own claim is the true one"
    assert "eps=14.02 at delta=1e-05" in str(shipped)
