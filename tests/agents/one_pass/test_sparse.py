"""one-pass-sparse: sensitivities by search, density and cost of its releases, regret."""

from __future__ import annotations

import math
from itertools import permutations

import numpy as np
import pytest

import dpb_gym
from dpb_agents.recommendation.fliphat import Peeling
from dpb_agents.recommendation.one_pass_sparse import OCTAVES, SparseSums
from dpb_gym import make_agent, make_problem
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import Budget, Curator, NoiseSource, SystemNoise
from dpb_gym.streams import AgentStreams

NAMES = ("one-pass-sparse", "one-pass-sparse-joint")
WIDTH, BOUND = 5, 0.4
SHARES = (0.2, 0.3)


def releaser_of(budget="rho=0.7", replicates=1, bound=BOUND, noise=None):
    if budget is not None and noise is None:
        noise = NoiseSource.from_seed(0, replicates)
    curator = Curator(budget, ("joint", "user-round"), noise=noise, replicates=replicates)
    return SparseSums(curator, WIDTH, bound)


def support_of(*coordinates, replicates=1):
    support = np.zeros((replicates, WIDTH), bool)
    support[:, list(coordinates)] = True
    return support


def record_of(error, scale, direction, bound):
    """The sums and counts that one record makes."""
    releaser = releaser_of(bound=bound)
    releaser.add(np.array([error]), np.array([scale]), direction[None])
    return releaser._sums[0], releaser._counts[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("budget", ["rho=0.1", "eps=2,delta=1e-5"])
def test_the_guarantee_is_the_budget_and_it_is_spent(name, budget):
    problem = make_problem("DPB/Recommendation-v0", horizon=1000, dim=4)
    agent = make_agent(name)
    agent.set_up(problem.info, AgentStreams([0, 1]), Budget.parse(budget))
    said = agent.curator.guarantee
    notion = ("joint", "user-round") if name.endswith("joint") else ("central", "reward")
    assert (said.notion, said.unit, said.relation) == (*notion, "replace-one")
    if budget == "rho=0.1":
        assert 0.1 * (1 - 1e-6) < said.rho <= 0.1
    else:
        assert 2.0 * (1 - 1e-4) < said.epsilon(1e-5) <= 2.0


@pytest.mark.parametrize("bound", [0.2, 0.4, 1.0])
def test_sensitivities_by_search(bound):
    """A coordinate moves by 2 m at most, k of them by 2 min(1, m sqrt k), and two counts by 1."""
    rng, most, together = np.random.default_rng(0), 0.0, np.zeros(WIDTH + 1)
    for _ in range(1500):
        # records of any size, and opposite ones, which are the worst
        v = rng.standard_normal(WIDTH) * rng.choice([0.01, 1.0, 100.0])
        w = -v if rng.random() < 0.5 else rng.standard_normal(WIDTH) * rng.choice([0.0, 1.0])
        e, f = rng.standard_normal(2) * rng.choice([0.01, 1.0, 100.0])
        one, seen = record_of(e, 0.5, v, bound)
        other, there = record_of(f, 0.5, w, bound)
        moved = np.sort(np.abs(one - other))[::-1]
        most = max(most, moved[0])
        lengths = np.sqrt(np.cumsum(moved**2))
        together[1:] = np.maximum(together[1:], lengths)
        assert np.linalg.norm(seen - there) <= math.sqrt(2.0)
    assert 0.95 * 2 * min(1, bound) < most <= 2 * bound * (1 + 1e-12)
    for k in range(1, WIDTH + 1):
        largest = 2 * min(1.0, bound * math.sqrt(k))
        assert 0.7 * largest < together[k] <= largest * (1 + 1e-12)


def test_counts_are_of_errors_by_octave():
    _, counts = record_of(0.3, 1.0, np.ones(WIDTH), BOUND)
    assert counts.tolist() == [0, 1] + [0] * (OCTAVES - 2)
    for error, octave in ((5.0, 0), (-0.6, 0), (0.5, 1), (0.0, OCTAVES - 1)):
        assert record_of(error, 1.0, np.ones(WIDTH), BOUND)[1][octave] == 1
    sums, counts = record_of(1.0, 1.0, np.zeros(WIDTH), BOUND)
    assert not sums.any() and not counts.any()


@pytest.mark.parametrize("shares", [SHARES, (0.5, 0.1)])
def test_the_noise_of_a_batch_spends_the_budget(shares):
    releaser = releaser_of()
    releaser.add(np.array([0.4]), np.array([1.0]), np.full((1, WIDTH), 0.2))
    kept = releaser.release(support_of(4), 2, shares)
    assert kept.support.sum() == 3 and kept.support[0, 4]
    counts = 0.5 * (math.sqrt(2.0) / kept.counts_std) ** 2
    selection = 2 * 0.5 * (2 * BOUND / kept.xi) ** 2
    longest = min(1.0, BOUND * math.sqrt(3))
    values = 0.5 * (2 * longest / kept.values_std[0]) ** 2
    assert counts == pytest.approx(shares[0] * 0.7)
    assert selection == pytest.approx(shares[1] * 0.7)
    assert counts + selection + values == pytest.approx(0.7) == releaser.curator.ledger.spent
    assert not releaser._sums.any() and not releaser._counts.any(), "records are discarded"


def test_releases_have_the_stated_density():
    """Selections by frequency and by the exponential mechanism, and residuals of the values."""
    n = 2500
    releaser, twin = releaser_of(replicates=n), releaser_of(replicates=n)
    for each in (releaser, twin):
        for _ in range(3):
            v = np.tile([0.4, -0.3, 0.2, 0.0, 0.1], (n, 1))
            each.add(np.full(n, 0.9), np.ones(n), v)
    kept = releaser.release(support_of(1, 4, replicates=n), 2, SHARES)
    sums, counts = twin._sums[0], twin._counts[0]
    weights = np.exp(np.abs(sums) / kept.xi)
    told, free = twin.log_density(kept), (0, 2, 3)
    total = weights[list(free)].sum()
    for first, second in permutations(free, 2):
        chance = weights[first] / total * weights[second] / (total - weights[first])
        here = (kept.order == [first, second]).all(axis=1)
        assert here.mean() == pytest.approx(chance, abs=4 * math.sqrt(chance / n))
        chosen = [1, 4, first, second]
        z = (kept.values[here][:, chosen] - sums[chosen]) / kept.values_std[here, None]
        c = (kept.counts[here] - counts) / kept.counts_std
        exact = math.log(chance) - 0.5 * ((z**2).sum(axis=1) + (c**2).sum(axis=1))
        np.testing.assert_allclose(told[here], exact, rtol=1e-9, atol=1e-9)
        assert not kept.values[here][:, [j for j in free if j not in (first, second)]].any()
        assert (z**2).mean() == pytest.approx(1.0, abs=0.15)


def test_selection_ends_where_nothing_is_left():
    releaser = releaser_of(None)
    kept = releaser.release(support_of(0, 1, 4), 4, SHARES)
    assert kept.order.tolist() == [[2, 3, -1, -1]] and kept.support.all()


def test_invalid_records_change_nothing():
    releaser = releaser_of()
    with pytest.raises(ParameterError, match="finite"):
        releaser.add(np.zeros(1), np.ones(1), np.full((1, WIDTH), np.nan))
    with pytest.raises(ParameterError, match="finite"):
        releaser.add(np.array([np.inf]), np.ones(1), np.ones((1, WIDTH)))
    assert not releaser._sums.any()


def test_system_noise_is_taken():
    pytest.importorskip("opendp")
    curator = Curator("rho=1", ("joint", "user-round"), noise=SystemNoise(2), horizon=10)
    kept = SparseSums(curator, WIDTH, BOUND).release(support_of(4, replicates=2), 2, SHARES)
    assert (kept.counts[0] != kept.counts[1]).any() and kept.values.any(axis=1).all()


@pytest.mark.parametrize("name", NAMES)
def test_bad_parameters_are_named(name):
    bad = {"picks": 0, "spread": 0.0, "start": -1.0, "first": 0.0, "ratio": 1.0, "threshold": -1.0}
    for key, value in bad.items():
        with pytest.raises(ParameterError, match=key):
            make_agent(name, **{key: value})


def final(agents, dim, horizon=2500, **options):
    theta = np.zeros(dim)
    theta[:5] = [18.0, -18.0, 18.0, -18.0, 18.0]
    env = {"dim": dim, "theta": theta.tolist(), "n_arms": 300, "n_candidates": 3}
    result = dpb_gym.evaluate(
        "DPB/Recommendation-v0",
        agents=agents,
        horizon=horizon,
        replicates=3,
        env_kwargs=env,
        progress=False,
        **options,
    )
    last = [row for row in result.records() if row["round"] == horizon]
    return {a: np.mean([r["regret"] for r in last if r["agent"] == a]) for a in agents}


def test_regret_hardly_grows_with_the_dimension():
    """A dense sum of rewards has noise that grows as the square root of the dimension."""
    agents = {"sparse": "one-pass-sparse-joint", "fliphat": "fliphat"}
    narrow, wide = (final(agents, dim, budgets=["rho=0.5"]) for dim in (80, 400))
    assert narrow["sparse"] < 0.85 * narrow["fliphat"] and wide["sparse"] < 0.7 * wide["fliphat"]
    assert wide["sparse"] < 1.8 * narrow["sparse"]


def test_the_scale_follows_the_rewards():
    """Rewards in a small part of their range are learnt as fast as those that use all of it."""
    problem = make_problem("DPB/Recommendation-v0", horizon=100, dim=3)
    agent = make_agent("one-pass-sparse-joint")
    agent.set_up(problem.info, AgentStreams([0]), Budget.zcdp(50.0))
    instance = problem.instance([0])
    for _ in range(20):
        context = locked(instance.context())
        action = agent.act(context)
        feedback = instance.respond(action).feedback
        small = type(feedback)(reward=0.5 + 0.1 * (feedback.reward - 0.5))
        agent.observe(context, action, small)
        instance.advance()
    assert agent._scale == 0.125


@pytest.mark.parametrize(
    ("shares", "picks"),
    [((1.0, 1.0), 1), ((0.0, 0.5), 1), ((-0.5, 0.5), 1), ((0.5, 0.0), 1), ((np.nan, 0.1), 0)],
)
def test_parts_of_a_release_cost_no_more_than_the_whole(shares, picks):
    own = Curator("rho=0.5", ("joint", "user-round"), noise=NoiseSource.from_seed(0), horizon=9)
    made = SparseSums(own, 3, 1.0)
    made.add(np.ones(1), np.ones(1), np.ones((1, 3)))
    with pytest.raises(ParameterError, match="share"):
        made.release(np.zeros((1, 3), bool), picks, shares)
    assert made.kept is None


@pytest.mark.parametrize("bound", [0.0, 1.5, -1.0])
def test_the_bound_of_a_direction_is_positive(bound):
    own = Curator("rho=0.5", ("joint", "user-round"), noise=NoiseSource.from_seed(0), horizon=9)
    with pytest.raises(ParameterError, match="bound"):
        SparseSums(own, 3, bound)


@pytest.mark.parametrize(
    "changed", [{"bound": -1.0}, {"x_max": -1.0}, {"radius": 0.0}, {"sparsity": 4}]
)
def test_bounds_that_cancel_in_a_sensitivity_are_refused(changed):
    """With the bound -1 the sensitivity 2 step x_max (bound + x_max radius) would be 0."""
    own = Curator("rho=0.5", ("joint", "user-round"), noise=NoiseSource.from_seed(0), horizon=9)
    given = {"sparsity": 1, "x_max": 1.0, "bound": 1.0, "radius": 1.0, "start": np.zeros(3)}
    with pytest.raises(ParameterError, match=next(iter(changed))):
        Peeling(own, 3, **{**given, **changed})
    made = Peeling(own, 3, **given)
    for step, steps in ((-1.0, 1), (1.0, 0)):
        with pytest.raises(ParameterError, match="step"):
            made.release(step, steps)
