"""Intercept, shrinking draws, forced exploration, the papers' noise, and tuning grids."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dpb_gym import make_agent, make_problem, portable
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.streams import AgentStreams, Stream, generator

FAMILY = (
    "adaprivate-ucb",
    "adaprivate-ts",
    "adaprivate-adaptive",
    "adaprivate-amp",
    "adaprivate-user-ucb",
    "adaprivate-user-ts",
)
DELTA = 1e-5


def begun(name, budget, horizon=1000, replicates=1, env=None, **params):
    problem = make_problem("DPB/Recommendation-v0", horizon=horizon, **(env or {}))
    agent = make_agent(name, **params)
    agent.set_up(problem.info, AgentStreams(range(replicates)), budget)
    return agent


class Twin:
    """The policy for one replicate, from its definition: constant column, unscaled."""

    def __init__(self, d, rule, *, intercept=0.0, v=1.0, alpha=1.0, ridge=1.0):
        self.rule, self.intercept, self.v, self.alpha = rule, intercept, v, alpha
        self.A, self.b = ridge * np.eye(d + 1), np.zeros(d + 1)
        if not intercept:
            self.A, self.b = ridge * np.eye(d), np.zeros(d)

    def scores(self, features, xi):
        x = features.astype(np.float64)
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
        if self.intercept:
            x = np.hstack([x, np.full((len(x), 1), self.intercept)])
        self.x = x
        score = x @ np.linalg.solve(self.A, self.b)
        if self.rule == "ucb":
            score += self.alpha * np.sqrt(np.sum(x.T * np.linalg.solve(self.A, x.T), axis=0))
        if self.rule == "ts":
            score += self.v * x @ np.linalg.solve(np.linalg.cholesky(self.A).T, xi)
        return score


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["greedy", "ucb", "ts"])
@pytest.mark.parametrize(
    "params", [{"intercept": 0.5}, {"intercept": 2.0, "ridge": 0.3}, {"decay": 0.7, "batch": 40}]
)
def test_every_action_follows_the_definition(play, rule, params):
    rounds, d = 120, 4
    name = {"greedy": "lin-greedy", "ucb": "lin-ucb", "ts": "lin-ts"}[rule]
    own = {k: v for k, v in params.items() if k != "decay" or rule == "ts"}
    if rule == "greedy":
        own["centre"] = False
    run = play(name, range(2), rounds, params=own, dim=d)
    batch = params.get("batch", 1)
    for i in range(2):
        rng = generator(i, Stream.AGENT)
        twin = Twin(d, rule, intercept=params.get("intercept", 0.0), ridge=params.get("ridge", 1.0))
        pending = np.zeros_like(twin.b)
        for t in range(rounds):
            twin.v = params.get("decay", 1.0) ** (t // batch)
            xi = portable.normals(rng, len(twin.b)) if rule == "ts" else None
            score = twin.scores(run.features[t, i], xi)
            action = run.actions[t, i]
            assert score[action] > score.max() - 1e-9
            x = twin.x[action]
            twin.A += np.outer(x, x)
            pending += run.rewards[t, i] * x
            if (t + 1) % batch == 0:
                twin.b, pending = twin.b + pending, np.zeros_like(pending)


@pytest.mark.parametrize("intercept", [0.1, 1.0, 7.0])
def test_summed_directions_stay_in_the_unit_ball(play, recorder, intercept):
    """One reward then moves a sum by at most its range, for any features."""
    kept = []

    def spy(agent):
        kept.append(recorder(agent.plan.sums))
        agent.plan = agent.plan._replace(sums=kept[0])

    # MovieLens features are not of unit norm
    params = {"intercept": intercept, "batch": 50}
    env = {"env_id": "DPB/MovieLensReplay-v0", "dim": 6}
    play("adaprivate-ts", range(2), 200, Budget.zcdp(1.0), params, prepare=spy, **env)
    lengths = np.linalg.norm(kept[0].directions, axis=2)
    assert lengths.shape == (200, 2)
    assert 0.0 < lengths.max() <= 1.0 + 1e-12


@pytest.mark.parametrize("name", ["lin-greedy", "lin-ucb"])
def test_an_intercept_estimates_what_centring_subtracts(play, name):
    plain = play(name, range(16), 3000, params={"centre": False}).regret
    learnt = play(name, range(16), 3000, params={"centre": False, "intercept": 0.5}).regret
    gap = plain - learnt
    assert gap.mean() > 4.0 * gap.std(ddof=1) / math.sqrt(len(gap))


@pytest.mark.parametrize(("eps", "d"), [(0.5, 20), (2.0, 7)])
def test_the_tuned_width_follows_the_noise(eps, d):
    agent = begun("adaprivate-adaptive", Budget.approx(eps, DELTA), env={"dim": d}, v=None)
    assert agent.known.width == pytest.approx(1.0 + agent.plan.sums.sigma / math.sqrt(d))
    amp = begun("adaprivate-amp", Budget.approx(eps, DELTA), env={"dim": d}, v=None)
    assert amp.known.width == pytest.approx(1.0 + amp.plan.sums.sigma / 0.5 / math.sqrt(d))
    # without noise there is nothing to add
    assert begun("adaprivate-adaptive", None, v=None).known.width == 1.0
    assert begun("adaprivate-adaptive", None).known.width == 1.5


# ------------------------------------------------------------------ forced exploration


@pytest.mark.slow
@pytest.mark.parametrize("gamma", [3.0, 1.0])
@pytest.mark.parametrize("name", ["lin-greedy", "lin-ts"])
def test_forced_rounds_have_their_rate_and_are_uniform(gamma, name):
    B, d, m = 4_000, 3, 4
    problem = make_problem("DPB/Recommendation-v0", horizon=5000, dim=d, n_candidates=m)
    agent = make_agent(name, gamma=gamma, **({"v": 0.0} if name == "lin-ts" else {}))
    agent.set_up(problem.info, AgentStreams(range(B)))
    context = problem.instance([0]).context()
    context = context._replace(features=np.repeat(context.features, B, axis=0))
    agent.state.b[:] = context.features[0, 2]  # candidate 2 is the best
    for t in (1, 2, 40, 3000):
        agent.rounds = t - 1
        counts = np.bincount(agent.act(context), minlength=m)
        p = min(1.0, d * math.log(t) / (t * gamma))
        share = p / m
        for k in (0, 1, 3):
            assert abs(counts[k] / B - share) <= 4.5 * math.sqrt(share * (1 - share) / B) + 1e-12
    agent.rounds = 0
    assert (agent.act(context) == 2).all(), "log 1 = 0: no forced first round"


def test_forced_rounds_do_not_depend_on_the_rewards(play):
    """They cost no privacy: same rounds and same candidates with other rewards.

    The rounds and candidates are computed here from the seed alone.
    """
    B, rounds, gamma = 4, 400, 2.0
    params, runs = {"gamma": gamma, "batch": 50}, []
    for tamper in (None, lambda t, reward: 1.0 - reward):
        runs.append(
            play("adaprivate-ts", range(B), rounds, Budget.zcdp(1.0), params, tamper=tamper)
        )
    m, d = runs[0].features.shape[2:]
    forced = np.zeros((rounds, B), bool)
    for b in range(B):
        rng = generator(b, Stream.AGENT)
        for t in range(1, rounds + 1):
            coin, u = stats.norm.cdf(portable.normals(rng, d + 2)[d:])
            if coin < min(1.0, d * math.log(t) / (gamma * t)):
                forced[t - 1, b] = True
                for run in runs:
                    assert run.actions[t - 1, b] == int(m * u)
    assert forced.mean() > 0.1
    # the other rewards change what is played in the other rounds
    first, second = (run.actions[~forced] for run in runs)
    assert (first != second).mean() > 0.1


def test_forced_exploration_widens_the_design(play):
    """RU, Eq. 6.1: the least eigenvalue of A grows although the policy is greedy."""
    least = []
    for gamma in (None, 1.0):
        params = {"centre": False, "gamma": gamma}
        run = play("lin-greedy", range(8), 1500, params=params, dim=6, n_arms=12)
        inverse = run.agent.state.A
        least.append(1.0 / np.linalg.eigvalsh(0.5 * (inverse + inverse.swapaxes(1, 2)))[:, -1])
    gap = least[1] - least[0]
    assert gap.mean() > 4.0 * gap.std(ddof=1) / math.sqrt(len(gap))


# ------------------------------------------------------------------ noise of the paper


@pytest.mark.parametrize("name", ["adaprivate-ucb", "adaprivate-ts", "adaprivate-adaptive"])
@pytest.mark.parametrize(
    ("eps", "printed", "spent"), [(0.5, 9.700, 0.36), (1.0, 4.901, 0.74), (5.0, 1.055, 4.12)]
)
def test_the_noise_of_the_paper_is_larger_than_its_guarantee_needs(name, eps, printed, spent):
    """RU, Eq. 2.8; erratum R1."""
    budget = Budget.approx(eps, DELTA)
    agent = begun(name, budget, calibration="paper")
    assert agent.plan.sums.sigma == pytest.approx(printed, rel=1e-3)
    # the exact profile of a Gaussian with mu = 1 / sigma
    mu, true = 1.0 / printed, agent.curator.guarantee.epsilon(DELTA)
    left = stats.norm.cdf(mu / 2 - true / mu)
    right = math.exp(true) * stats.norm.cdf(-mu / 2 - true / mu)
    assert left - right == pytest.approx(DELTA, rel=0.02)
    assert true == pytest.approx(spent, abs=0.01) and true < eps
    assert begun(name, budget).plan.sums.sigma < printed
    # with a zCDP budget there is nothing to convert
    zcdp = [
        begun(name, Budget.zcdp(0.1), calibration=c).plan.sums.sigma for c in ("paper", "verified")
    ]
    assert zcdp[0] == pytest.approx(zcdp[1], rel=1e-12)


# ------------------------------------------------------------------ grids, batches, parameters


ALL = [
    ("adaprivate-ts", {"intercept": 0.5, "gamma": 20.0, "decay": 0.9, "batch": 60}),
    ("adaprivate-ucb", {"intercept": 0.5, "gamma": 20.0, "batch": 60}),
    ("adaprivate-amp", {"centre": True, "batch": 60}),
]


@pytest.mark.parametrize(("name", "params"), ALL)
def test_bits_do_not_depend_on_the_batch(play, name, params):
    seeds, budget = [4, 1, 7, 0, 3], Budget.approx(3.0, DELTA)
    full = play(name, seeds, 400, budget, params)
    for start, size in ((0, 1), (1, 3), (4, 1)):
        part = play(name, seeds[start : start + size], 400, budget, params)
        np.testing.assert_array_equal(part.actions, full.actions[:, start : start + size])
        np.testing.assert_array_equal(part.agent.state.b, full.agent.state.b[start : start + size])


@pytest.mark.parametrize(
    "params",
    [
        {"intercept": -0.1},
        {"intercept": math.inf},
        {"decay": 0.0},
        {"decay": 1.1},
        {"gamma": 0.0},
        {"calibration": "loose"},
        {"sampling": 0.0},
        {"sampling": 1.5},
        {"v": math.inf},
    ],
)
def test_bad_parameters_are_named(params):
    with pytest.raises(ParameterError, match=f"^adaprivate-amp: {next(iter(params))} must be"):
        make_agent("adaprivate-amp", **params)


def test_sampling_belongs_to_the_sampled_agent():
    with pytest.raises(ParameterError, match=": it belongs to adaprivate-amp"):
        make_agent("adaprivate-ts", sampling=0.3)
