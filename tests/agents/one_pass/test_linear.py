"""one-pass-linear: exact sums, units of protection, sensitivities, levels of rewards."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

import dpb_gym
from dpb_agents.recommendation import one_pass_linear, one_pass_linear_joint
from dpb_agents.recommendation.lifetime_weights import LifetimeWeights
from dpb_agents.recommendation.one_pass_linear_joint import joint_weights
from dpb_gym.agent import plays_stretches
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import ActionError, AgentError, ParameterError
from dpb_gym.kernels.filters import filter_step
from dpb_gym.play.player import read_only
from dpb_gym.privacy import Budget, ReleaseModel, Schedule, WeightedSum
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.problems.base import Feedback
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams

SMALL = {"dim": 5, "n_arms": 20}
USERS = {"interactions_per_user": 4, "user_order": "shuffled"}
AGENTS = {
    ("one-pass-linear", None): ("central", "reward"),
    ("one-pass-linear", 4): ("central", "user-rewards"),
    ("one-pass-linear-joint", None): ("joint", "user-round"),
    ("one-pass-linear-joint", 4): ("joint", "user"),
}


def problem_of(horizon, **kwargs):
    return dpb_gym.make_problem("DPB/Recommendation-v0", horizon=horizon, **{**SMALL, **kwargs})


def begin(problem, seeds, budget, name="one-pass-linear", **params):
    agent = make_agent(name, **params)
    agent.set_up(problem.info, AgentStreams(seeds), budget)
    return agent


def lane(state, b):
    """Return the state of replicate b."""
    return type(state)(*(part[b] for part in state))


def play(agent, problem, seeds, rounds, change=None):
    """Return regret and actions, where possible from compiled code, which has the same bits."""
    instance = problem.instance(seeds)
    regret = np.zeros(len(seeds))
    actions = []
    if change is None and plays_stretches(agent):
        while len(actions) < rounds:
            stretch = instance.move(rounds - len(actions))
            view = stretch.view()
            chosen = agent.play(view)
            expected, observed, _ = stretch.outcome(view, chosen, "agent")
            regret += instance.regret(expected, observed, stretch.best).sum(axis=0)
            actions.extend(chosen)
            if len(actions) < rounds:
                instance.advance()
        return regret, np.array(actions)
    for t in range(rounds):
        context = locked(instance.context())
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


# ------------------------------------------------------------------ exact and noisy sums


def james_stein(x):
    """Return kappa, the estimated share of the candidates' mean that is not chance."""
    chance = (1 + 2 / x.shape[1]) * x.var(0, ddof=1).sum() / len(x) / (x.mean(0) ** 2).sum()
    return np.clip(1.0 - chance, 0.0, 1.0 - 1.0 / len(x))


def chosen_records(problem, agent, seed, rounds):
    """Play one replicate; return the rows [x; 1; xbar], unit directions and rewards."""
    instance = problem.instance([seed])
    phi, z, r = [], [], []
    for t in range(rounds):
        context = locked(instance.context())
        action = agent.act(context)
        feedback = instance.respond(action).feedback
        agent.observe(context, action, feedback)
        x = context.features[0].astype(float)
        own = x[action[0]] - (james_stein(x) if agent.known.contrast else 0.0) * x.mean(0)
        phi.append(np.concatenate([x[action[0]], [1.0], x.mean(0)]))
        own = np.append(own / np.linalg.norm(own), agent.known.intercept)
        z.append(own / np.linalg.norm(own))
        r.append(feedback.reward[0] - 0.5)
        if t < rounds - 1:
            instance.advance()
    return np.array(phi), np.array(z), np.array(r)


def test_without_budget_it_is_the_posterior_given_exact_sums():
    """theta from the nearly exact sums of r z of every batch."""
    problem = problem_of(130)
    agent = begin(problem, [3], None, effect=0.0, link="identity")
    phi, z, r = chosen_records(problem, agent, 3, 130)
    ends = agent.plan.sums.schedule.ends
    parts = [slice(a, b) for a, b in itertools.pairwise([0, *ends])]
    batches = [(z[part], phi[part]) for part in parts]
    sums = list(np.cumsum([z[part].T @ r[part] for part in parts], axis=0))
    # the features have length 1; each coefficient, the level too, has the prior variance
    # (1/2)^2 / d, and what a round's candidates share has none
    k, prior = len(ends), np.repeat([0.05, 0.0], [6, 5])
    wanted = gaussian_posterior(prior, batches, [1.0] * k, sums, [1e-3] * k, 0.25)[:6]
    np.testing.assert_allclose(agent.state.theta[0], wanted, rtol=1e-5, atol=1e-7)


def test_the_prior_mean_is_played_and_then_corrected():
    problem = problem_of(300)
    known = problem.instance([2]).hidden["theta"][0]
    for name, k in AGENTS:
        params = {"prior_mean": known, "max_rounds_per_user": k}
        agent = begin(problem_of(300, **USERS), [2], Budget.zcdp(1.0), name, **params)
        np.testing.assert_array_equal(agent.state.theta[0, :-1], known)
        assert agent.state.theta[0, -1] == 0.0
    with pytest.raises(ParameterError, match="prior_mean must have shape"):
        begin(problem, [2], None, prior_mean=[1.0])


def gaussian_posterior(prior, batches, weights, releases, stds, spread):
    """Return the posterior mean of theta from the joint distribution of all releases."""
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


def test_the_filter_is_the_posterior_given_all_releases():
    rng = np.random.default_rng(0)
    n = m = 4
    prior = np.array([0.5, 0.1, 0.2, 1.0])
    mean, covariance = np.zeros(n + m), np.zeros((n + m, n + m))
    covariance[range(n), range(n)] = prior
    batches, weights, stds, releases = [], [0.7, 0.9, 1.3], [1.0, 2.0, 0.5], []
    for k in range(3):
        z, phi = rng.normal(size=(6, m)), rng.normal(size=(6, n))
        batches.append((z, phi))
        releases.append(rng.normal(size=m) * 3)
        gram, own, noise = z.T @ phi, z.T @ z, stds[k] ** 2
        filter_step(mean, covariance, gram, own, weights[k], 0.3, releases[k], noise)
        wanted = gaussian_posterior(prior, batches, weights[: k + 1], releases, stds[: k + 1], 0.3)
        np.testing.assert_allclose(mean[:n], wanted, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("width", [1.0, 3.0])
def test_the_linearised_link_matches_mean_and_variance(width):
    """Against scipy's sigmoid, differences and Bernoulli's variance, rewards 0 or `width`."""
    rng = np.random.default_rng(1)
    phi, mean, v = (rng.normal(size=(40, n)) for n in (3, 5, 2))
    offset, slopes = np.ones((40, 2)), np.empty(40)
    agent = begin(problem_of(9), [0], None)
    known, first = agent.known._replace(width=width), lane(agent.state, 0)
    for i in range(40):
        state = first._replace(mean=mean[i], offset=offset[i])
        slopes[i] = one_pass_linear.bend(known, state, phi[i], v[i])
    bent = slopes[:, None] * v

    def expected(u):
        return width * (expit(4.0 * u / width) - 0.5)

    u = (phi * mean[:, :3]).sum(1)
    slope = (expected(u + 1e-5) - expected(u - 1e-5)) / 2e-5
    np.testing.assert_allclose(bent, slope[:, None] * v, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(offset - 1.0, (expected(u) - slope * u)[:, None] * v, atol=1e-8)
    chance = expected(u) / width + 0.5
    variance = width**2 * chance * (1.0 - chance)
    np.testing.assert_allclose(bent, (variance / (width / 2.0) ** 2)[:, None] * v, rtol=1e-9)


def test_exact_sums_of_logistic_rewards_find_what_scipy_finds():
    """The estimate is near the mode of all records; that of the identity link is not."""
    problem, rounds = problem_of(12_000), 12_000
    agents = [begin(problem, [0], None, effect=0.0, link=link) for link in ("logistic", "identity")]
    rng, theta = np.random.default_rng(2), np.array([3.0, -2.0, 1.0, 0.0, 2.0])
    first = problem.instance([0]).context()
    x = rng.normal(size=(rounds, 5)).astype("f4")
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    paid = rng.random(rounds) < expit(x @ theta + 0.5)
    for row, reward in zip(x, paid):
        context = first._replace(features=np.repeat(row[None, None], 5, axis=1))
        for agent in agents:
            agent.observe(context, np.array([0]), Feedback(np.array([float(reward)])))
    until = int(agents[0].plan.sums.schedule.ends[-1])
    logits = 4.0 * np.column_stack([x, np.ones(rounds)])[:until]
    signs = np.where(paid[:until], 1.0, -1.0)

    def loss(t):
        return np.logaddexp(0.0, -signs * (logits @ t)).sum() + 0.5 * (t**2).sum() / 0.05

    wanted = minimize(loss, np.zeros(6)).x
    chance = expit(logits @ wanted)
    curvature = (logits.T * chance * (1.0 - chance)) @ logits + np.eye(6) / 0.05
    distance, missed = (
        math.sqrt((agent.state.theta[0] - wanted) @ curvature @ (agent.state.theta[0] - wanted))
        for agent in agents
    )
    # in standard deviations of the posterior
    assert distance < 1.0 and missed > 10.0


@pytest.mark.parametrize("name", ["one-pass-linear", "one-pass-linear-joint"])
def test_the_features_unit_does_not_matter(name):
    """Actions are the same in any unit of the features."""
    problem, rng = problem_of(600), np.random.default_rng(3)
    first, x = problem.instance([0, 1]).context(), rng.normal(size=(600, 2, 5, 5)).astype("f4")
    coins, actions = rng.random((600, 2)), []
    for unit in (0.125, 1.0, 8.0):
        agent = begin(problem, [0, 1], Budget.zcdp(5.0), name)
        for row, coin in zip(x, coins):
            context = first._replace(features=row * np.float32(unit))
            actions.append(agent.act(context))
            paid = coin < expit(row[[0, 1], actions[-1]] @ np.ones(5))
            agent.observe(context, actions[-1], Feedback(paid.astype(float)))
        assert (agent.state.theta[:, :5] > 0.0).mean() > 0.8
    played = np.reshape(actions, (3, 600, 2))
    assert (played == played[1]).all()


def test_ample_budget_and_no_budget_agree():
    problem = problem_of(3000)
    seeds = range(1_001_000, 1_001_008)
    ample = begin(problem, seeds, Budget.zcdp(1e7))
    play(ample, problem, seeds, 3000)
    exact = begin(problem, seeds, None)
    play(exact, problem, seeds, 3000)
    theta = problem.instance(seeds).hidden["theta"]
    for estimate in (ample.state.theta[:, :-1], exact.state.theta[:, :-1]):
        cosine = (estimate * theta).sum(1) / np.linalg.norm(estimate, axis=1) / 2.0
        # greedy play leaves some directions to chance
        assert cosine.mean() > 0.95 and cosine.min() > 0.8


@pytest.mark.slow
@pytest.mark.parametrize(("name", "k"), AGENTS)
def test_a_replicate_does_not_depend_on_its_batch(name, k):
    problem = problem_of(150, **USERS)
    seeds = [5, 6, 7, 8]
    whole = begin(problem, seeds, Budget.zcdp(5.0), name, first=0.01, max_rounds_per_user=k)
    alone = begin(problem, [7], Budget.zcdp(5.0), name, first=0.01, max_rounds_per_user=k)
    np.testing.assert_array_equal(
        play(whole, problem, seeds, 150)[1][:, 2], play(alone, problem, [7], 150)[1][:, 0]
    )
    np.testing.assert_array_equal(whole.state.theta[2], alone.state.theta[0])
    assert whole.state.theta.any()


# ------------------------------------------------------------------ the planned schedule


def model_regret(schedule, horizon, noise, spread, prior):
    """Return the sum of 1 - rho over rounds, by explicit sums."""
    P, total = 0.0, 0.0
    for i, end in enumerate(schedule.ends):
        inner = sum(schedule.weights[j] * schedule.sizes[j] for j in range(i + 1))
        P += (schedule.scales[i] * inner) ** 2
        until = schedule.ends[i + 1] if i + 1 < len(schedule.ends) else horizon
        variance = noise**2 / P + spread / end
        total += (until - end) * (1.0 - math.sqrt(prior / (prior + variance)))
    return total


@pytest.mark.parametrize("noise", [5.0, 100.0])
def test_the_schedule_is_a_minimum_and_spends_the_budget_of_every_record(noise):
    arguments = {"noise": noise, "spread": 5.0, "prior": 0.0125}
    model = ReleaseModel(4000, noise, 1.0, arguments["spread"], arguments["prior"])
    plan = model.running(Schedule.geometric(4000, 40, 1.2, 1.0), 1.0)
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


def test_a_short_horizon_has_a_schedule():
    agent = begin(problem_of(2), [0], Budget.zcdp(1.0))
    assert agent.plan.sums.schedule.ends.tolist() == [2]


def test_the_anytime_schedule_does_not_depend_on_the_horizon():
    short, long = (begin(problem_of(T), [0], Budget.zcdp(1.0), anytime=True) for T in (200, 900))
    np.testing.assert_array_equal(short.plan.sums.schedule.scales, long.plan.sums.schedule.scales)
    assert short.plan.sums.schedule.ends[-1] > 1e8
    assert short.curator.guarantee.rho == pytest.approx(1.0)


# ------------------------------------------------------------------ sensitivities


def direction(x, others=(), contrast=False):
    known = begin(problem_of(9, dim=len(x)), [0], None, intercept=0.35).known
    features = np.array([x, *others])
    known = known._replace(contrast=contrast)
    return one_pass_linear.direction(known, one_pass_linear.own_part(known, features, 0))


def test_directions_are_unit_vectors_for_features_of_any_length():
    rng = np.random.default_rng(0)
    scale = rng.choice([1e-8, 0.3, 5], (50, 1, 1))
    features = (rng.normal(size=(50, 3, 4)) * scale).astype("f4")
    observed = rng.random(50) < 0.7
    action = rng.integers(0, 3, 50)
    problem = problem_of(9, dim=4, n_candidates=3)
    agent = begin(problem, range(50), None, intercept=0.15)
    agent.known = agent.known._replace(contrast=True)
    agent._bind()
    spy = Spy(agent.plan.sums)
    agent.plan = agent.plan._replace(sums=spy)
    context = problem.instance(range(50)).context()._replace(features=features)
    # the middle of the range is 1/2, so the records are the directions
    feedback = Feedback(np.full(50, 1.5), observed=observed)
    agent.observe(context, action, feedback)
    (out,), moments = spy.records, agent.state.moments
    phi = np.array(
        [
            one_pass_linear.regressor(agent.known, x.astype(float), k)[0]
            for x, k in zip(features, action)
        ]
    )
    np.testing.assert_allclose(np.linalg.norm(out[observed], axis=1), 1.0, rtol=1e-12)
    assert not out[~observed].any() and not agent.state.gram[~observed].any()
    everyone = features.astype(float)
    x = everyone[np.arange(50), action]
    np.testing.assert_array_equal(phi[:, :5], np.column_stack([x, np.ones(50)]))
    shares = np.array([james_stein(candidates) for candidates in everyone])
    assert (shares == 0.0).any() and (shares > 0.2).any()
    own = x - shares[:, None] * everyone.mean(1)
    mean = everyone.mean(1)
    np.testing.assert_allclose(phi[:, 5:], mean, rtol=1e-6, atol=1e-12)
    squares = (mean**2).sum(1), (everyone**2).sum(2).mean(1), np.ones(50)
    wanted = np.column_stack([mean, *squares]) * observed[:, None]
    np.testing.assert_allclose(moments, wanted, rtol=1e-6, atol=1e-12)
    np.testing.assert_allclose(
        direction([0.3, 0.4], [[0.3, 0.4]] * 2, True), direction([0.3, 0.4]), atol=1e-9
    )
    wanted = own / np.linalg.norm(own, axis=1, keepdims=True) / math.sqrt(1 + 0.15**2)
    np.testing.assert_allclose(out[observed, :4], wanted[observed], rtol=1e-6, atol=1e-12)
    assert not direction([0.0, 0.0]).any()
    action[7], observed[7] = 3, True
    with pytest.raises(ActionError, match="candidate 3 of replicate 7"):
        agent.observe(context, action, feedback)


def joint_row(v, reward, curvature):
    """Return the half of v v' and the response times v, with their weights."""
    H = np.outer(v, v)
    upper = np.triu_indices(len(v))
    half = np.where(upper[0] == upper[1], 1.0, math.sqrt(2.0)) * H[upper]
    w_H, w_u, _ = joint_weights(curvature)
    return np.concatenate([w_H * half, w_u * reward * v])


def round_rows(features, rewards, curvature, length=0.0, share=0.0, intercept=0.35):
    """Return the agent's rows of private rounds in which candidate 0 was chosen.

    Args:
        features: ``(n, m, d)``.
        rewards: In [-1/2, 1/2], or beyond, ``(n,)``.
        curvature: w_H^2 / w_u^2.
        length: Typical length; 0: lengths are relative to the candidates.
        share: w_l^2; 0: rows have no log length.
        intercept: Value of the constant feature.
    """
    x = np.asarray(features, np.float64)[:, None]
    n, _, m, d = x.shape
    agent = recorder(m, d, intercept, share > 0.0)
    w_H, w_u, w_l = joint_weights(curvature, share).tolist()
    agent.known = agent.known._replace(w_H=w_H, w_u=w_u, w_l=w_l)
    agent.state.length[:] = length
    agent._bind()
    actions, responses = np.zeros((n, 1), np.int64), np.asarray(rewards)[:, None] + 0.5
    seen, z = np.ones((n, 1), bool), np.zeros((n, 1, 0, 0))
    contexts = (read_only(x),)
    _, rows, _ = agent._record(contexts, read_only(actions), responses, seen, z)
    return rows[:, 0]


@functools.cache
def recorder(m, d, intercept, learns):
    """Return an agent of one replicate, with the log lengths in its rows or without."""
    problem = problem_of(9, dim=d, n_candidates=m)
    params = {"intercept": intercept, "length": None if learns else 1.0}
    return begin(problem, [0], None, "one-pass-linear-joint", **params)


def round_row(features, reward, *settings, **options):
    """Return the row of one round; see `round_rows`."""
    return round_rows(np.asarray(features)[None], [reward], *settings, **options)[0]


vectors = st.lists(st.floats(-2, 2, width=32), min_size=3, max_size=3)


@settings(max_examples=200, deadline=None)
@given(
    x=vectors,
    y=vectors,
    r=st.floats(-3, 4),
    s=st.floats(-3, 4),
    q=st.sampled_from([0.05, 0.125, 0.2, 2.0]),
)
def test_replacing_a_private_round_moves_its_row_by_at_most_1(x, y, r, s, q):
    one, other = round_row([x], r, q), round_row([y], s, q)
    assert np.linalg.norm(one - other) <= 1 + 1e-9
    assert np.linalg.norm(one) <= 1 + 1e-9  # an unobserved round is a row of 0


@pytest.mark.parametrize("curvature", [0.01, 0.125, 0.2, 0.4, 3.0])
@pytest.mark.parametrize("dim", [2, 3, 8])
def test_a_search_for_the_worst_pair_of_records_finds_the_bound(curvature, dim):
    """Hill climbing from random pairs of directions, rewards and lengths up to 1.

    With a small constant feature, v is nearly any vector in the unit ball.
    """
    rng = np.random.default_rng(dim)

    def gaps(pairs):
        x = pairs[..., :-1] / np.maximum(1.0, np.linalg.norm(pairs[..., :-1], axis=2))[..., None]
        x, rewards = x.reshape(-1, 1, dim), pairs[..., -1].ravel()
        rows = round_rows(x, rewards, curvature, length=1.0, intercept=1e-3)
        return np.linalg.norm(rows[::2] - rows[1::2], axis=1)

    pairs, steps = rng.normal(size=(6, 2, dim + 1)), np.ones(6)
    best = gaps(pairs)
    for _ in range(600):
        trial = pairs + steps[:, None, None] * rng.normal(size=pairs.shape)
        distances = gaps(trial)
        better = distances > best
        pairs[better], best[better] = trial[better], distances[better]
        steps = np.where(better, steps, np.maximum(steps * 0.98, 1e-4))
    assert best.max() == pytest.approx(1.0, abs=2e-3)
    assert best.max() <= 1 + 1e-9


@pytest.mark.parametrize("curvature", [0.01, 0.125, 0.2, 3.0])
@pytest.mark.parametrize("shape", [(1, 2), (2, 3), (3, 4)])
@pytest.mark.parametrize(("length", "share"), [(0.0, 0.0), (0.7, 0.0), (0.0, 0.02), (0.0, 0.3)])
def test_a_search_for_the_worst_pair_of_rounds_finds_the_bound(curvature, shape, length, share):
    """Hill climbing from 24 random pairs of candidates of uneven lengths, and rewards."""
    rng = np.random.default_rng(shape[1])

    def gaps(pairs, rewards):
        rows = round_rows(pairs.reshape(-1, *shape), rewards.ravel(), curvature, length, share)
        return np.linalg.norm(rows[::2] - rows[1::2], axis=1)

    sizes = [0.1, 1.0, 10.0] if length == 0.0 else [0.3, 0.5]
    pairs = rng.normal(size=(24, 2, *shape)) * rng.choice(sizes, (24, 2, shape[0], 1))
    pairs *= np.array([1e-5, 1e5] if share else [1.0, 1.0])[:, None, None]
    rewards, steps = rng.normal(size=(24, 2)), np.ones(24)
    best = gaps(pairs, rewards)
    for _ in range(800):
        step = steps[:, None, None, None]
        trial = pairs * np.exp(step * rng.normal(size=(24, 2, shape[0], 1)))
        size = np.abs(pairs).mean(axis=(2, 3), keepdims=True)
        trial += step * size * rng.normal(size=pairs.shape)
        other = rewards + steps[:, None] * rng.normal(size=(24, 2))
        distances = gaps(trial, other)
        better = distances > best
        pairs[better], rewards[better], best[better] = (
            trial[better],
            other[better],
            distances[better],
        )
        steps = np.where(better, steps, np.maximum(steps * 0.98, 1e-4))
    assert best.max() == pytest.approx(1.0, abs=2e-2)
    assert best.max() <= 1 + 1e-9


def test_replacing_a_record_of_any_length_moves_its_row_by_at_most_1():
    """Rows of vectors in the unit ball are no farther apart than those of unit vectors."""
    rng = np.random.default_rng(4)
    for curvature in (0.05, 0.2, 1.0, 5.0):
        for _ in range(500):
            x = rng.normal(size=(2, 3))
            x *= rng.random((2, 1)) ** 0.3 / np.linalg.norm(x, axis=1, keepdims=True)
            rewards = rng.choice([-0.5, 0.5], 2)
            rows = round_rows(x[:, None], rewards, curvature, length=1.0)
            # unit vectors of the same inner product
            unit = np.zeros((2, 5))
            unit[:, :3] = x
            unit[[0, 1], [3, 4]] = np.sqrt(1 - (x**2).sum(axis=1))
            longest = round_rows(unit[:, None], rewards, curvature, length=1.0)
            gap = np.linalg.norm(longest[0] - longest[1])
            assert np.linalg.norm(rows[0] - rows[1]) <= gap + 1e-12 <= 1 + 1e-9


@pytest.mark.parametrize("size", [0.01, 1.0, 30.0])
def test_rows_of_rounds_hold_lengths_relative_to_a_public_one(size):
    rng = np.random.default_rng(6)
    x = size * rng.normal(size=(4, 3)).astype("f4")
    z = x[0] - james_stein(x) * x.mean(0)
    relative = np.linalg.norm(z) / 0.7
    v = np.append(z / np.linalg.norm(z) * min(1.0, relative), 0.35) / math.sqrt(1 + 0.35**2)
    wanted = joint_row(v, 0.4 / max(1.0, relative), 0.2)
    np.testing.assert_allclose(round_row(x, 0.4, 0.2, 0.7), wanted, atol=1e-6)
    np.testing.assert_allclose(round_row(8 * x, 0.4, 0.2, 5.6), wanted, atol=1e-6)


@pytest.mark.parametrize("size", [1e-30, 0.01, 1.0, 100.0, 1e30])
def test_a_row_has_the_mean_log_length_of_the_candidates(size):
    rng = np.random.default_rng(7)
    x = size * rng.normal(size=(5, 3)).astype("f4")
    x = x.astype(float)
    z = x - james_stein(x) * x.mean(0)
    octaves = np.clip(np.log2(np.linalg.norm(z, axis=1)), -8, 8)
    row = round_row(x, 0.4, 0.2, share=0.02)
    assert row[-1] == pytest.approx(math.sqrt(0.02) * octaves.mean() / 16, abs=1e-7)
    np.testing.assert_allclose(row[:-1], math.sqrt(0.98) * round_row(x, 0.4, 0.2), rtol=1e-9)
    assert round_row(x, 0.4, 0.2, length=size, share=0.02)[-1] == 0.0
    assert not round_row(0.0 * x, 0.4, 0.2, share=0.02).any()


def uneven_rounds(rounds):
    """Return features whose coordinates share a part that makes rounds of its direction longer."""
    rng = np.random.default_rng(20)
    x = np.sqrt(0.1) * rng.standard_normal((rounds, 5, 10), np.float32)
    return x + np.sqrt(0.9 / 0.1) * x[..., :1]


def late_regret(agents, horizon, budget):
    """Return the regret in the last half of the rounds, of all replicates."""
    result = dpb_gym.evaluate(
        "DPB/Recommendation-v0",
        {name: ("one-pass-linear-joint", None, params) for name, params in agents.items()},
        horizon=horizon,
        replicates=4,
        seed=7,
        checkpoints=[horizon // 2],
        env_kwargs={"dim": 10, "contexts": uneven_rounds(horizon)},
        budgets=[budget],
        progress=False,
    )
    late = dict.fromkeys(agents, 0.0)
    for row in result.records():
        late[row["agent"]] += row["regret"] * (1 if row["round"] == horizon else -1)
    return late


@pytest.mark.parametrize(("budget", "rounds", "most"), [(None, 6000, 0.5), ("rho=1", 12_000, 0.75)])
def test_a_typical_length_removes_the_bias_where_lengths_depend_on_the_direction(
    budget, rounds, most, monkeypatch
):
    late = late_regret({"learnt": {}, "public": {"length": 3.0}}, rounds, budget)
    agent = one_pass_linear_joint.OnePassLinearJoint
    constants = agent._constants
    # as without a trusted curator: rows have no length, which is never learnt
    monkeypatch.setattr(agent, "_constants", lambda self, info, _: constants(self, info, False))
    relative = late_regret({"relative": {}}, rounds, budget)["relative"]
    assert late["learnt"] < most * relative and late["public"] < most * relative


@pytest.mark.parametrize("size", [1e-4, 0.02, 1.0, 50.0, 1e4])
@pytest.mark.parametrize(
    ("budget", "params", "learnt"),
    [
        ("rho=1", {}, True),
        (None, {}, True),
        ("rho=1", {"max_rounds_per_user": 2}, True),
        ("rho=0.0001", {}, False),
        ("rho=1@local", {}, False),
        ("rho=1", {"length": 3.0}, False),
    ],
)
def test_the_typical_length_is_known_to_a_tenth_when_it_is_used(size, budget, params, learnt):
    rounds, m, d = 3000, 5, 3
    x = size * np.random.default_rng(8).standard_normal((rounds, m, d), np.float32)
    users = {"interactions_per_user": 2} if "max_rounds_per_user" in params else {}
    problem = dpb_gym.make_problem(
        "DPB/Recommendation-v0", horizon=rounds, dim=d, contexts=x, **users
    )
    agent = begin(problem, range(8), budget, "one-pass-linear-joint", **params)
    play(agent, problem, range(8), rounds)
    trusted = not str(budget).endswith("@local")
    assert bool(agent.known.w_l) == (trusted and "length" not in params)
    z = np.array([own - james_stein(own) * own.mean(0) for own in x.astype(float)])
    octaves = np.log2(np.linalg.norm(z, axis=2)).mean()
    if learnt and abs(octaves) < 7:
        error = np.log2(agent.state.length[:, 0]) - octaves
        assert 0.0 < np.abs(error).max() < 3 * one_pass_linear_joint.KNOWN
    else:
        np.testing.assert_array_equal(agent.state.length, params.get("length", 0.0))


@pytest.mark.parametrize("size", [0.2, 1.0, 30.0])
def test_rows_of_rounds_hold_lengths_relative_to_the_candidates(size):
    """A shorter candidate has shorter slopes, the reward of a longer one is divided."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(4, 3)).astype("f4").astype(float) + 1.0
    x[0] *= size
    x = x.astype("f4").astype(float)
    z = x - james_stein(x) * x.mean(0)
    assert james_stein(x) > 0 or size == 30.0
    length = np.linalg.norm(z[0]) / np.sqrt((z**2).sum(axis=1).mean())
    assert (length > 1) == (size > 1)
    v = np.append(z[0] / np.linalg.norm(z[0]), 0.35) / math.sqrt(1 + 0.35**2)
    v[:3] *= min(1.0, length)
    wanted = joint_row(v, 0.4 / max(1.0, length), 0.2)
    for unit in (1e-3, 1.0, 1e4):
        np.testing.assert_allclose(round_row(unit * x, 0.4, 0.2), wanted, atol=1e-6)
    assert not round_row(0.0 * x, 0.4, 0.2).any()


def test_joint_rows_hold_the_record():
    v = direction([0.3, -0.4])
    np.testing.assert_allclose(v * math.sqrt(1 + 0.35**2), [0.6, -0.8, 0.35], rtol=1e-6)
    w = joint_weights(0.125)
    H = np.outer(v, v)
    half = [H[0, 0], *(math.sqrt(2) * H[0, 1:]), H[1, 1], math.sqrt(2) * H[1, 2], H[2, 2]]
    wanted = np.concatenate([w[0] * np.array(half), w[1] * 0.4 * v])
    np.testing.assert_allclose(round_row([[0.3, -0.4]], 0.4, 0.125), wanted, atol=1e-12)


def stacked(schedule, directions, rounds):
    """Return the effect of unit rewards at the given rounds on all releases, in units of sigma."""
    batch = np.searchsorted(schedule.ends, rounds)
    out = np.zeros((len(rounds), len(schedule.ends), directions.shape[1]))
    for t, (j, z) in enumerate(zip(batch, directions)):
        for i in range(j, len(schedule.ends)):
            out[t, i] = schedule.scales[i] * schedule.weights[j] * z
    return out.reshape(len(rounds), -1)


@pytest.mark.parametrize("kind", ["same", "random", "alternating", "orthogonal"])
@pytest.mark.parametrize("consecutive", [True, False])
def test_all_rewards_of_a_user_move_the_releases_within_the_reach(kind, consecutive):
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
    start = Schedule.geometric(400, 20, 1.3, 1.0)
    schedule = ReleaseModel(400, 30.0, 1.0, 5.0, 0.01).running(start, 1.0)
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


@pytest.mark.parametrize(("name", "k"), AGENTS)
def test_agents_state_and_spend_their_budget(name, k):
    problem = problem_of(200, **USERS)
    agent = begin(problem, [0, 1], Budget.approx(1.0, 1e-5), name, max_rounds_per_user=k)
    guarantee = agent.curator.guarantee
    assert (guarantee.notion, guarantee.unit) == AGENTS[name, k]
    assert 1 - 1e-6 <= guarantee.epsilon(1e-5) <= 1 + 1e-9
    reach = {"reward": 1.0, "user-round": 1.0, "user": 4.0}
    wanted = reach.get(guarantee.unit, math.sqrt(4 * (1 + 3 / math.sqrt(6))))
    assert agent.plan.sums.sensitivity == pytest.approx(wanted)
    before = str(guarantee)
    play(agent, problem, [0, 1], 200)
    assert str(agent.curator.guarantee) == before


class Spy:
    """Store the records that are added to a releaser."""

    def __init__(self, inner):
        self.inner, self.records = inner, []

    def add(self, records, along=None, **users):
        rows = records if along is None else records[:, None] * along
        self.records.append(np.array(rows))
        self.inner.add(records, along, **users)

    def __getattr__(self, name):
        return getattr(self.inner, name)


BOTH = ["one-pass-linear", "one-pass-linear-joint"]


@pytest.mark.parametrize("name", BOTH)
def test_only_the_first_rounds_of_a_user_count(name):
    problem = problem_of(120, **USERS)
    agent = begin(problem, [0], Budget.zcdp(1.0), name, max_rounds_per_user=2)
    spy = Spy(agent.plan.sums)
    agent.plan = agent.plan._replace(sums=spy)
    instance = problem.instance([0])
    seen = {}
    for t in range(120):
        context = locked(instance.context())
        action = agent.act(context)
        agent.observe(context, action, instance.respond(action).feedback)
        user = int(context.users[0])
        seen[user] = seen.get(user, 0) + 1
        assert spy.records[-1].any() == (seen[user] <= 2)
        if t < 119:
            instance.advance()


@pytest.mark.parametrize("name", BOTH)
def test_users_must_be_identified(name):
    anonymous = problem_of(50)
    agent = begin(anonymous, [0], Budget.zcdp(1.0), name, max_rounds_per_user=3)
    with pytest.raises(ParameterError, match="identifies users"):
        play(agent, anonymous, [0], 1)
    with pytest.raises(ParameterError, match="max_rounds_per_user"):
        make_agent(name, max_rounds_per_user=0)


def test_parameters_are_checked():
    for bad in ({"curvature": 0.0}, {"intercept": 0.0}, {"norm": -1.0}):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            make_agent("one-pass-linear-joint", **bad)


@pytest.mark.parametrize(("name", "k"), AGENTS)
def test_an_impossible_action_is_refused(name, k):
    problem = problem_of(50, **USERS)
    agent = begin(problem, [0, 1], Budget.zcdp(1.0), name, max_rounds_per_user=k)
    instance = problem.instance([0, 1])
    context = locked(instance.context())
    feedback = instance.respond(agent.act(context)).feedback
    with pytest.raises(ActionError, match="candidate 5 of replicate 1"):
        agent.observe(context, np.array([0, 5]), feedback)


def test_joint_policy_sees_private_rounds_through_releases_only():
    """With the releases held fixed, other contexts and rewards change no later action."""
    problem = problem_of(300)
    seeds = [4, 5]

    def run(agent, scramble):
        rng = np.random.default_rng(0)
        instance, actions, releases = problem.instance(seeds), [], []
        for t in range(300):
            context = locked(instance.context())
            action = agent.act(context)
            actions.append(action)
            feedback = instance.respond(action).feedback
            if scramble:
                context = context._replace(features=rng.permuted(context.features, axis=-1))
                feedback = feedback._replace(reward=rng.random(2))
            agent.observe(context, action, feedback)
            releases.append(agent.plan.sums.value.copy())
            if t < 299:
                instance.advance()
        return np.array(actions), releases

    first = begin(problem, seeds, Budget.zcdp(5.0), "one-pass-linear-joint")
    actions, releases = run(first, scramble=False)
    assert first.state.theta.any()

    class Fixed(type(behind(first.plan.sums))):
        def add(self, records, along=None, users=None):
            self.rounds += 1

        @property
        def value(self):
            return releases[self.rounds - 1]

    second = begin(problem, seeds, Budget.zcdp(5.0), "one-pass-linear-joint")
    behind(second.plan.sums).__class__ = Fixed
    np.testing.assert_array_equal(run(second, scramble=True)[0], actions)


# ------------------------------------------------------------------ regret


def test_every_agent_learns():
    rounds, seeds = 3000, range(1_000_500, 1_000_516)
    problem = problem_of(rounds, **USERS)
    chance = play(make_begun("random", problem, seeds), problem, seeds, rounds)[0]
    for name, k in AGENTS:
        agent = begin(problem, seeds, Budget.zcdp(2.0), name, max_rounds_per_user=k)
        gap = chance - play(agent, problem, seeds, rounds)[0]
        assert gap.mean() > 4 * gap.std(ddof=1) / math.sqrt(len(gap))


def make_begun(name, problem, seeds):
    agent = make_agent(name)
    agent.set_up(problem.info, AgentStreams(seeds), None)
    return agent


@pytest.mark.parametrize("name", BOTH)
def test_rewards_need_not_be_centred(name):
    """Rewards in a narrow range far from the middle are learned from as well.

    With private contexts the level multiplies the noise in the mean of x, so it costs more.
    """
    seeds = range(1_000_800, 1_000_816)
    problem = problem_of(2500, dim=6, reward="linear")
    budget = Budget.zcdp(1.0)

    def run(level):
        agent = begin(problem, seeds, budget, name)

        def change(outcome):
            return level + 0.3 * (outcome.expected - 0.5)

        return play(agent, problem, seeds, 2500, change)[0].mean()

    centred = run(0.5)
    chance = play(make_begun("random", problem, seeds), problem, seeds, 2500)[0].mean()
    for level in (0.2, 0.85):
        shifted = run(level)
        assert shifted < 2.5 * centred
        assert shifted < 0.6 * chance


@pytest.mark.parametrize("name", ["one-pass-linear", "one-pass-linear-joint"])
@pytest.mark.parametrize("budget", [None, Budget.zcdp(0.5)])
def test_an_arm_that_was_never_played_is_tried(name, budget):
    """Rewards of one arm say nothing about another; the first one pays .6."""
    problem = dpb_gym.make_problem(
        "DPB/MultiArmed-v0", horizon=3000, n_arms=5, theta=[0.4, -1, -1, -1, 1.6], reward="linear"
    )
    agent = begin(problem, range(10), budget, name)
    _, actions = play(agent, problem, range(10), 3000)
    assert (actions[-500:] == 4).mean() > 0.9


def test_arms_that_every_round_offers_are_public_and_only_if_they_stay_the_same():
    """Contexts contain nothing about customers, so the joint agent releases rewards alone."""
    problem = dpb_gym.make_problem("DPB/MultiArmed-v0", horizon=100, n_arms=5)
    agent = begin(problem, range(3), Budget.zcdp(0.5), "one-pass-linear-joint")
    assert agent.curator.guarantee.notion == "joint" and agent.plan.sums.value.shape == (3, 6)
    instance = problem.instance(range(3))
    context = locked(instance.context())
    turned = context._replace(features=context.features[:, ::-1], arms=context.arms[:, ::-1])
    other = context._replace(features=context.features + np.float32(1e-3))
    feedback = instance.respond(np.zeros(3, np.int64)).feedback
    agent.observe(context, np.zeros(3, np.int64), feedback)
    agent.observe(turned, np.full(3, 4), feedback)
    with pytest.raises(AgentError, match="the same arms"):
        agent.observe(other, np.zeros(3, np.int64), feedback)


def test_observed_rounds_of_fixed_arms_are_not_counted_for_the_joint_agent():
    """The counts would be exact, and whether a round was observed is the user's."""
    info = dpb_gym.make_problem("DPB/MultiArmed-v0", horizon=100, n_arms=5).info
    replay, streams = replace(info, partial_feedback=True), AgentStreams([0])
    agent = make_agent("one-pass-linear-joint")
    with pytest.raises(AgentError, match="counts the observed rounds"):
        agent.set_up(replay, streams, Budget.zcdp(1.0))
    agent.set_up(replay, streams, None)
    make_agent("one-pass-linear").set_up(replay, streams, Budget.zcdp(1.0))


def test_the_joint_agent_counts_the_rounds_of_a_user_in_its_releaser():
    name, limit = "one-pass-linear-joint", {"max_rounds_per_user": 2}
    agent = begin(problem_of(90, **USERS), [0], Budget.zcdp(0.01), name, **limit)
    assert agent.curator.guarantee.basis == "computed" and agent.plan.sums.schedule.ends[0] > 20
    row = np.full_like(behind(agent.plan.sums)._total, 0.01)
    for _ in range(20):
        agent.plan.sums.add(row, users=[3])
    np.testing.assert_array_equal(behind(agent.plan.sums)._total, 2 * row)


def test_until_the_first_release_the_longest_candidate_is_played():
    problem = problem_of(1000)
    agent = begin(problem, range(4), Budget.zcdp(0.05))
    features = np.full((4, 5, 5), 0.1, np.float32)
    features[:, 3] = [[0.2], [-0.3], [5.0], [0.10000001]]
    features[:, 4] = [[0.1], [0.2], [7.0], [0.1]]
    context = problem.instance(range(4)).context()._replace(features=features)
    # rounding is no length
    assert agent.act(context).tolist() == [3, 3, 4, 0]


def test_the_taste_of_a_customer_does_not_bias_theta():
    """A taste is in all features and moves the reward; theta is still estimated."""
    rng = np.random.default_rng(0)
    theta, taste = np.array([0.5, 0.5, 0, 0, 0]), np.array([-0.5, -0.5, 0, 0, 0])
    problem = problem_of(1500)
    seeds = range(6)
    instance = problem.instance(seeds)
    first, agents = instance.context(), [begin(problem, seeds, None, effect=e) for e in (4.0, 0.0)]
    for _ in range(1500):
        own, u = rng.normal(size=(6, 5, 5)) * 0.25, rng.normal(size=(6, 1, 5)) * 0.25
        context = first._replace(features=(own + u).astype("f4"))
        coins = rng.random(6)
        for agent in agents:
            action = agent.act(context)
            chosen = context.features[np.arange(6), action]
            paid = coins < 0.5 + chosen @ theta + u[:, 0] @ (taste - theta)
            feedback = instance.respond(action).feedback
            agent.observe(context, action, feedback._replace(reward=paid.astype(float)))
    learned, missed = (agent.state.theta[:, :2].sum(axis=1) for agent in agents)
    assert (learned > 0.6).all() and learned.mean() > 2 * missed.mean()


def test_the_releaser_is_the_weighted_sum_of_the_library():
    problem = problem_of(100)
    agent = begin(problem, [0], Budget.zcdp(1.0))
    assert isinstance(behind(agent.plan.sums), WeightedSum)
    assert behind(agent.plan.sums).clipped_count.tolist() == [0]
    play(agent, problem, [0], 100, change=lambda outcome: outcome.expected + 1.0)
    assert behind(agent.plan.sums).clipped_count[0] > 50


@pytest.mark.parametrize("budget", ["eps=0.5,delta=1e-5", None])
@pytest.mark.parametrize("name", ["one-pass-linear", "one-pass-linear-joint"])
def test_without_any_record_theta_is_finite(name, budget):
    """As with an account that refuses everybody."""
    problem = dpb_gym.make_problem("DPB/Recommendation-v0", horizon=60, dim=3)
    agent = make_agent(name)
    agent.set_up(problem.info, AgentStreams([0, 1]), budget and Budget.parse(budget))
    instance, nobody = problem.instance([0, 1]), np.zeros(2, bool)
    for t in range(60):
        context = locked(instance.context())
        action = agent.act(context)
        agent.observe(context, action, Feedback(np.zeros(2), observed=nobody))
        assert np.isfinite(agent.state.theta).all(), t
        instance.advance() if t < 59 else None
