"""one-pass-linear: exact twins, units of protection, sensitivities, rewards off centre."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpb_gym
from dpb_agents.recommendation.one_pass_filter import RewardFilter
from dpb_agents.recommendation.one_pass_learners import joint_weights
from dpb_agents.recommendation.one_pass_schedule import planned
from dpb_agents.recommendation.one_pass_users import LifetimeWeights
from dpb_gym.agent import make_agent
from dpb_gym.errors import ActionError, ParameterError
from dpb_gym.kernels import one_pass_linear
from dpb_gym.privacy import Budget, Schedule, WeightedSum
from dpb_gym.streams import AgentStreams

SMALL = {"dim": 5, "n_arms": 20}
USERS = {"interactions_per_user": 4, "user_order": "shuffled"}
UNITS = {"reward": "central", "user-rewards": "central", "user-round": "joint", "user": "joint"}


def problem_of(horizon, **kwargs):
    return dpb_gym.make_problem("DPB/Recommendation-v0", horizon=horizon, **{**SMALL, **kwargs})


def begin(problem, seeds, budget, **params):
    agent = make_agent("one-pass-linear", **params)
    agent.set_up(problem.info, AgentStreams(seeds), budget)
    return agent


def play(agent, problem, seeds, rounds, change=None):
    instance = problem.instance(seeds)
    regret = np.zeros(len(seeds))
    actions = []
    for t in range(rounds):
        context = instance.context()
        action = agent.act(context)
        outcome = instance.respond(action)
        regret += outcome.regret
        feedback = outcome.feedback
        if change is not None:
            feedback = feedback._replace(reward=change(outcome))
        agent.observe(context, action, feedback)
        actions.append(action)
        if t < rounds - 1:
            instance.advance()
    return regret, np.array(actions)


# ------------------------------------------------------------------ exact and noisy twins


def test_without_budget_is_ridge_regression():
    problem = problem_of(130)
    agent = begin(problem, [3], None, start=10)
    instance = problem.instance([3])
    X, y = [], []
    for t in range(125):
        context = instance.context()
        action = agent.act(context)
        feedback = instance.respond(action).feedback
        agent.observe(context, action, feedback)
        X.append(np.append(context.features[0, action[0]].astype(float), 1.0))
        y.append(feedback.reward[0] - 0.5)
        assert t >= 9 or not agent.theta.any()
        instance.advance()
    X = np.array(X)
    # prior: (1/2)^2 / d per coefficient, a level uniform on [0, 1]
    prior = np.append(np.full(5, 0.25 / 5), 1 / 12)
    wanted = np.linalg.solve(X.T @ X + np.diag(0.25 / prior), X.T @ np.array(y))
    # the twin's coefficients belong to [x; 1] / sqrt(2)
    np.testing.assert_allclose(agent.theta[0] * math.sqrt(0.5), wanted, rtol=1e-6, atol=1e-9)


def gaussian_posterior(prior, batches, weights, releases, stds, spread):
    """Posterior mean of theta from the joint normal law of all releases, in one go."""
    n, m, k = len(prior), batches[0][0].shape[1], len(batches)
    grams = [w * (z.T @ phi) for w, (z, phi) in zip(weights, batches)]
    owns = [w * w * spread * (z.T @ z) for w, (z, _) in zip(weights, batches)]
    H = np.cumsum(grams, axis=0)
    K = np.cumsum(owns, axis=0)
    cross = np.concatenate([h * prior for h in H])  # Cov(releases, theta)
    cov = np.empty((k * m, k * m))
    for i, j in itertools.product(range(k), repeat=2):
        block = (H[i] * prior) @ H[j].T + K[min(i, j)]
        cov[i * m : (i + 1) * m, j * m : (j + 1) * m] = block + (i == j) * stds[i] ** 2 * np.eye(m)
    assert cross.shape == (k * m, n)
    return cross.T @ np.linalg.solve(cov, np.concatenate(releases))


@pytest.mark.parametrize("independent", [True, False])
def test_the_filter_is_the_posterior_given_all_releases(independent):
    rng = np.random.default_rng(0)
    n = m = 4
    prior = np.array([0.5, 0.1, 0.2, 1.0])
    filter_ = RewardFilter(1, prior, m, 0.3, independent=independent)
    batches, weights, stds, releases = [], [0.7, 0.9, 1.3], [1.0, 2.0, 0.5], []
    for k in range(3):
        z, phi = rng.normal(size=(6, m)), rng.normal(size=(6, n))
        batches.append((z, phi))
        releases.append(rng.normal(size=m) * 3)
        filter_.gram[0] += z.T @ phi
        filter_.own[0] += z.T @ z
        weight = weights[k] if independent else 1.0
        found = filter_.take(releases[k][None], weight, stds[k])[0]
        if independent:
            wanted = gaussian_posterior(
                prior, batches, weights[: k + 1], releases, stds[: k + 1], 0.3
            )
        else:
            whole = [tuple(np.concatenate(parts) for parts in zip(*batches))]
            wanted = gaussian_posterior(prior, whole, [1.0], releases[k:], stds[k : k + 1], 0.3)
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)


def test_ample_budget_and_no_budget_agree():
    problem = problem_of(3000)
    seeds = range(1_001_000, 1_001_008)
    ample = begin(problem, seeds, Budget.zcdp(1e7))
    play(ample, problem, seeds, 3000)
    exact = begin(problem, seeds, None)
    play(exact, problem, seeds, 3000)
    theta = problem.instance(seeds).hidden["theta"]
    for estimate in (ample.theta[:, :-1], exact.theta[:, :-1]):
        cosine = (estimate * theta).sum(1) / np.linalg.norm(estimate, axis=1) / 2.0
        assert (cosine > 0.9).all()


@pytest.mark.parametrize("unit", UNITS)
def test_a_replicate_does_not_depend_on_its_batch(unit):
    problem = problem_of(150, **USERS)
    params = {"unit": unit, "first": 0.01}
    seeds = [5, 6, 7, 8]
    whole = begin(problem, seeds, Budget.zcdp(5.0), **params)
    alone = begin(problem, [7], Budget.zcdp(5.0), **params)
    np.testing.assert_array_equal(
        play(whole, problem, seeds, 150)[1][:, 2], play(alone, problem, [7], 150)[1][:, 0]
    )
    np.testing.assert_array_equal(whole.theta[2], alone.theta[0])
    assert whole.theta.any()


# ------------------------------------------------------------------ the planned schedule


def model_regret(schedule, horizon, noise, spread, prior):
    """1 - rho per round, by sums written out."""
    P, total = 0.0, 0.0
    for i, end in enumerate(schedule.ends):
        inner = sum(schedule.weights[j] * schedule.sizes[j] for j in range(i + 1))
        P += (schedule.scales[i] * inner) ** 2
        until = schedule.ends[i + 1] if i + 1 < len(schedule.ends) else horizon
        variance = noise**2 / P + spread / end
        total += (until - end) * (1.0 - math.sqrt(prior / (prior + variance)))
    return total


@pytest.mark.parametrize("noise", [5.0, 100.0])
def test_the_plan_is_a_minimum_and_spends_everybodys_budget(noise):
    arguments = {"noise": noise, "spread": 5.0, "prior": 0.0125}
    plan = planned(4000, 40, 1.2, **arguments)
    k = len(plan.ends)
    for j in range(k):
        cost = plan.weights[j] ** 2 * (plan.scales[j:] ** 2).sum()
        assert cost == pytest.approx(1.0, rel=1e-12)
    best = model_regret(plan, 4000, **arguments)
    rng = np.random.default_rng(1)
    for trial in range(40):
        bent = plan.scales * np.exp(rng.normal(size=k) * (0.3 if trial % 2 else 0.02))
        other = Schedule(plan.ends, 1 / np.sqrt(np.cumsum(bent[::-1] ** 2)[::-1]), bent)
        assert best <= model_regret(other, 4000, **arguments) * (1 + 1e-5)
    for decay in (0.5, 1.0, 1.25, 2.0):
        geometric = Schedule.geometric(4000, 40, 1.2, decay)
        assert best < model_regret(geometric, 4000, **arguments)


def test_a_short_horizon_has_a_plan():
    assert planned(2, 20, 1.1, noise=1.0, spread=1.0, prior=1.0).ends.tolist() == [2]


# ------------------------------------------------------------------ sensitivities


def test_public_directions_are_unit_vectors():
    rng = np.random.default_rng(0)
    features = (rng.normal(size=(50, 3, 4)) * rng.choice([1e-8, 0.3, 5], (50, 1, 1))).astype("f4")
    phi, out = np.empty((50, 5)), np.empty((50, 5))
    observed = rng.random(50) < 0.7
    centre = rng.normal(size=(50, 4)) * 0.2
    action = rng.integers(0, 3, 50)
    args = (features, action, observed, centre, 0.15, phi, out)
    assert one_pass_linear.centred_directions(*args) == 0
    norms = np.linalg.norm(out, axis=1)
    np.testing.assert_allclose(norms[observed], 1.0, rtol=1e-12)
    assert not out[~observed].any() and not phi[~observed].any()
    assert (np.linalg.norm(phi[:, :4], axis=1) <= 1 + 1e-12).all()
    action[7] = 3
    assert one_pass_linear.centred_directions(*args) == 8


def joint_row(x, reward, curvature, intercept=0.15, low=0.0, high=1.0):
    d = len(x)
    n = d + 1
    rows = np.empty((1, n * (n + 1) // 2 + n))
    one_pass_linear.joint_rows(
        x[None, None].astype(np.float32),
        np.zeros(1, np.int64),
        np.array([reward]),
        np.ones(1, bool),
        0.5 * (low + high),
        high - low,
        intercept,
        joint_weights(curvature),
        rows,
    )
    return rows[0]


vectors = st.lists(st.floats(-2, 2), min_size=3, max_size=3).map(np.array)


@settings(max_examples=200, deadline=None)
@given(
    x=vectors,
    y=vectors,
    r=st.floats(-3, 4),
    s=st.floats(-3, 4),
    q=st.sampled_from([0.05, 0.125, 0.3, 2.0]),
)
def test_replacing_a_private_round_moves_its_row_by_at_most_1(x, y, r, s, q):
    gap = np.linalg.norm(joint_row(x, r, q) - joint_row(y, s, q))
    assert gap <= 1 + 1e-9
    assert np.linalg.norm(joint_row(x, r, q)) <= 1 + 1e-9  # an unobserved round is a row of 0


@pytest.mark.parametrize("curvature", [0.01, 0.125, 0.4, 3.0])
def test_a_search_attains_the_joint_sensitivity(curvature):
    """Unit vectors at every angle, extreme rewards: the bound is attained and not exceeded."""
    worst = 0.0
    for angle in np.linspace(0, np.pi, 721):
        x, y = np.array([1.0, 0.0]), np.array([math.cos(angle), math.sin(angle)])
        for r, s in itertools.product((0.0, 1.0), repeat=2):
            rows = [joint_row(v, a, curvature, intercept=1e-6) for v, a in ((x, r), (y, s))]
            worst = max(worst, float(np.linalg.norm(rows[0] - rows[1])))
    assert worst == pytest.approx(1.0, abs=1e-4)
    assert worst <= 1 + 1e-6


def test_joint_rows_hold_the_record():
    x, r = np.array([0.3, -0.4]), 0.9
    v = np.append(x.astype(np.float32), 0.15) / math.sqrt(1 + 0.15**2)
    w = joint_weights(0.125)
    H = np.outer(v, v)
    half = [H[0, 0], *(math.sqrt(2) * H[0, 1:]), H[1, 1], math.sqrt(2) * H[1, 2], H[2, 2]]
    wanted = np.concatenate([w[0] * np.array(half), w[1] * 0.4 * v])
    np.testing.assert_allclose(joint_row(x, r, 0.125), wanted, atol=1e-7)
    np.testing.assert_allclose(joint_row(x, 9.0, 0.125, low=8.0, high=10.0)[-3:], 0.0, atol=1e-12)


def stacked(schedule, directions, rounds):
    """What unit rewards at the given rounds do to all releases, in units of sigma."""
    batch = np.searchsorted(schedule.ends, rounds)
    out = np.zeros((len(rounds), len(schedule.ends), directions.shape[1]))
    for t, (j, z) in enumerate(zip(batch, directions)):
        for i in range(j, len(schedule.ends)):
            out[t, i] = schedule.scales[i] * schedule.weights[j] * z
    return out.reshape(len(rounds), -1)


@pytest.mark.parametrize("kind", ["same", "random", "alternating", "orthogonal"])
@pytest.mark.parametrize("consecutive", [True, False])
def test_all_rewards_of_a_user_stay_within_the_reach(kind, consecutive):
    """Every vector of signs of a user's rewards, in one batch or spread over many."""
    rng = np.random.default_rng(2)
    k, width = 6, 8
    weights = LifetimeWeights(1, width, k)
    if kind == "random":
        raw = rng.normal(size=(k + 2, width))
    elif kind == "orthogonal":
        raw = np.eye(width)
    else:
        raw = np.tile(np.eye(width)[0], (k + 2, 1))
        if kind == "alternating":
            raw[1::2] *= -1
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    kept = []
    for z in raw:
        row = z[None].copy()
        weights.scale(np.array([3]), np.array([True]), row)
        other = z[None].copy()
        weights.scale(np.array([90]), np.array([False]), other)
        assert not other.any()
        kept.append(row[0])
    kept = np.array(kept)
    assert not kept[k:].any()
    schedule = planned(400, 20, 1.3, noise=30.0, spread=5.0, prior=0.01)
    last = int(schedule.ends[-1])
    rounds = np.arange(30, 30 + k) if consecutive else np.linspace(1, last, k).astype(int)
    effect = stacked(schedule, kept[:k], rounds)
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=k)))
    worst = np.linalg.norm(signs @ effect, axis=1).max()
    assert worst <= weights.reach
    if kind == "same" and consecutive:
        assert worst >= 0.999 * weights.reach
    if kind == "orthogonal":
        # nothing is lost, and far less is charged than k
        np.testing.assert_allclose(np.linalg.norm(kept[:k], axis=1), 1.0, atol=2e-6)
        assert weights.reach < k


@pytest.mark.parametrize("unit", UNITS)
def test_units_state_and_spend_what_was_asked(unit):
    problem = problem_of(200, **USERS)
    agent = begin(problem, [0, 1], Budget.approx(1.0, 1e-5), unit=unit)
    guarantee = agent.guarantee
    assert (guarantee.notion, guarantee.unit) == (UNITS[unit], unit)
    assert 1 - 1e-6 <= guarantee.epsilon(1e-5) <= 1 + 1e-9
    reach = {"reward": 1.0, "user-round": 1.0, "user": 4.0}
    event = agent.releaser.event
    wanted = reach.get(unit, math.sqrt(4 * (1 + 3 / math.sqrt(6))))
    assert event.sensitivity == pytest.approx(wanted)
    before = str(guarantee)
    play(agent, problem, [0, 1], 200)
    assert str(agent.guarantee) == before == str(agent.ledger.guarantee)


class Spy:
    """Keeps the records that go into a releaser."""

    def __init__(self, inner):
        self.inner, self.records = inner, []

    def add(self, records, directions=None):
        rows = records if directions is None else records[:, None] * directions
        self.records.append(np.array(rows))
        self.inner.add(records, directions)

    def __getattr__(self, name):
        return getattr(self.inner, name)


@pytest.mark.parametrize("unit", ["user", "user-rewards"])
def test_a_user_counts_with_her_first_rounds_only(unit):
    problem = problem_of(120, **USERS)
    agent = begin(problem, [0], Budget.zcdp(1.0), unit=unit, max_rounds_per_user=2)
    spy = Spy(agent.releaser)
    agent.releaser = spy
    instance = problem.instance([0])
    seen = {}
    for t in range(120):
        context = instance.context()
        action = agent.act(context)
        agent.observe(context, action, instance.respond(action).feedback)
        user = int(context.users[0])
        seen[user] = seen.get(user, 0) + 1
        assert spy.records[-1].any() == (seen[user] <= 2)
        if t < 119:
            instance.advance()


def test_users_must_be_bounded_and_identified():
    anonymous = problem_of(50)
    for unit in ("user", "user-rewards"):
        with pytest.raises(ParameterError, match="max_rounds_per_user"):
            begin(anonymous, [0], Budget.zcdp(1.0), unit=unit)
        agent = begin(anonymous, [0], Budget.zcdp(1.0), unit=unit, max_rounds_per_user=3)
        with pytest.raises(ParameterError, match="identifies users"):
            play(agent, anonymous, [0], 1)
    for bad in (
        {"unit": "round"},
        {"curvature": 0.0},
        {"intercept": 0.0},
        {"max_rounds_per_user": 0},
    ):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            make_agent("one-pass-linear", **bad)


@pytest.mark.parametrize("unit", UNITS)
def test_an_impossible_action_is_refused(unit):
    problem = problem_of(50, **USERS)
    agent = begin(problem, [0, 1], Budget.zcdp(1.0), unit=unit)
    instance = problem.instance([0, 1])
    context = instance.context()
    feedback = instance.respond(agent.act(context)).feedback
    with pytest.raises(ActionError, match="candidate 5 of replicate 1"):
        agent.observe(context, np.array([0, 5]), feedback)


def test_joint_policy_sees_private_rounds_through_releases_only():
    """With the releases held fixed, other contexts and rewards change no later action."""
    problem = problem_of(300)
    seeds = [4, 5]

    class Fixed:
        event = clipped_count = None

        def __init__(self, releases):
            self.rounds, self.releases = 0, releases

        def add(self, records, directions=None):
            self.rounds += 1

        def release(self):
            return self.releases[self.rounds - 1][0]

        @property
        def noise_std(self):
            return self.releases[self.rounds - 1][1]

    def run(agent, scramble):
        rng = np.random.default_rng(0)
        instance, actions, releases = problem.instance(seeds), [], []
        for t in range(300):
            context = instance.context()
            action = agent.act(context)
            actions.append(action)
            feedback = instance.respond(action).feedback
            if scramble:
                context = context._replace(features=rng.permuted(context.features, axis=-1))
                feedback = feedback._replace(reward=rng.random(2))
            agent.observe(context, action, feedback)
            releases.append((agent.releaser.release(), agent.releaser.noise_std))
            if t < 299:
                instance.advance()
        return np.array(actions), releases

    first = begin(problem, seeds, Budget.zcdp(5.0), unit="user-round")
    actions, releases = run(first, scramble=False)
    assert first.theta.any()
    second = begin(problem, seeds, Budget.zcdp(5.0), unit="user-round")
    second.releaser = Fixed(releases)
    np.testing.assert_array_equal(run(second, scramble=True)[0], actions)


# ------------------------------------------------------------------ how it fares


def test_every_unit_learns():
    rounds, seeds = 3000, range(1_000_500, 1_000_516)
    problem = problem_of(rounds, **USERS)
    chance = play(make_begun("random", problem, seeds), problem, seeds, rounds)[0]
    for unit in UNITS:
        agent = begin(problem, seeds, Budget.zcdp(2.0), unit=unit)
        gap = chance - play(agent, problem, seeds, rounds)[0]
        assert gap.mean() > 4 * gap.std(ddof=1) / math.sqrt(len(gap))


def make_begun(name, problem, seeds):
    agent = make_agent(name)
    agent.set_up(problem.info, AgentStreams(seeds), None)
    return agent


@pytest.mark.parametrize(("unit", "share"), [("reward", 1.25), ("user-round", 2.5)])
def test_rewards_need_not_be_centred(unit, share):
    """Expected rewards squeezed around a level far off the middle are learned from all the same.

    With private contexts the level multiplies the noise in the mean of x, so it costs more.
    """
    seeds = range(1_000_800, 1_000_816)
    problem = problem_of(2500, dim=6, reward="linear")
    budget = Budget.zcdp(1.0)

    def run(level):
        agent = begin(problem, seeds, budget, unit=unit)

        def change(outcome):
            return level + 0.3 * (outcome.expected - 0.5)

        return play(agent, problem, seeds, 2500, change)[0].mean()

    centred = run(0.5)
    chance = play(make_begun("random", problem, seeds), problem, seeds, 2500)[0].mean()
    for level in (0.2, 0.85):
        found = run(level)
        assert found < share * centred
        assert found < 0.6 * chance


def test_the_releaser_is_a_weighted_sum_that_ships():
    problem = problem_of(100)
    agent = begin(problem, [0], Budget.zcdp(1.0))
    assert isinstance(agent.releaser, WeightedSum)
    assert agent.clipped_count.tolist() == [0]
    play(agent, problem, [0], 100, change=lambda outcome: outcome.expected + 1.0)
    assert agent.clipped_count[0] > 50
