"""Limited stock: optimum, fluid bound, regret, and agents that respect the stock."""

from __future__ import annotations

import functools
import re
from itertools import combinations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import dpb_gym
from dpb_gym import make_problem
from dpb_gym.audits.agent_audit import audit
from dpb_gym.envs.registration import environment
from dpb_gym.errors import ActionError, ParameterError
from dpb_gym.feedback import PrivateResponse, RandomizedResponse, VectorPrivateResponse
from dpb_gym.problems.base import Instance
from dpb_gym.problems.kinds import kind_of
from dpb_gym.problems.limited_stock import (
    StockInstance,
    UnitValues,
    has_exact_optimum,
    priced,
)
from dpb_gym.registry import agent_specs
from dpb_gym.results.leaderboard import data_notes
from dpb_gym.suites.spec import Task

SHOP = {"n_items": 3, "capacity": 2, "dim": 2, "revenues": "random"}
FEW = {"DPB/Assortment-v0": {**SHOP, "stock": [1, 0, 2]}, "DPB/Pricing-v0": {"stock": 3}}
SIX = {
    "DPB/Assortment-v0": {**SHOP, "n_items": 8, "stock": 3},
    "DPB/Pricing-v0": {"stock": 3},
}


@pytest.fixture(params=[True, False], ids=["exact", "bound"])
def exact(request, monkeypatch):
    """Enable or disable the dynamic programme; without it, regret is against the fluid bound."""
    if not request.param:
        for name, value in {"LARGEST_TABLE": 0, "SAMPLE": 16, "STEPS": 40}.items():
            monkeypatch.setattr(f"dpb_gym.problems.limited_stock.{name}", value)
    return request.param


def rounds_of(problem, seed):
    """Return the contexts of a season in order."""
    instance = Instance(problem, [seed])
    for t in range(problem.horizon):
        if t:
            instance.advance()
        yield instance.round().context


def choice_probabilities(theta, features, slate):
    weights = np.exp(features[list(slate)] @ theta)
    return weights / (1.0 + weights.sum())


def slates_of(items, capacity):
    return [s for k in range(capacity + 1) for s in combinations(items, k)]


def brute_force_assortment(problem, seed, stock):
    theta = problem.instance([seed]).hidden["theta"][0]
    seen = [(c.features[0].astype(float), c.revenues[0]) for c in rounds_of(problem, seed)]

    @functools.cache
    def value(t, left):
        if t == len(seen):
            return 0.0
        features, revenues = seen[t]
        best = value(t + 1, left)
        for slate in slates_of([i for i, c in enumerate(left) if c], 2):
            p = choice_probabilities(theta, features, slate)
            worth = (1.0 - p.sum()) * value(t + 1, left)
            for item, chance in zip(slate, p):
                less = tuple(c - (i == item) for i, c in enumerate(left))
                worth += chance * (float(revenues[item]) + value(t + 1, less))
            best = max(best, worth)
        return best

    return value(0, tuple(stock))


def brute_force_pricing(problem, seed, seats):
    theta = problem.instance([seed]).hidden["theta"][0]
    prices = np.linspace(0.0, 1.0, 20_001)
    value = np.zeros(seats + 1)
    for context in reversed([c.features[0].astype(float) for c in rounds_of(problem, seed)]):
        z = (context @ theta[:-1] - prices * theta[-1]) / np.sqrt(len(theta))
        demand = 1.0 / (1.0 + np.exp(-problem.info.zeta * z))
        later = value.copy()
        for left in range(1, seats + 1):
            value[left] = (demand * (prices + later[left - 1]) + (1.0 - demand) * later[left]).max()
    return value[-1]


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_dynamic_programme_equals_brute_force(seed):
    shop = make_problem("DPB/Assortment-v0", horizon=5, **FEW["DPB/Assortment-v0"])
    worth = UnitValues(Instance(shop, [seed]), np.array([1, 0, 2]))
    assert worth.exact
    expected = brute_force_assortment(shop, seed, [1, 0, 2])
    assert worth._table(0)[0, -1] == pytest.approx(expected, rel=1e-9)
    seats = make_problem("DPB/Pricing-v0", horizon=12, stock=3)
    revenue = UnitValues(Instance(seats, [seed]), np.array([3]))._table(0)[0, -1]
    assert revenue == pytest.approx(brute_force_pricing(seats, seed, 3), rel=1e-7)


def bound_of(problem, seed, stock):
    """Return the fluid bound of a season and its bid prices."""
    worth = UnitValues(Instance(problem, [seed]), np.array(stock))
    prices = worth._prices(0)
    hidden, season = worth._rounds(0, range(1, problem.horizon + 1))
    cost = np.tile(prices, (problem.horizon, 1))
    net = problem.best_action(hidden, priced(season, cost))[1]
    return net.sum() + (prices * np.array(stock)).sum(), prices


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    horizon=st.integers(2, 25),
    stock=st.lists(st.integers(0, 3), min_size=3, max_size=3).filter(any),
    more=st.sampled_from([{}, {"available": 0.6}, {"drift": "walk"}, {"types": 2}]),
)
def test_the_fluid_bound_is_never_below_the_optimum(seed, horizon, stock, more):
    shop = make_problem("DPB/Assortment-v0", horizon=horizon, **{**SHOP, "stock": stock, **more})
    table = UnitValues(Instance(shop, [seed]), np.array(stock))._table(0)
    assert bound_of(shop, seed, stock)[0] >= table[0, -1] - 1e-9
    if "available" not in more:
        seats = make_problem("DPB/Pricing-v0", horizon=horizon, stock=stock[0] + 1, **more)
        table = UnitValues(Instance(seats, [seed]), np.array([stock[0] + 1]))._table(0)
        assert bound_of(seats, seed, [stock[0] + 1])[0] >= table[0, -1] - 1e-9


def test_the_fluid_bound_is_that_of_the_linear_programme():
    rng = np.random.default_rng(4)
    rows = np.repeat(rng.normal(size=(1, 4, 2)), 300, axis=0)
    revenues, stock = [0.3, 0.5, 0.8, 1.0], [90, 40, 30, 20]
    shop = make_problem(
        "DPB/Assortment-v0",
        **{"n_items": 4, "capacity": 2, "dim": 2, "horizon": 300},
        contexts=rows,
        revenues=revenues,
        stock=stock,
    )
    theta = shop.instance([7]).hidden["theta"][0]
    offers = slates_of(range(4), 2)
    sales = np.zeros((4, len(offers)))
    for k, slate in enumerate(offers):
        sales[list(slate), k] = choice_probabilities(theta, rows[0], slate)
    optimum = linprog(
        -(np.array(revenues) @ sales),
        A_ub=sales,
        b_ub=np.array(stock) / 300,
        A_eq=np.ones((1, len(offers))),
        b_eq=[1.0],
    )
    bound, prices = bound_of(shop, 7, stock)
    assert -optimum.fun * 300 <= bound <= -optimum.fun * 300 * 1.005
    assert (prices > 0.01).any()
    loose = bound_of(shop, 7, [300] * 4)
    assert (loose[1] == 0.0).all()


def act_at_random(problem):
    kind = kind_of(problem.kind)
    drawn = np.random.default_rng(3)

    def act(context, replicates):
        shape = (replicates, *kind.action_shape(problem.info))
        return kind.random(problem.info, drawn.random(shape), context.available)

    return act


@pytest.mark.slow
@pytest.mark.parametrize("env_id", FEW)
def test_expected_regret_is_the_difference_to_the_optimum(env_id, exact):
    problem, B, T = make_problem(env_id, horizon=10, **FEW[env_id]), 300, 10
    season, act = problem.instance(range(B)), act_at_random(problem)
    earned, lost = np.zeros(B), np.zeros(B)
    for t in range(T):
        outcome = season.respond(act(season.context(), B))
        assert (outcome.regret >= 0.0).all()
        earned, lost = earned + outcome.expected, lost + outcome.regret
        if t < T - 1:
            season.advance()
    values = season._unit_values
    assert values.exact == exact
    stock = np.array(problem.info.stock)
    if exact:
        best = np.array([values._values[b][0][-1] for b in range(B)])
    else:
        best = np.array([bound_of(problem, b, stock)[0] for b in range(B)])
    missing = best - earned - lost
    assert lost.mean() > 0.3
    assert abs(missing.mean()) < 4.0 * missing.std() / np.sqrt(B)


@pytest.mark.slow
@pytest.mark.parametrize("env_id", FEW)
def test_the_best_policy_has_no_regret_and_earns_the_optimum(env_id):
    problem, B = make_problem(env_id, horizon=8, **FEW[env_id]), 500
    season, earned = problem.instance(range(B)), np.zeros(B)
    for t in range(8):
        outcome = season.respond(season.best_action())
        earned += outcome.feedback.reward
        assert outcome.regret.max() < 1e-12
        if t < 7:
            season.advance()
    best = np.array([season._unit_values._values[b][0][-1] for b in range(B)])
    assert abs((best - earned).mean()) < 4.0 * (best - earned).std() / np.sqrt(B)


def test_selling_nothing_has_the_whole_bound_as_regret(monkeypatch):
    monkeypatch.setattr("dpb_gym.problems.limited_stock.LARGEST_TABLE", 0)
    problem = make_problem("DPB/Assortment-v0", horizon=30, **{**SHOP, "stock": [2, 9, 4]})
    season, lost = problem.instance([0, 1]), np.zeros(2)
    for t in range(30):
        lost += season.respond(np.full((2, 2), -1)).regret
        if t < 29:
            season.advance()
    bounds = [bound_of(problem, seed, [2, 9, 4]) for seed in (0, 1)]
    assert (bounds[0][1] > 0.05).any()
    np.testing.assert_allclose(lost, [bound for bound, _ in bounds], rtol=1e-12)


@pytest.mark.parametrize("env_id", FEW)
def test_episodes_have_different_seasons(env_id, exact):
    problem = make_problem(env_id, horizon=6, **FEW[env_id])
    season = problem.instance([0, 1])
    action = np.full(2, 0.4) if problem.kind == "pricing" else np.array([[0, -1]] * 2)
    first = season.respond(action)
    season.restart(1, 7, 3)
    fresh = problem.instance([7], [3]).respond(action[:1])
    again = season.respond(action)
    assert first.regret[0] == again.regret[0]
    assert again.regret[1] == fresh.regret[0] != first.regret[1]


@pytest.mark.parametrize("env_id", SIX)
def test_sales_never_exceed_the_stock(env_id, exact):
    problem = make_problem(env_id, horizon=80, **(FEW if exact else SIX)[env_id])
    season, act = problem.instance(range(20)), act_at_random(problem)
    stock = np.array(problem.info.stock)
    sold = np.zeros((20, len(stock)), int)
    for t in range(problem.horizon):
        context = season.context()
        if context.available is not None:
            np.testing.assert_array_equal(context.available, stock - sold > 0)
        action = act(context, 20)
        outcome = season.respond(action)
        again = season.respond(action)
        np.testing.assert_array_equal(outcome.feedback.reward, again.feedback.reward)
        if outcome.feedback.choice is None:
            sold[:, 0] += outcome.feedback.demand.astype(int)
        else:
            for b in np.flatnonzero(outcome.feedback.choice >= 0):
                sold[b, action[b, outcome.feedback.choice[b]]] += 1
        np.testing.assert_array_equal(season.left, stock - sold)
        empty = (season.left == 0).all(axis=1)
        if t < problem.horizon - 1:
            season.advance()
            dry = season.respond(act(season.context(), 20))
            assert (dry.feedback.reward[empty] == 0).all() and (dry.expected[empty] == 0).all()
            assert (season.left >= 0).all()
    assert empty.all()


def test_sold_out_items_cannot_be_offered():
    problem = make_problem("DPB/Assortment-v0", horizon=9, **{**SHOP, "stock": [1, 1, 0]})
    season = problem.instance([0, 1])
    with pytest.raises(ActionError, match="item 2 of replicate 0 is not available in round 1"):
        season.respond(np.array([[0, 2], [0, 1]]))


class FirstOfAll(dpb_gym.SingleAgent):
    """Offer the first available items, or a price of 1/2."""

    def act(self, context):
        if context.available is None:
            return 0.5
        return np.flatnonzero(context.available)[:2]


@pytest.mark.parametrize("env_id", FEW)
def test_single_vector_and_harness_agree(env_id, exact):
    T, given = 40, FEW[env_id]
    made = {"horizon": T, **given}
    if "Assortment" in env_id:
        made["action_mode"] = "mask"
    result = dpb_gym.evaluate(
        env_id,
        agents={"first": FirstOfAll},
        horizon=T,
        replicates=3,
        env_kwargs=given,
        seed=11,
        checkpoints="all",
        progress=False,
    )
    curves = np.array(
        [[r["regret"] for r in result.records() if r["replicate"] == i] for i in range(3)]
    )
    assert (np.diff(curves, axis=1) >= 0.0).all() and curves[:, -1].max() > 0.0

    def choose(info):
        if "available" not in info:
            return np.array([0.5], np.float32)
        mask = np.zeros(len(info["available"]), np.int8)
        mask[np.flatnonzero(info["available"])[:2]] = 1
        return mask

    vector = gym.make_vec(env_id, num_envs=3, **made)
    seen, infos = vector.reset(seed=11)
    singles = [gym.make(env_id, **made) for _ in range(3)]
    alone = [env.reset(seed=11 + i) for i, env in enumerate(singles)]
    totals = np.zeros((3, T))
    for t in range(T):
        actions = np.array(
            [choose({k: v[i] for k, v in infos.items() if k == "available"}) for i in range(3)]
        )
        seen, rewards, _, ended, infos = vector.step(actions)
        for i, env in enumerate(singles):
            alone[i] = env.step(actions[i])
            observation, reward, _, over, info = alone[i]
            assert reward == rewards[i] and over == ended[i]
            np.testing.assert_array_equal(observation, seen[i])
            for key in info:
                np.testing.assert_array_equal(info[key], infos[key][i])
            assert info["oracle_reward"] == info["expected_reward"] + info["regret"]
        totals[:, t] = infos["regret"]
    assert ended.all()
    np.testing.assert_allclose(np.cumsum(totals, axis=1), curves, rtol=1e-12, atol=1e-12)


TOGETHER = [
    {"drift": "walk", "unknown_horizon": True},
    {"types": 2, "features": "heavy-tailed"},
    {"intercept": -0.5, "available": 0.6},
    {"choice": "nested,nests=2", "demand": "probit"},
]


@pytest.mark.slow
@pytest.mark.parametrize("env_id", FEW)
@pytest.mark.parametrize("more", TOGETHER, ids=str)
def test_replicates_do_not_depend_on_the_batch(env_id, more, exact):
    kwargs = {k: v for k, v in more.items() if k in environment(env_id).parameters}
    problem = make_problem(env_id, horizon=15, **{**FEW[env_id], **kwargs})
    kind = kind_of(problem.kind)
    runs = []
    for seeds, lane in (([3, 4, 5], 1), ([4], 0)):
        season, drawn, seen = problem.instance(seeds), np.random.default_rng(0), []
        for t in range(15):
            uniforms = drawn.random((1, *kind.action_shape(problem.info)))
            context = season.context()
            action = kind.random(
                problem.info, np.repeat(uniforms, len(seeds), axis=0), context.available
            )
            best = season.best_action()
            outcome = season.respond(action)
            parts = (best, outcome.expected, outcome.regret, outcome.feedback.reward, season.left)
            seen.append([np.array(p[lane]) for p in parts])
            if t < 14:
                season.advance()
        runs.append(seen)
    for together, single in zip(*runs, strict=True):
        for left, right in zip(together, single, strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("env_id", FEW)
def test_restarted_replicates_have_full_stock(env_id, mode):
    kwargs = {**FEW[env_id], "horizon": 6}
    vector = gym.make_vec(env_id, num_envs=2, autoreset_mode=AutoresetMode(mode), **kwargs)
    single = SyncVectorEnv(
        [lambda: gym.make(env_id, **kwargs)] * 2, autoreset_mode=AutoresetMode(mode)
    )
    seen, infos = vector.reset(seed=5)
    assert data_equivalence((seen, infos), single.reset(seed=5))
    for _ in range(15):
        action = np.full((2, 1), 0.2, np.float32)
        if "available" in infos:
            action = np.repeat(infos["available"].argmax(axis=1)[:, None], 2, axis=1)
        *step, infos = vector.step(action)
        *other, known = single.step(action)
        assert data_equivalence((step, infos), (other, known))


@pytest.mark.parametrize("env_id", FEW)
def test_the_checker_passes_and_private_feedback_hides_the_stock(env_id):
    kwargs = {**SIX[env_id], "horizon": 20}
    check_env(gym.make(env_id, **kwargs).unwrapped)
    mechanism = RandomizedResponse(epsilon=1.0, categories=3 if "Assortment" in env_id else 2)
    wrapped = PrivateResponse(gym.make(env_id, **kwargs), mechanism)
    vector = VectorPrivateResponse(gym.make_vec(env_id, num_envs=1, **kwargs), mechanism)
    _, info = wrapped.reset(seed=3)
    vector.reset(seed=3)
    for _ in range(20):
        action = np.array([0.3], np.float32)
        if "available" in info:
            action = np.repeat(info["available"].argmax(), 2)
        _, reward, _, _, info = wrapped.step(action)
        _, rewards, _, _, infos = vector.step(action[None])
        assert rewards[0] == reward and "left" not in info and "left" not in infos
        assert not {"regret", "oracle_reward"} & {*info, *infos}


@pytest.mark.parametrize(
    ("env_id", "given", "message"),
    [
        ("DPB/Recommendation-v0", {"stock": 3}, "recommendation: a recommendation uses nothing up"),
        ("DPB/Pricing-v0", {"stock": -1}, "stock must be an integer >= 0"),
        ("DPB/Pricing-v0", {"stock": 2.5}, "stock must be an integer >= 0"),
        ("DPB/Pricing-v0", {"stock": "many"}, "stock must be an integer >= 0"),
        ("DPB/Pricing-v0", {"stock": [1, 2]}, "stock must be a number, got 2"),
        ("DPB/Pricing-v0", {"stock": 0}, "must leave something to sell"),
        ("DPB/Pricing-v0", {"stock": 3, "demand": "gaussian"}, "a demand of 0 or 1"),
        ("DPB/Pricing-v0", {"stock": 3, "delay": 5}, "no sense with delay: the remaining stock"),
        ("DPB/Pricing-v0", {"stock": 3, "contamination": 0.1}, "no sense with contamination"),
        ("DPB/Assortment-v0", {"stock": [1] * 99}, "a number or 100 numbers, got 99"),
        ("DPB/Assortment-v0", {"stock": 3, "exactly": True}, "no sense with exactly"),
    ],
)
def test_invalid_values_are_rejected(env_id, given, message):
    with pytest.raises(ParameterError, match=re.escape(message)):
        make_problem(env_id, **given)


def test_without_stock_nothing_changes():
    problem = make_problem("DPB/Pricing-v0", stock=None)
    instance = problem.instance([0])
    assert type(instance) is Instance and instance.left is None
    assert has_exact_optimum([99], 2000) and not has_exact_optimum([100], 2000)
    season = make_problem("DPB/Pricing-v0", stock=4).instance([0])
    assert type(season) is StockInstance and season.fork() is not season


KNOWN = [
    name
    for name, spec in sorted(agent_specs().items())
    if spec.entry_point.startswith("dpb_agents")
]
DEEP = {"ppo", "dqn", "sac"}
"""PyTorch takes seconds to import, so `make test` leaves these out."""


@pytest.mark.slow
@pytest.mark.parametrize("env_id", FEW)
@pytest.mark.parametrize(
    "names",
    [
        pytest.param({*KNOWN} - DEEP, id="compiled"),
        pytest.param({"oracle", *DEEP}, id="deep", marks=pytest.mark.long),
    ],
)
def test_every_agent_plays_a_season(env_id, names):
    if names >= DEEP:
        pytest.importorskip("stable_baselines3", reason="needs the extra [sb3]")
    kind = environment(env_id).kind
    result = dpb_gym.evaluate(
        env_id,
        agents=[n for n in sorted(names) if {kind, "any"} & set(agent_specs()[n].supports)],
        horizon=50,
        replicates=2,
        env_kwargs=FEW[env_id],
        budgets=["rho=1", "none"],
        progress=False,
    )
    assert not result.failures
    rows = {(r["agent"], r["budget"]): r["regret"] for r in result.records()}
    assert all(np.isfinite(list(rows.values()))) and rows[("oracle", "none")] < 1e-9


def test_notes_name_the_benchmark_of_regret_and_audits_reject_stock():
    for stock, name in ((40, "dynamic programme"), (900, "fluid bound")):
        task = Task(name="t", env="DPB/Pricing-v0", env_kwargs={"stock": stock}, horizon=1000)
        (note,) = data_notes(task)
        assert name in note and "sold out is on display" in note
    with pytest.raises(ParameterError, match="audit it without stock"):
        audit("one-pass-pricing", "rho=1", env_id="DPB/Pricing-v0", env_kwargs={"stock": 3})
