"""The linear policies against plain NumPy for one replicate."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import norm

from dpb_gym import make_agent, make_problem, portable
from dpb_gym.agent import BatchedSingle, SingleAgent
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import ActionError, AgentError, ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.problems.base import Context, Feedback
from dpb_gym.problems.stretch import Stretch
from dpb_gym.streams import AgentStreams, Stream, generator

NAMES = ("lin-greedy", "lin-ucb", "lin-ts", "adaprivate-ucb", "adaprivate-ts")
LOOSE = Budget.zcdp(2.0)
# rules of the plain version as registered agents
RULES = {
    "greedy": ("lin-greedy", {"centre": False}),
    "ucb": ("lin-ucb", {}),
    "ts": ("lin-ts", {}),
}


def own(rule, params):
    """The parameters that a rule's agent has."""
    foreign = {"greedy": {"alpha", "v"}, "ucb": {"v"}, "ts": {"alpha"}}[rule]
    return {**RULES[rule][1], **{k: v for k, v in params.items() if k not in foreign}}


def budget_of(name):
    return LOOSE if name.startswith("ada") else None


class PlainLinear(SingleAgent):
    """LinUCB, LinTS or greedy for one replicate, with numpy.linalg in every round."""

    def __init__(self, rule="ucb", alpha=1.0, v=1.0, ridge=1.0, batch=1, centre=0.0, noise=None):
        self.rule, self.alpha, self.v, self.ridge = rule, alpha, v, ridge
        self.batch, self.centre, self.noise = batch, centre, noise

    def begin(self):
        d = self.problem.dim
        self.A, self.b, self.pending = self.ridge * np.eye(d), np.zeros(d), np.zeros(d)
        self.rounds = 0

    def scores(self, context):
        self.x = x = context.features.astype(np.float64)
        theta = np.linalg.solve(self.A, self.b)
        score = x @ theta
        if self.rule == "ucb":
            score += self.alpha * np.sqrt(np.sum(x.T * np.linalg.solve(self.A, x.T), axis=0))
        elif self.rule == "ts":
            xi = portable.normals(self.rng, len(theta))
            score += self.v * x @ np.linalg.solve(np.linalg.cholesky(self.A).T, xi)
        return score

    def act(self, context):
        return int(np.argmax(self.scores(context)))

    def observe(self, context, action, feedback):
        length = max(1.0, float(np.linalg.norm(self.x[action])))
        x = self.x[action] / length
        weight = 1.0 if length < 1.0 + 4e-7 else 1.0 / length
        self.A += np.outer(x, x)
        self.pending += weight * (float(feedback.reward) - self.centre) * x
        self.rounds += 1
        if self.rounds % self.batch == 0:
            self.b += self.pending
            self.pending[:] = 0.0


SETTINGS = [
    ({}, {}),
    ({"centre": True, "batch": 7}, {"centre": 0.5, "batch": 7}),
    ({"alpha": 0.3, "v": 0.2, "ridge": 0.1}, {"alpha": 0.3, "v": 0.2, "ridge": 0.1}),
]


@pytest.mark.parametrize("rule", ["greedy", "ucb", "ts"])
@pytest.mark.parametrize(("params", "plain"), SETTINGS)
def test_every_action_is_best_in_the_plain_version(play, rule, params, plain):
    """The plain version follows the agent's history; equal scores (unit vectors at the start) may
    fall either way."""
    env = {"dim": 6, "reward": "linear"}
    run = play(RULES[rule][0], range(3), 600, params=own(rule, params), **env)
    for i in range(3):
        twin = PlainLinear(rule, **plain)
        twin.problem, twin.rng = run.problem.info, generator(i, Stream.AGENT)
        twin.begin()
        for t in range(600):
            context, action = Context(t + 1, run.features[t, i]), run.actions[t, i]
            score = twin.scores(context)
            assert score[action] > score.max() - 1e-10
            twin.observe(context, action, Feedback(run.rewards[t, i]))


@pytest.mark.parametrize("rule", ["greedy", "ts"])
@pytest.mark.parametrize(("params", "plain"), SETTINGS)
def test_batch_agent_equals_the_single_agent(play, rule, params, plain):
    ours = play(RULES[rule][0], range(3), 400, params=own(rule, params), dim=6)
    theirs = play(BatchedSingle(lambda: PlainLinear(rule, **plain)), range(3), 400, dim=6)
    np.testing.assert_array_equal(ours.actions, theirs.actions)


@pytest.mark.parametrize("rule", ["greedy", "ts"])
def test_features_outside_the_unit_ball_and_their_rewards_are_scaled_alike(play, rule):
    theta = np.array([3.0, -1.0, 0.5])
    env = {"dim": 3, "fresh": True, "theta": theta, "reward": "linear"}
    problem = make_problem("DPB/Recommendation-v0", horizon=200, **env)
    instance = problem.instance([0, 1])
    name, params = RULES[rule]
    agent, twin = make_agent(name, **params), BatchedSingle(lambda: PlainLinear(rule))
    agent.set_up(problem.info, AgentStreams([0, 1]))
    twin.set_up(problem.info, AgentStreams([0, 1]))
    rng = np.random.default_rng(0)
    for _ in range(200):
        scale = rng.choice([0.5, 1.0, 40.0], (2, 5, 1)).astype(np.float32)
        context = locked(instance.context())
        context = context._replace(features=context.features * scale)
        action = agent.act(context)
        np.testing.assert_array_equal(action, twin.act(context))
        feedback = Feedback(rng.random(2))
        agent.observe(context, action, feedback)
        twin.observe(context, action, feedback)
    assert (
        behind(agent.plan.sums).clipped_count == 0
    ).all()  # rewards are in range, features are public


@pytest.mark.parametrize("rule", ["greedy", "ucb", "ts"])
def test_statistics_after_a_run(play, rule):
    name, params = RULES[rule]
    run = play(name, [2, 3], 2000, params=params)
    d = run.problem.dim
    for i in range(2):
        x = run.features[np.arange(2000), i, run.actions[:, i]].astype(np.float64)
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
        A, b = np.eye(d) + x.T @ x, x.T @ run.rewards[:, i]
        np.testing.assert_allclose(run.agent.plan.sums.value[i], b, rtol=1e-12)
        if rule == "ts":
            factor = run.agent.state.A[i].T
            np.testing.assert_allclose(factor, np.linalg.cholesky(A), rtol=1e-9, atol=1e-10)
        else:
            inverse = run.agent.state.A[i]
            np.testing.assert_allclose(inverse, np.linalg.inv(A), rtol=1e-9, atol=1e-13)


def test_thompson_draws_have_the_mean_and_covariance_of_the_posterior():
    """Recover the draws from the agent's choices: P(choose +x) = Phi(mean / sd)."""
    rng = np.random.default_rng(0)
    B, d = 40_000, 3
    root = rng.standard_normal((d, d))
    A = root @ root.T + np.eye(d)
    b = np.array([1.0, -0.5, 0.8])
    problem = make_problem("DPB/Recommendation-v0", horizon=10, dim=d, n_candidates=2)
    agent = make_agent("lin-ts", v=0.7)
    agent.set_up(problem.info, AgentStreams(range(B)))
    agent.state.A[:] = np.linalg.cholesky(A).T
    agent.state.b[:] = b
    for x in np.eye(d):
        features = np.broadcast_to(np.stack([x, -x]).astype(np.float32), (B, 2, d)).copy()
        action = agent.act(Context(1, features))
        mean, sd = x @ np.linalg.solve(A, b), 0.7 * math.sqrt(x @ np.linalg.solve(A, x))
        expected = norm.cdf(mean / sd)
        assert np.mean(action == 0) == pytest.approx(expected, abs=4 * 0.5 / math.sqrt(B))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_bits_do_not_depend_on_the_batch(play, name):
    seeds, budget = [4, 1, 7, 0, 3, 8, 2, 6], budget_of(name)
    full = play(name, seeds, 640, budget)
    for size, starts in ((1, (0, 5)), (3, (0, 3, 6))):
        for start in starts:
            part = play(name, seeds[start : start + size], 640, budget)
            np.testing.assert_array_equal(part.actions, full.actions[:, start : start + size])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["lin-ucb", "lin-ts", "lin-greedy"])
@pytest.mark.parametrize("env", [{}, {"reward": "linear"}, {"reward": "gaussian", "fresh": True}])
def test_learning_beats_random(play, name, env):
    ours = play(name, range(12), 1500, **env)
    chance = play("random", range(12), 1500, **env)
    gap = chance.regret - ours.regret
    assert gap.mean() > 5.0 * gap.std(ddof=1) / math.sqrt(len(gap))


@pytest.mark.parametrize("name", ["lin-ucb", "lin-greedy"])
def test_centring_replaces_the_missing_intercept(play, name):
    # Erratum R9: 403 -> 94 at T = 10,000.
    plain = play(name, range(8), 4000, params={"centre": False})
    centred = play(name, range(8), 4000, params={"centre": True})
    assert centred.regret.mean() < 0.6 * plain.regret.mean()


@pytest.mark.parametrize("name", NAMES)
def test_rejected_rounds_leave_no_trace(play, name):
    env = {"env_id": "DPB/MovieLensReplay-v0", "dim": 6, "protocol": "replay"}
    params = {} if budget_of(name) is None else {"batch": 40}
    run = play(name, [0, 1], 1500, budget_of(name), params, **env)
    assert 0.15 < run.observed.mean() < 0.25
    for i in range(2):
        seen = run.observed[:, i]
        x = run.features[np.arange(1500), i, run.actions[:, i]][seen].astype(np.float64)
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
        A = np.eye(6) + x.T @ x
        if "ts" in name:
            gram = run.agent.state.A[i].T @ run.agent.state.A[i]
        else:
            gram = np.linalg.inv(run.agent.state.A[i])
        np.testing.assert_allclose(gram, A, rtol=1e-8, atol=1e-8)
        if budget_of(name) is None:
            b = x.T @ (run.rewards[seen, i] - run.agent.known.shift)
            np.testing.assert_allclose(run.agent.plan.sums.value[i], b, rtol=1e-10, atol=1e-12)
    if budget_of(name) is not None:
        # A batch of 40 observed rounds takes 5 x 40 offered ones on average.
        assert run.agent.plan.sums.releases == 1500 // 200


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("together", [False, True])
def test_a_round_without_feedback_changes_no_state_and_no_sum(name, together):
    """Rewards and choices of such rounds are not read; here the rewards are not even numbers."""
    env = {"dim": 3, "n_candidates": 4, "fresh": True}
    problem = make_problem("DPB/Recommendation-v0", horizon=40, **env)
    params = {} if budget_of(name) is None else {"batch": 10}
    agent = make_agent(name, **params)
    agent.set_up(problem.info, AgentStreams([0, 1]), budget_of(name))
    instance = problem.instance([0, 1])

    def kept():
        sums = behind(agent.plan.sums)
        return [part.copy() for part in (*agent.state, sums.value, sums._total)]

    def play(n, observed):
        """Play rounds with feedback in some replicates, and return what is in the memory."""
        if together:
            table = instance.move(n).view()
            seen = np.broadcast_to(observed[:, None], table.reward.shape)
            agent.play(Stretch(table.context, np.where(seen, table.reward, np.nan), seen))
            instance.advance()
            return kept()
        for _ in range(n):
            context = locked(instance.context())
            action = agent.act(context)
            reward = instance.respond(action).feedback.reward
            seen = np.where(observed, reward, np.nan)
            agent.observe(context, action, Feedback(seen, observed=observed))
            instance.advance()
        return kept()

    before = play(15, np.array([True, True]))
    after = play(4, np.array([False, True]))
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(new[0], old[0])
    # the other replicate learns: its A, and its released or open sums
    assert (after[0][1] != before[0][1]).any()
    assert any((new[1] != old[1]).any() for old, new in zip(before[-2:], after[-2:]))


@pytest.mark.parametrize("gamma", [None, 2.0])
def test_equal_arms_share_the_stated_probability(gamma):
    """Arms that were played equally often have equal bounds: a uniform number decides."""
    B, m = 3000, 4
    problem = make_problem("DPB/MultiArmed-v0", horizon=10, n_arms=m)
    agent = make_agent("lin-ucb", gamma=gamma)
    agent.set_up(problem.info, AgentStreams(range(B)))
    instance = problem.instance(range(B))
    for arm in (0, 2):
        context = locked(instance.context())
        agent.observe(context, np.full(B, arm), Feedback(np.full(B, 0.25)))
        instance.advance()
    context = locked(instance.context())
    d = problem.info.dim
    forced = 0.0 if gamma is None else d * math.log(3) / (3 * gamma)
    expected = np.full(m, forced / m)
    expected[[1, 3]] += 0.5 * (1.0 - forced)
    assert forced < 0.8
    shares = agent.probabilities(context)
    np.testing.assert_allclose(shares, np.tile(expected, (B, 1)), rtol=1e-12)
    counts = np.bincount(agent.act(context), minlength=m) / B
    spread = np.sqrt(expected * (1.0 - expected) / B)
    assert (np.abs(counts - expected) <= 4.5 * spread + 1e-12).all()


@pytest.mark.parametrize(
    "params",
    [
        {"alpha": -1.0},
        {"alpha": math.nan},
        {"intercept": -1.0},
        {"ridge": 0.0},
        {"batch": 0},
        {"batch": 1.5},
        {"centre": "yes"},
    ],
)
def test_bad_parameters_are_named(params):
    with pytest.raises(ParameterError, match=next(iter(params))):
        make_agent("lin-ucb", **params)


def test_bad_actions_and_problems_are_refused():
    problem = make_problem("DPB/Recommendation-v0", horizon=10)
    agent = make_agent("lin-ucb")
    agent.set_up(problem.info, AgentStreams([0, 1]))
    context = problem.instance([0, 1]).context()
    for bad in (-1, 5):
        with pytest.raises(ActionError, match=r"replicate 1 is outside 0\.\.4"):
            agent.observe(context, np.array([0, bad]), Feedback(np.zeros(2)))
    pricing = make_problem("DPB/Pricing-v0", horizon=10)
    with pytest.raises(AgentError, match="plays recommendation problems, not pricing"):
        agent.set_up(pricing.info, AgentStreams([0]))


@pytest.mark.parametrize("name", NAMES)
def test_begin_resets_the_state(play, name):
    first = play(name, range(2), 350, budget_of(name))
    again = play(first.agent, range(2), 350, budget_of(name))
    np.testing.assert_array_equal(first.actions, again.actions)
