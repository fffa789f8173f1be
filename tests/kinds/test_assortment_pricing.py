"""Assortments with prices: demand, best offers, actions, logs and agents."""

from __future__ import annotations

import importlib.util
from itertools import combinations
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import dpb_data
import dpb_gym
from dpb_gym import kernels
from dpb_gym.errors import ActionError, AgentError, DataError, ParameterError
from dpb_gym.kinds.assortment_pricing_kind import PriceLevels, ScoredPrices
from dpb_gym.problems.kinds import kind_of
from dpb_gym.registry import agent_spec

ENV = "DPB/AssortmentPricing-v0"
KIND = kind_of("assortment-pricing")


def revenue(x: Any, theta: Any, offer: Any) -> float:
    """The expected revenue of one offer, in plain NumPy."""
    value, slope = x @ theta[: len(theta) // 2], x @ theta[len(theta) // 2 :]
    offered = offer >= 0
    weight = np.exp(value[offered] - offer[offered] * slope[offered])
    return float((offer[offered] * weight).sum() / (1.0 + weight.sum()))


def best_by_force(x: Any, theta: Any, capacity: int, low: float, high: float) -> float:
    """The best revenue over all sets of items, with prices by a grid and a local search."""
    n, best = len(x), 0.0
    for size in range(1, capacity + 1):
        for items in combinations(range(n), size):
            chosen = list(items)

            def loss(prices: Any, chosen: list[int] = chosen) -> float:
                offer = np.full(n, -1.0)
                offer[chosen] = prices
                return -revenue(x, theta, offer)

            grid = np.stack(np.meshgrid(*[np.linspace(low, high, 7)] * size), -1).reshape(-1, size)
            start = min(grid, key=loss)
            optimum = minimize(loss, start, bounds=[(low, high)] * size, options={"ftol": 1e-15})
            best = max(best, -optimum.fun, -loss(start))
    return best


def best_of(x: Any, theta: Any, capacity: int, available: Any = None, low: float = 0.0,
            high: float = 1.0) -> tuple[Any, float]:  # fmt: skip
    n = len(x)
    prices, values = np.empty((1, n)), np.empty(1)
    mask = np.ones((1, n), bool) if available is None else available[None]
    kernels.priced_choices.best_offers(
        x[None].astype(np.float32), theta[None], mask, capacity, low, high, prices, values
    )
    return prices[0], float(values[0])


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6), n=st.integers(1, 4), m=st.integers(1, 3), steep=st.floats(0.0, 8.0)
)
def test_the_best_offer_is_that_of_brute_force(seed: int, n: int, m: int, steep: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, m)).astype(np.float32).astype(np.float64)
    theta = rng.normal(size=2 * m)
    theta[m] += steep
    capacity = int(rng.integers(1, n + 1))
    low, high = sorted(rng.random(2)) if seed % 2 else (0.0, 1.0)
    offer, value = best_of(x, theta, capacity, low=low, high=high)
    assert (offer >= 0).sum() <= capacity
    assert ((offer == -1.0) | ((offer >= low) & (offer <= high))).all()
    assert value == pytest.approx(revenue(x, theta, offer), rel=1e-12)
    # the revenue of a possible offer, so never more than the best one
    assert value >= best_by_force(x, theta, capacity, low, high) - 1e-12


def test_the_best_offer_has_no_better_neighbour_in_large_problems() -> None:
    rng = np.random.default_rng(1)
    problem = dpb_gym.make_problem(ENV, n_items=40, capacity=8)
    instance = problem.instance([5])
    x = instance.context().features[0].astype(np.float64)
    theta = instance.hidden["theta"][0]
    actions, values = instance.oracle()
    offer = np.array(actions[0])
    for _ in range(2000):
        other = offer.copy()
        inside = rng.choice(np.flatnonzero(offer >= 0))
        outside = rng.choice(np.flatnonzero(offer < 0))
        if rng.random() < 0.5:
            other[outside] = rng.random()
            other[inside] = -1.0
        else:
            other[inside] = np.clip(other[inside] + rng.normal(0.0, 0.1), 0.0, 1.0)
        assert revenue(x, theta, other) <= values[0] + 1e-12


def test_prices_of_equal_items_are_the_lambert_price() -> None:
    """One feature: all prices are z + 1 / s, z the revenue (Gallego & Wang 2014)."""
    x, theta = np.ones((5, 1)), np.array([1.0, 4.0])
    offer, value = best_of(x, theta, 3)
    assert offer.tolist()[3:] == [-1.0, -1.0]
    np.testing.assert_allclose(offer[:3], value + 0.25, rtol=1e-12)


def test_the_example_computes_the_same_offers() -> None:
    path = Path(__file__).parents[2] / "examples/new_kind.py"
    source = path.read_text(encoding="utf-8").partition("class PriceRow")[0]
    spec = importlib.util.spec_from_loader("menus_only", loader=None)
    assert spec is not None
    module: Any = importlib.util.module_from_spec(spec)
    exec(compile(source, str(path), "exec"), vars(module))
    rng = np.random.default_rng(0)
    x = rng.random((30, 6, 2)).astype(np.float32)
    theta = rng.random((30, 4)) + np.array([0.0, 0.0, 2.0, 2.0])
    theirs, values = module.best_menus(x, theta, 3)
    for b in range(30):
        offer, value = best_of(x[b], theta[b], 3)
        assert value == pytest.approx(values[b], rel=1e-12)
        np.testing.assert_allclose(offer, theirs[b], atol=1e-7)


def test_choices_have_the_chances_of_the_logit() -> None:
    problem = dpb_gym.make_problem(ENV, n_items=4, capacity=2, dim=4)
    instance = problem.instance([0])
    n = 20_000
    hidden = {"theta": instance.hidden["theta"].repeat(n, 0)}
    round_ = instance.round().each(lambda v: v.repeat(n, 0))
    uniforms = (np.arange(n) + 0.5) / n
    offer = np.array([0.4, -1.0, 0.6, -1.0])
    feedback, expected = problem.respond(
        hidden, round_._replace(uniform=uniforms), offer[None].repeat(n, 0)
    )
    x, theta = round_.context.features[0].astype(float), hidden["theta"][0]
    weight = np.exp(x @ theta[:2] - offer * (x @ theta[2:])) * (offer >= 0)
    chances = weight / (1.0 + weight.sum())
    counts = np.array([(feedback.choice == i).mean() for i in range(4)])
    np.testing.assert_allclose(counts, chances, atol=2.0 / n)
    np.testing.assert_allclose(feedback.reward.mean(), expected[0], atol=2.0 / n)
    assert expected[0] == pytest.approx(revenue(x, theta, offer), rel=1e-12)
    nothing = problem.respond(hidden, round_, np.full((n, 4), -1.0))
    assert not nothing[1].any() and (nothing[0].choice == -1).all()


@pytest.mark.parametrize(
    "offer", [[0.5, 0.5, 0.5], [1.1, -1, -1], [-0.5, -1, -1], [np.nan, -1, -1]]
)
def test_impossible_offers_are_rejected(offer: list[float]) -> None:
    instance = dpb_gym.make_problem(ENV, n_items=3, capacity=2).instance([0, 1])
    fine = [0.5, 0.5, -1.0]
    with pytest.raises(ActionError, match="of replicate 1 must be in"):
        instance.respond(np.array([fine, offer], np.float64))


@pytest.mark.parametrize(
    ("given_", "match"),
    [({"dim": 5}, "dim must be even"), ({"capacity": 21}, "capacity"), ({"dim": 0}, "dim"),
     ({"theta": [1.0]}, "theta")],
)  # fmt: skip
def test_bad_parameters_are_rejected(given_: dict[str, Any], match: str) -> None:
    with pytest.raises(ParameterError, match=match):
        dpb_gym.make_problem(ENV, **given_)


def test_sensitivities_are_as_documented() -> None:
    instance = dpb_gym.make_problem(ENV, dim=8).instance(range(50))
    slopes = np.einsum("bnm,bm->bn", instance.context().features, instance.hidden["theta"][:, 4:])
    assert slopes.min() >= 2.0 and slopes.max() <= 6.0


def test_random_offers_are_uniform() -> None:
    info = dpb_gym.make_problem(ENV, n_items=5, capacity=2).info
    uniforms = np.random.default_rng(0).random((20_000, 5))
    offers = KIND.random(info, uniforms)
    offered = offers >= 0
    assert (offered.sum(axis=1) == 2).all()
    np.testing.assert_allclose(offered.mean(axis=0), 0.4, atol=0.02)
    np.testing.assert_allclose(np.sort(offers[offered])[::4000], np.arange(10) / 10, atol=0.02)
    few = np.tile([True, False, False, False, False], (20_000, 1))
    assert (KIND.random(info, uniforms, few) >= 0).sum(axis=1).tolist() == [1] * 20_000


@pytest.mark.parametrize("kwargs", [{}, {"n_prices": 4}, {"obs_mode": "dict"}, {"available": 0.5}])
def test_the_environment_passes_the_checker(
    kwargs: dict[str, Any], recwarn: pytest.WarningsRecorder
) -> None:
    if "available" not in kwargs:
        check_env(gym.make(ENV, horizon=5, **kwargs).unwrapped)
        assert not recwarn.list
    env = gym.make(ENV, horizon=30, n_items=4, capacity=2, **{**kwargs, "n_prices": 3})
    env.reset(seed=1)
    env.action_space.seed(1)
    for _ in range(29):
        mask = env.unwrapped.action_masks().reshape(4, 4)
        action = [int(np.flatnonzero(row)[-1]) for row in mask]
        assert env.step(action)[4]["regret"] >= 0.0


def test_scores_choose_the_items() -> None:
    info = dpb_gym.make_problem(ENV, n_items=4, capacity=2).info
    mode = ScoredPrices(info)
    rows = [[0.1, 0.9, -1.0, 0.9], [0.2, 0.3, 0.4, 0.5]]
    assert mode.decode(np.array(rows)).tolist() == [[-1.0, 0.3, -1.0, 0.5]]
    with pytest.raises(ActionError, match="prices must be in"):
        mode.decode(np.array([rows[0], [0.2, 1.5, 0.4, 0.5]]))
    with pytest.raises(ActionError, match="scores must be finite"):
        mode.decode(np.array([[np.nan] * 4, rows[1]]))


def test_levels_are_prices() -> None:
    info = dpb_gym.make_problem(ENV, n_items=4, capacity=2).info
    mode = PriceLevels(info, np.array([0.5, 1.0]))
    assert mode.decode(np.array([0, 2, 1, 1])).tolist() == [[-1.0, 1.0, 0.5, -1.0]]
    assert mode.permitted(np.array([True, False, True, True])).tolist() == (
        [True] * 3 + [True, False, False] + [True] * 6
    )
    with pytest.raises(ActionError, match=r"price levels must be in 0\.\.2"):
        mode.decode(np.array([0, 3, 1, 1]))


def test_the_picture_shows_prices() -> None:
    env = gym.make(ENV, horizon=9, n_items=3, capacity=2, render_mode="ansi", n_prices=4)
    env.reset(seed=0)
    assert "item 2" in env.render()
    env.step([2, 0, 3])
    shown = env.render()
    assert "0.500" in shown and "0.750" in shown and "item 1" not in shown
    env = gym.make(ENV, horizon=9, render_mode="rgb_array")
    env.reset(seed=0)
    env.step(env.action_space.sample())
    assert len(np.unique(env.render().reshape(-1, 3), axis=0)) > 10


def test_sessions_ask_for_the_item() -> None:
    info = dpb_gym.make_problem(ENV, n_items=3, capacity=2, dim=4, horizon=50).info
    session = dpb_gym.serve("one-pass-offers", "rho=1", info, seed=0)
    number, offer = session.decide([[1.0, 0.1], [1.0, 0.2], [1.0, 0.3]])
    assert len(offer) == 2 and set(offer) < {0, 1, 2}
    (left_out,) = {0, 1, 2} - set(offer)
    with pytest.raises(ParameterError, match=f"item {left_out} was not offered"):
        session.observe(number, left_out)
    session.observe(number, next(iter(offer)))
    number, _ = session.decide([[1.0, 0.1], [1.0, 0.2], [1.0, 0.3]])
    session.observe(number, None)


@pytest.mark.parametrize("name", ["mle-offers", "one-pass-offers"])
def test_agents_learn(name: str) -> None:
    size = {"n_items": 8, "capacity": 3, "dim": 4}
    result = dpb_gym.evaluate(
        ENV, [name, "random"], horizon=1500, replicates=4, env_kwargs=size,
        budgets=["rho=1", "none"], progress=False,
    )  # fmt: skip
    assert not result.failures
    lost = {(row.agent, row.budget): row.regret[:, -1].mean() for row in result.rows}
    assert lost[name, "none"] < 0.25 * lost["random", "none"]
    if (name, "rho=1") in lost:
        assert lost[name, "none"] < lost[name, "rho=1"] < 0.6 * lost["random", "none"]


def test_rows_have_the_length_that_the_guarantee_needs() -> None:
    """Half of the sensitivity 1 for the longest outcome, whatever the offer and theta."""
    from dpb_agents import kernels as agent_kernels

    rng = np.random.default_rng(3)
    for _ in range(30):
        features = rng.normal(size=(1, 5, 2)) * 10.0 ** rng.integers(-3, 4)
        offers = np.where(rng.random((1, 5)) < 0.5, rng.random((1, 5)), -1.0)
        theta = rng.normal(size=(1, 4)) * 10.0 ** rng.integers(-2, 2)
        lengths = []
        for choice in (-1, *np.flatnonzero(offers[0] >= 0)):
            phi, rows = np.empty((1, 5, 4), np.float32), np.empty((1, 14))
            count, place = np.empty(1, np.int64), np.empty(1, np.int64)
            picked = np.array([choice])
            agent_kernels.offers.offered_rows(features, offers, picked, phi, count, place)
            agent_kernels.offers.newton_rows(phi, count, place, theta, 4.0, True, rows)
            lengths.append(np.linalg.norm(rows))
        assert max(lengths) <= 0.5
        if (offers >= 0).any():
            assert max(lengths) == pytest.approx(0.5)


def test_rows_solve_for_theta() -> None:
    """Curvature and response of many choices under theta recover it, at any other theta."""
    from dpb_agents import kernels as agent_kernels
    from dpb_agents.kernels.curvature import symmetric

    problem = dpb_gym.make_problem(ENV, n_items=4, capacity=4, dim=4, horizon=20_000)
    instance = problem.instance([0])
    rng = np.random.default_rng(0)
    n = 20_000
    x = rng.uniform(-1.0, 1.0, (n, 4, 2))
    x[..., 0] = 1.0
    offers = rng.random((n, 4))
    theta = instance.hidden["theta"].repeat(n, 0)
    choice = np.empty(n, np.int64)
    kernels.priced_choices.outcome(
        x, theta, offers, 4, rng.random(n), choice, np.empty(n), np.empty(n)
    )
    phi, rows = np.empty((n, 4, 4)), np.empty((n, 14))
    count, place = np.empty(n, np.int64), np.empty(n, np.int64)
    agent_kernels.offers.offered_rows(x, offers, choice, phi, count, place)
    near = theta + 0.2
    agent_kernels.offers.newton_rows(phi, count, place, near, 1.0, True, rows)
    total = rows.sum(axis=0)
    curvature = symmetric(total, 4, 1.0)
    np.testing.assert_allclose(np.linalg.solve(curvature, total[-4:]), theta[0], atol=0.25)


def test_agents_of_other_kinds_are_refused() -> None:
    agent = agent_spec("one-pass-offers").make()
    other = dpb_gym.make_problem("DPB/Pricing-v0").info
    with pytest.raises(AgentError, match="plays assortment-pricing problems, not pricing"):
        agent.begin(other, None, None)


@pytest.mark.slow
def test_the_private_agent_passes_an_audit_and_fails_with_less_noise() -> None:
    report = dpb_gym.audit("one-pass-offers", dpb_gym.Budget.zcdp(1.0), runs=600, deployment=200)
    assert (report.verdict, report.control) == ("PASS", "FAIL")


@pytest.fixture(scope="module")
def sales() -> dict[str, Any]:
    """Choices of three drinks, or of nothing (kept as an item), at random prices."""
    rng = np.random.default_rng(2)
    n = 4000
    price = rng.uniform(1.0, 5.0, (n, 3))
    utility = np.array([0.5, 1.0, 1.5]) - price * np.array([0.4, 0.6, 0.8])
    weight = np.hstack([np.exp(utility), np.ones((n, 1))])
    taken = (rng.random((n, 1)) > np.cumsum(weight, axis=1) / weight.sum(1, keepdims=True)).sum(1)
    return {
        "visit": np.repeat(np.arange(n), 4),
        "drink": np.tile(["cocoa", "coffee", "tea", "nothing"], n),
        "taken": (taken[:, None] == np.arange(4)).astype(int).ravel(),
        "euros": np.hstack([price, np.ones((n, 1))]).ravel(),
    }


COLUMNS = {"case": "visit", "item": "drink", "chosen": "taken", "price": "euros"}


def test_a_log_gives_its_model(sales: dict[str, Any]) -> None:
    env_id = dpb_gym.from_log(sales, "assortment-pricing", outside="nothing", **COLUMNS)
    assert env_id.startswith("Log/AssortmentPricing-Frame-")
    problem = dpb_gym.make_problem(env_id, horizon=200)
    unit = problem.highest_price
    truth = np.array([0.5, 1.0, 1.5, 0.4 * unit, 0.6 * unit, 0.8 * unit])
    spread = problem.posterior(200).std(axis=0)
    assert (np.abs(problem.theta - truth) < 4.0 * spread).all()
    low, high = problem.info.price_range
    assert (low, high) == (pytest.approx(1.0 / unit, rel=0.01), pytest.approx(1.0))
    summary = env_id.summary()
    assert summary["price_elasticity"] < -0.5 and summary["items"] == ["cocoa", "coffee", "tea"]
    best = problem.instance([0]).best_action()[0]
    assert (best[best >= 0] >= low).all()
    free = dpb_gym.from_log(
        sales, "assortment-pricing", outside="nothing", capacity=2, extrapolate=True, **COLUMNS
    )
    assert dpb_gym.make_problem(free).info.price_range is None
    assert (problem.capacity, dpb_gym.make_problem(free).capacity) == (3, 2)


def test_logs_without_prices_or_refusals_are_rejected(sales: dict[str, Any]) -> None:
    without = {k: v for k, v in COLUMNS.items() if k != "price"}
    with pytest.raises(ParameterError, match="name the column of prices: price="):
        dpb_gym.from_log(sales, "assortment-pricing", outside="nothing", **without)
    with pytest.raises(DataError, match="every set has a choice"):
        dpb_gym.from_log(sales, "assortment-pricing", **COLUMNS)
    with pytest.raises(ParameterError, match="outside must be one of"):
        dpb_gym.from_log(sales, "assortment-pricing", outside="milk", **COLUMNS)
    with pytest.raises(ParameterError, match="revenue belongs to problem='assortment'"):
        dpb_gym.from_log(sales, "assortment-pricing", revenue="euros", **COLUMNS)
    table = dpb_data.load_choices("synthetic-mode-canada")
    with pytest.raises(ParameterError, match="prices are missing"):
        dpb_gym.from_log(table, "assortment-pricing", outside="car")


def test_prices_of_quality_are_rejected(sales: dict[str, Any]) -> None:
    wrong = {**sales, "euros": sales["euros"] + 20.0 * sales["taken"]}
    wrong["euros"][::7] = sales["euros"][::7]
    with pytest.raises(DataError, match=r"choices rise with the price|copy of it"):
        dpb_gym.from_log(wrong, "assortment-pricing", outside="nothing", **COLUMNS)


@pytest.mark.slow
def test_advice(sales: dict[str, Any]) -> None:
    advice = dpb_gym.advise(
        sales, "assortment-pricing", outside="nothing", budgets="rho=1", horizon=4000, replicates=8,
        progress=False, currency="EUR", **COLUMNS,
    )  # fmt: skip
    earned = {e.label: e.earned.mean for e in advice.earnings}
    assert earned["random"] < earned["rho=1"]
    assert advice.unit == "EUR"
    assert "always " in str(advice) and " EUR, " in str(advice)
    assert "units of" not in str(advice)


def test_the_picture_of_the_page_is_a_rendered_round() -> None:
    """The committed file has the size and the colours of a picture of today."""
    image = pytest.importorskip("PIL.Image")
    page = Path(__file__).parents[2] / "docs/_static/assortment-pricing.png"
    stored = np.asarray(image.open(page))
    env = gym.make(ENV, horizon=50, n_items=12, render_mode="rgb_array")
    env.reset(seed=1)
    env.action_space.seed(1)
    env.step(env.action_space.sample())
    today = env.render()
    assert stored.shape == today.shape
    green = np.array([46, 160, 90])
    assert (stored == green).all(axis=2).sum() > 500, "an item was bought"
