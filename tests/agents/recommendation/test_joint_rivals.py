"""Jointly private rivals against plain NumPy, and their sensitivities by search."""

from __future__ import annotations

import math
from functools import cache
from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import minimize

import dpb_gym
from dpb_agents.recommendation import information_weighted, jdp_glm
from dpb_agents.recommendation.fliphat import Peeling
from dpb_gym import make_agent, make_problem
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import Budget, Curator, NoiseSource, SystemNoise
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.streams import AgentStreams

NAMES = ("information-weighted", "jdp-glm-ucb", "fliphat")
UNIT = ("joint", "user-round")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("budget", ["rho=0.1", "eps=2,delta=1e-5"])
def test_the_guarantee_is_the_budget_and_it_is_spent(name, budget):
    problem = make_problem("DPB/Recommendation-v0", horizon=1000, dim=4)
    agent = make_agent(name)
    agent.set_up(problem.info, AgentStreams([0, 1]), Budget.parse(budget))
    said = agent.curator.guarantee
    assert (said.notion, said.unit, said.relation) == (*UNIT, "replace-one")
    if budget == "rho=0.1":
        assert 0.1 * (1 - 1e-6) < said.rho <= 0.1
    else:
        assert 2.0 * (1 - 1e-4) < said.epsilon(1e-5) <= 2.0


@pytest.mark.parametrize("name", NAMES)
def test_bad_parameters_are_named(name):
    bad = {
        "information-weighted": {"length": 0, "weight": -1.0, "shift": -0.1, "alpha": -1.0},
        "jdp-glm-ucb": {"share": 1.0, "updates": 0, "growth": 0.0, "every": 0, "shift": -1.0},
        "fliphat": {"sparsity": 0, "length": 0, "steps": 0, "step": 0, "spread": 0, "radius": 0},
    }
    for key, value in bad[name].items():
        with pytest.raises(ParameterError, match=key):
            make_agent(name, **{key: value})


def worst_pair(distance, draw, rounds=400, starts=20, seed=0):
    """Largest distance of two records found by random restarts of a local search."""
    rng, worst = np.random.default_rng(seed), 0.0
    for _ in range(starts):
        point, best, scale = draw(rng), -1.0, 1.0
        for _ in range(rounds):
            there = [part + scale * rng.standard_normal(np.shape(part)) for part in point]
            gap = distance(*there)
            if gap > best:
                best, point = gap, there
            else:
                scale = max(1e-4, 0.97 * scale)
        worst = max(worst, best)
    return worst


# ------------------------------------------------------------------ information-weighted


def weighted(x, r, root, gamma, bound):
    """The two records of one round."""
    known, state = begun(len(x), root, gamma, bound)
    weight, scaled, response = information_weighted.record(
        known, state, 1, x[None].copy(), 0, r + 0.5, np.zeros((0, 0))
    )
    return weight * np.outer(scaled, scaled), response


@cache
def started(d, ridge):
    """An information-weighted agent before its first round; a search asks for it 20,000 times."""
    problem = make_problem("DPB/Recommendation-v0", horizon=100, dim=d)
    agent = make_agent("information-weighted", ridge=ridge)
    agent.set_up(problem.info, AgentStreams([0]), Budget.zcdp(1.0))
    return agent


def begun(d, root, gamma=0.0, bound=1.0, ridge=1.0):
    """c and s of information-weighted, with centred rewards."""
    agent = started(d, ridge)
    state = type(agent.state)(*(part[0].copy() for part in agent.state))
    one = np.full(1, 1.0)
    return agent.known, state._replace(root=root, gamma=gamma * one, bound=bound * one)


def a_root(rng, d):
    half = rng.standard_normal((d, d))
    return half @ half.T / d + 0.2 * np.eye(d)


def test_information_weighted_records_are_as_documented():
    rng = np.random.default_rng(0)
    root, x, gamma = a_root(rng, 4), rng.standard_normal(4) / 3.0, 0.7
    W = root @ root
    w = 1.0 / (1.0 + gamma * np.linalg.norm(W @ x))
    gram, response = weighted(x, 0.3, root, gamma, 2.5)
    np.testing.assert_allclose(gram, w * root @ np.outer(x, x) @ root / 2.5, rtol=1e-12)
    np.testing.assert_allclose(response, w * 0.3 * W @ x / 2.5, rtol=1e-12)


@pytest.mark.parametrize("gamma", [0.0, 0.5])
def test_information_weighted_sensitivities_by_search(gamma):
    """sqrt(2) of the first record and 2 max |r| of the second, in units of R; nearly attained."""
    rng = np.random.default_rng(1)
    # a sphere of W, so that orthogonal records of largest norm exist
    for root, least in ((1.3 * np.eye(3), 0.98), (a_root(rng, 3), 0.0)):
        size = np.linalg.norm(root @ root, 2)
        bound = size / (1.0 + gamma * size)

        def apart(x, y, r, part, root=root, bound=bound):
            one, other = (
                weighted(v, float(np.clip(q, -0.5, 0.5)), root, gamma, bound)
                for v, q in zip((x, y), r)
            )
            return np.linalg.norm(one[part] - other[part])

        def draw(rng):
            return rng.standard_normal(3), rng.standard_normal(3), rng.uniform(-0.5, 0.5, 2)

        for part, sensitivity in ((0, math.sqrt(2.0)), (1, 1.0)):
            worst = worst_pair(lambda *pair, part=part: apart(*pair, part), draw, starts=6)
            assert least * sensitivity < worst <= sensitivity * (1 + 1e-12)


def test_the_bound_of_records_is_never_exceeded_and_nearly_met(play):
    """R of later episodes: records above it would be clipped, records far below it waste noise."""
    sizes = []

    def keep(agent):
        releaser = behind(agent.plan.sums)
        add = releaser.add
        releaser.add = lambda weights, along: (
            sizes.append(weights[0] * np.linalg.norm(along[0]) ** 2),
            add(weights, along),
        )

    run = play("information-weighted", [3], 320, Budget.zcdp(5.0), prepare=keep, dim=3)
    assert not behind(run.agent.plan.sums).clipped_count.any()
    assert not behind(run.agent.plan.second).clipped_count.any()
    assert 0.9 < max(sizes[300:]) <= 1.0 + 1e-12


def test_without_noise_it_is_ridge_regression_of_all_episodes(play):
    run = play("information-weighted", [3, 4], 700, None, {"ridge": 2.0}, dim=5)
    x = run.features[np.arange(700)[:, None], np.arange(2), run.actions].astype(float)
    for i in range(2):
        X, r = x[:700, i], run.rewards[:700, i] - 0.5
        gram = X.T @ X + 2.0 * np.eye(5)
        np.testing.assert_allclose(
            run.agent.state.theta[i], np.linalg.solve(gram, X.T @ r), atol=1e-6
        )
        np.testing.assert_allclose(run.agent.state.V[i], np.linalg.inv(gram), atol=1e-6)
        # the next W solves W (V / n) W = I
        W = run.agent.state.root[i] @ run.agent.state.root[i]
        np.testing.assert_allclose(W @ gram @ W / 700.0, np.eye(5), atol=1e-6)
        assert run.agent.state.size[i, 0] == pytest.approx(np.linalg.norm(W, 2))


def test_w_approaches_the_fixed_point_of_the_information_matrix():
    """E[W x x' W / (1 + gamma ||W x||)] = I, for an ill-conditioned distribution."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((500, 3)) * [1.0, 0.1, 0.02]
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]
    gamma, n = 0.4, len(x)
    known, state = begun(3, np.eye(3), ridge=1e-9)
    for _ in range(12):
        back = np.linalg.inv(state.root)
        state.A[:] = back @ sum(weighted(v, 0.0, state.root, gamma, 1.0)[0] for v in x) @ back
        information_weighted.reweigh(known, state, 0.0, float(n))
    W = state.root @ state.root
    weights = 1.0 / (1.0 + gamma * np.linalg.norm(x @ W, axis=1))
    information = W @ (x.T * weights) @ x @ W / n
    np.testing.assert_allclose(information, np.eye(3), atol=1e-2)


# ------------------------------------------------------------------ GLM


def test_glm_records_have_a_quarter_of_the_gram_sensitivity():
    agent = make_agent("jdp-glm-ucb", share=0.5)
    problem = make_problem("DPB/Recommendation-v0", horizon=200, dim=3)
    agent.set_up(problem.info, AgentStreams([0]), Budget.zcdp(0.3))
    state = type(agent.state)(*(part[0] for part in agent.state))

    def record(x, theta):
        s = state._replace(theta=theta)
        slope, v, _ = jdp_glm.record(agent.known, s, 1, x[None].copy(), 0, 0.0, np.zeros((0, 0)))
        return slope * np.outer(v, v)

    def apart(x, y, theta):
        return np.linalg.norm(record(x, theta) - record(y, theta))

    def draw(rng):
        return tuple(rng.standard_normal((3, 3)))

    worst = worst_pair(apart, draw, starts=8)
    assert 0.97 * math.sqrt(2.0) / 4.0 < worst <= math.sqrt(2.0) / 4.0
    assert agent.plan.sums.sensitivity == pytest.approx(math.sqrt(2.0) / 4.0)
    assert agent.plan.second.plan.event.sensitivity == 2.0  # gradients of norm at most 1


def test_without_noise_theta_is_the_ridge_mle_when_h_has_outgrown(play):
    params = {"every": 1, "alpha": 0.2, "ridge": 5.0, "growth": 0.5}
    run = play("jdp-glm-ucb", [3], 400, None, params, dim=3)
    x = run.features[np.arange(400), 0, run.actions[:, 0]].astype(float)
    r, theta, frozen, H, at = run.rewards[:, 0], np.zeros(3), 5.0 * np.eye(3), np.zeros((3, 3)), 0
    updates = 0
    for t in range(400):
        z = x[t] @ theta
        slope = math.exp(z) / (1.0 + math.exp(z)) ** 2
        H += slope * np.outer(x[t], x[t])
        V = H + 5.0 * np.eye(3)
        grown = np.linalg.eigvals(np.linalg.solve(frozen, V)).real.max()
        if grown > 1.5 and updates < run.agent.known.updates:
            X, y = x[: t + 1], r[: t + 1]

            def loss(v, X=X, y=y):
                return np.logaddexp(0.0, X @ v).sum() - y @ (X @ v) + 0.5 * v @ v

            ball = {"type": "ineq", "fun": lambda v: 4.0 - v @ v}
            theta = minimize(loss, theta, constraints=ball, tol=1e-12).x
            frozen, at, updates = V, t + 1, updates + 1
    assert at and updates == run.agent.state.updates[0, 0] > 1
    np.testing.assert_allclose(run.agent.state.theta[0], theta, atol=1e-3)
    np.testing.assert_allclose(run.agent.state.inverse[0], np.linalg.inv(frozen), atol=1e-4)


def test_glm_takes_rewards_in_the_unit_interval_only():
    problem = make_problem("DPB/Recommendation-v0", horizon=20, dim=3)
    problem.info.__dict__["reward_range"] = (-1.0, 1.0)
    with pytest.raises(ParameterError, match=r"lie in \[0, 1\]"):
        make_agent("jdp-glm-ucb").set_up(problem.info, AgentStreams([0]), None)


# ------------------------------------------------------------------ FLIPHAT


HOW = {"sparsity": 2, "x_max": 0.6, "bound": 0.5, "radius": 0.8}


def peeling(budget="rho=0.7", replicates=1, dim=4, **changed):
    noise = None if budget is None else NoiseSource.from_seed(0, replicates)
    curator = Curator(budget, UNIT, noise=noise, replicates=replicates)
    return Peeling(curator, dim, start=np.zeros(dim), **{**HOW, **changed})


def step_of(releaser, theta, x, y, step):
    """v - theta of one record, through the releaser's own sums."""
    releaser._gram[:], releaser._response[:] = 0.0, 0.0
    releaser.add(np.array([y]), x[None])
    return -step * (releaser._gram[0] @ theta - releaser._response[0])


@pytest.mark.parametrize(("x_max", "least"), [(0.3, 0.99), (1.0, 0.55)])
def test_peeling_sensitivities_by_search(x_max, least):
    """lambda of a coordinate of v and Lambda of s of them bound any replacement of a record."""
    releaser, step, s = peeling(x_max=x_max), 0.25, HOW["sparsity"]

    def moved(x, y, u, v, theta, largest):
        theta = theta * (HOW["radius"] / max(HOW["radius"], np.abs(theta).sum()))
        one = step_of(releaser, theta, x, float(y), step)
        other = step_of(releaser, theta, u, float(v), step)
        sizes = np.sort(np.abs(one - other))[::-1]
        return sizes[0] if largest else np.linalg.norm(sizes[:s])

    def draw(rng):
        x = 3.0 * rng.standard_normal(4)
        return [x, 1.0, -x, 1.0, rng.standard_normal(4)]

    bound = releaser.sensitivity(step)
    assert bound == 2 * step * x_max * (0.5 + x_max * 0.8)
    worst = worst_pair(lambda *point: moved(*point, True), draw, starts=6)
    assert least * bound < worst <= bound * (1 + 1e-12)
    both = bound * min(math.sqrt(s), 1.0 / x_max)
    worst = worst_pair(lambda *point: moved(*point, False), draw, starts=6)
    assert least * both < worst <= both * (1 + 1e-12)


def test_a_coordinate_attains_its_sensitivity():
    """theta = C e2, and the records (x_max, x_max) and (-x_max, x_max) with y = -R."""
    releaser, e1, e2 = peeling(), np.eye(4)[0], np.eye(4)[1]
    theta = HOW["radius"] * e2
    one, other = (
        step_of(releaser, theta, HOW["x_max"] * (sign * e1 + e2), -HOW["bound"], 1.0)
        for sign in (1.0, -1.0)
    )
    assert np.abs(one - other).max() == pytest.approx(releaser.sensitivity(1.0))


def test_the_noise_spends_the_budget():
    releaser = peeling("rho=0.7", x_max=0.3)
    releaser.add(np.array([0.4]), np.full((1, 4), 0.2))
    releaser.release(0.1, 3)
    kept, bound = releaser.kept, releaser.sensitivity(0.1)
    together = bound * math.sqrt(2.0)
    rho = 3 * (2 * 0.5 * (bound / kept.xi) ** 2 + 0.5 * (together / kept.zeta) ** 2)
    assert rho == pytest.approx(0.7) == releaser.curator.ledger.spent
    assert not releaser._gram.any() and not releaser._response.any(), "records are forgotten"


def test_selections_of_peeling_have_the_stated_density():
    """Orders of four coordinates, against the exponential mechanism by hand and by frequency."""
    n = 2500
    releaser = peeling("rho=0.7", replicates=n)
    x, y = np.tile([0.6, -0.5, 0.3, 0.0], (n, 1)), np.full(n, 0.5)
    for _ in range(3):
        releaser.add(y, x)
    twin = peeling("rho=0.7", replicates=n)
    for _ in range(3):
        twin.add(y, x)
    releaser.release(0.3, 1)
    kept = releaser.kept
    v = 0.3 * twin._response[0]
    weights = np.exp(np.abs(v) / kept.xi)
    told = twin.log_density(kept)
    for first, second in permutations(range(4), 2):
        chance = weights[first] / weights.sum() * weights[second] / (weights.sum() - weights[first])
        here = (kept.order[:, 0] == [first, second]).all(axis=1)
        assert here.mean() == pytest.approx(chance, abs=4 * math.sqrt(chance / n))
        z = (kept.values[here, 0] - v[[first, second]]) / kept.zeta
        exact = math.log(chance) - 0.5 * (z**2).sum(axis=1)
        np.testing.assert_allclose(told[here], exact, rtol=1e-9, atol=1e-9)


def test_the_selection_costs_as_much_privacy_as_is_charged():
    """Renyi divergence of an exponential mechanism at bounded range, over adversarial utilities."""
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(300):
        u = rng.standard_normal(3) * rng.choice([0.1, 1.0, 5.0])
        moved = u + rng.choice([-1.0, 1.0], 3)
        p, q = (np.exp(w - w.max()) / np.exp(w - w.max()).sum() for w in (u / 2.0, moved / 2.0))
        for order in (1.5, 2.0, 8.0):
            divergence = math.log((p**order * q ** (1 - order)).sum()) / (order - 1)
            worst = max(worst, divergence / order)
    # lambda = 1, xi = 2
    assert 0.9 * 0.125 < worst <= 0.125


def test_peeling_refuses_invalid_records():
    releaser = peeling()
    with pytest.raises(ParameterError, match="finite"):
        releaser.add(np.zeros(1), np.full((1, 4), np.nan))


def test_peeling_takes_system_noise():
    pytest.importorskip("opendp")
    curator = Curator("rho=1", UNIT, noise=SystemNoise(2), horizon=10)
    releaser = Peeling(curator, 4, start=np.zeros(4), **HOW)
    releaser.add(np.zeros(2), np.zeros((2, 4)))
    first, second = releaser.release(0.1, 3)
    assert first.any() and second.any() and (first != second).any()


def test_fliphat_beats_dense_rivals_on_a_sparse_theta():
    theta = np.zeros(60)
    theta[:5] = [8.0, -8.0, 8.0, 8.0, -8.0]
    result = dpb_gym.evaluate(
        "DPB/Recommendation-v0",
        agents={
            "sparse": "fliphat",
            "gram": ("noisy-gram-ucb", "rho=1", {"centre": True}),
            "weighted": "information-weighted",
        },
        budgets=["rho=1"],
        horizon=3000,
        replicates=3,
        env_kwargs={"dim": 60, "theta": theta.tolist(), "fresh": True},
    )
    sparse, *dense = (result.final_regret(name) for name in ("sparse", "gram", "weighted"))
    for rival in dense:
        assert sparse.mean() < 0.85 * rival.mean()
