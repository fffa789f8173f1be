"""Guarantees, costs, releases and privacy of the private linear policies."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpb_gym import make_agent, make_problem
from dpb_gym.privacy import Budget, Guarantee, textbook_rho
from dpb_gym.privacy.accounting import epsilon as accounted_epsilon
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.streams import AgentStreams

NAMES = ("adaprivate-ucb", "adaprivate-ts")
DELTA = 1e-5


def begun(name, budget, **params):
    problem = make_problem("DPB/Recommendation-v0", horizon=1000)
    agent = make_agent(name, **params)
    agent.set_up(problem.info, AgentStreams([0]), budget)
    return agent


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize(
    # sigma of RU's Eq. 2.8 at delta = 1e-5, and of the exact Gaussian mechanism (erratum R1).
    ("eps", "printed", "exact"),
    [(0.5, 9.700, 7.03), (1.0, 4.901, 3.73), (2.0, 2.499, 1.99), (5.0, 1.055, 0.892)],
)
def test_noise_at_the_budgets_of_the_paper(name, centre, eps, printed, exact):
    paper = begun(name, Budget.zcdp(textbook_rho(eps, DELTA)), centre=centre)
    assert paper.plan.sums.sigma == pytest.approx(printed, rel=1e-3)
    ours = begun(name, Budget.approx(eps, DELTA), centre=centre)
    assert ours.plan.sums.sigma == pytest.approx(exact, rel=2e-3)
    assert ours.curator.guarantee.epsilon(DELTA) == pytest.approx(eps, rel=1e-6)
    assert paper.curator.guarantee.epsilon(DELTA) < eps


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rho", [0.01, 0.5, 3.0])
def test_guarantee_and_ledger(play, name, rho):
    run = play(name, range(2), 950, Budget.zcdp(rho))
    agent = run.agent
    promised = agent.curator.guarantee
    assert (promised.notion, promised.unit, promised.relation) == (
        "central",
        "reward",
        "replace-one",
    )
    assert promised.rho == pytest.approx(rho, rel=1e-9) and promised.rho <= rho
    # A Gaussian of mu = sqrt(2 rho): epsilon from its exact profile.
    mu, eps = math.sqrt(2.0 * rho), promised.epsilon(DELTA)
    delta = stats.norm.cdf(mu / 2 - eps / mu) - math.exp(eps) * stats.norm.cdf(-mu / 2 - eps / mu)
    assert delta == pytest.approx(DELTA, rel=1e-4)
    # Three disjoint batches of 300 cost as much as one; the partial batch is never released.
    ledger = agent.curator.ledger
    assert ledger.spent == pytest.approx(rho, rel=1e-9)
    assert len(ledger.entries) == 1 and agent.plan.sums.releases == 3
    assert ledger.guarantee == promised
    assert Guarantee.from_dict(promised.to_dict()) == promised
    assert accounted_epsilon(ledger.composition, DELTA) == eps


def test_without_a_budget_there_is_no_guarantee(play):
    run = play("adaprivate-ucb", range(2), 10)
    assert run.agent.curator.guarantee is None and run.agent.plan.sums.sigma == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_releases_are_noisy_sums_of_whole_batches(play, recorder, name):
    rho, B, d = 0.02, 150, 4
    recorded = {}

    def prepare(agent):
        recorded["it"] = recorder(agent.plan.sums)
        agent.plan = agent.plan._replace(sums=recorded["it"])

    run = play(name, range(B), 700, Budget.zcdp(rho), {"batch": 200}, prepare=prepare, dim=d)
    releases = recorded["it"].releases
    assert len(releases) == 3
    sigma = 1.0 / math.sqrt(2.0 * rho)
    taken = np.take_along_axis(run.features, run.actions[..., None, None], axis=2)[:, :, 0, :]
    noise = []
    for k, release in enumerate(releases):
        end = 200 * (k + 1)
        exact = (taken[:end] * run.rewards[:end, :, None]).astype(np.float64).sum(axis=0)
        noise.append(release - exact)
    steps = np.diff(np.array([np.zeros((B, d)), *noise]), axis=0) / sigma
    # Fresh noise of each batch, the same on every coordinate, independent between batches.
    for step in steps:
        assert stats.kstest(step.ravel(), "norm").pvalue > 1e-3
    correlation = np.corrcoef(steps.reshape(3, -1))
    assert np.abs(correlation[np.triu_indices(3, 1)]).max() < 4.0 / math.sqrt(B * d)


@pytest.mark.parametrize("name", NAMES)
def test_rewards_reach_the_actions_through_releases_only(play, recorder, playback, name):
    budget, recorded = Budget.zcdp(1.0), {}

    def record(agent):
        recorded["it"] = recorder(agent.plan.sums)
        agent.plan = agent.plan._replace(sums=recorded["it"])

    def replay(agent):
        sums = playback(agent.plan.sums, recorded["it"].releases)
        agent.plan = agent.plan._replace(sums=sums)

    other = np.random.default_rng(1)

    def tamper(t, reward):
        return other.random(len(reward))

    seeds = range(4)
    first = play(name, seeds, 1000, budget, prepare=record)
    held = play(name, seeds, 1000, budget, prepare=replay, tamper=tamper)
    np.testing.assert_array_equal(held.actions, first.actions)
    assert (held.rewards != first.rewards).all()
    # The same other rewards do matter where they reach the releaser, after the first batch.
    free = play(name, seeds, 1000, budget, tamper=tamper)
    np.testing.assert_array_equal(free.actions[:300], first.actions[:300])
    assert (free.actions[300:] != first.actions[300:]).any(axis=0).all()


@pytest.mark.parametrize("name", NAMES)
def test_rewards_outside_their_range_are_clipped_and_counted(play, recorder, name):
    recorded = {}

    def record(agent):
        recorded["it"] = recorder(agent.plan.sums)
        agent.plan = agent.plan._replace(sums=recorded["it"])

    def wild(t, reward):
        return np.where(np.arange(len(reward)) == 1, 1e6, reward)

    def tame(t, reward):
        return np.where(np.arange(len(reward)) == 1, 1.0, reward)

    releases = []
    for tamper in (wild, tame):
        play(name, range(3), 300, Budget.zcdp(1.0), prepare=record, tamper=tamper)
        releases.append(recorded["it"].releases[0])
        expected = 300 if tamper is wild else 0
        np.testing.assert_array_equal(behind(recorded["it"].inner).clipped_count, [0, expected, 0])
    np.testing.assert_array_equal(*releases)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_regret_falls_with_the_budget(play, name):
    seeds = range(24)
    regret = {
        rho: play(name, seeds, 3000, Budget.zcdp(rho), {"batch": 100}).regret
        for rho in (0.002, 0.05, 50.0)
    }
    chance = play("random", seeds, 3000).regret
    for worse, better in (
        (chance, regret[0.05]),
        (regret[0.002], regret[0.05]),
        (regret[0.05], regret[50.0]),
    ):
        gap = worse - better
        assert gap.mean() > 3.0 * gap.std(ddof=1) / math.sqrt(len(gap))


def test_vanishing_noise_gives_the_non_private_policy(play):
    # Same rule, same batches: only the releaser differs.
    nearly = play("adaprivate-ucb", range(3), 900, Budget.zcdp(1e14), {"batch": 50})
    exact = play("lin-ucb", range(3), 900, params={"batch": 50})
    np.testing.assert_array_equal(nearly.actions, exact.actions)
