"""A kind of another package in one file: every part of the library accepts it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import dpb_gym
from dpb_gym.envs.registration import ENVIRONMENTS
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.problems.kinds import KINDS
from dpb_gym.registry import _REGISTRY
from dpb_gym.streams import BlockDraws, fill_uniforms

FILE = Path(__file__).parents[2] / "examples/new_kind.py"
ENV = "Shop/Menu-v0"


@pytest.fixture(scope="module")
def menus() -> Iterator[ModuleType]:
    """The example as a module, with an agent for its kind; unregistered afterwards."""
    spec = importlib.util.spec_from_file_location("new_kind", FILE)
    assert spec is not None and spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    known = set(ENVIRONMENTS)
    spec.loader.exec_module(module)

    class MenuSums(dpb_gym.Agent):
        """Noisy sums of curvature and response of each choice, then the best menu, jittered."""

        def begin(self, problem: Any, streams: Any, curator: Any) -> None:
            B, d = streams.replicates, problem.dim
            self.problem, self.theta, self.rounds = problem, np.zeros((B, d)), 0
            self.uniforms = BlockDraws(streams.agent, (problem.n_items,), fill_uniforms)
            self.sums = curator.running_sum(d * d + d, clip=0.5, every=10)

        def act(self, context: Any) -> Any:
            uniforms = self.uniforms.next()
            if context.t <= 50:
                return module.Menus().random(self.problem, uniforms, context.available)
            capacity = self.problem.capacity
            menus, _ = module.best_menus(context.features, self.theta, capacity, context.available)
            moved = np.clip(menus + 0.3 * (uniforms - 0.5), 0.0, 1.0)
            return np.where(menus >= 0, moved, -1.0)

        def observe(self, context: Any, action: Any, feedback: Any) -> None:
            x, (B, d) = context.features, self.theta.shape
            phi = np.concatenate([x, -action[:, :, None] * x], axis=2)
            p = module.choice_chances(x, self.theta, action)
            mean = np.einsum("bn,bnj->bj", p, phi)
            known = np.einsum("bn,bnj,bnk->bjk", p, phi, phi) - mean[:, :, None] * mean[:, None]
            bought = phi[np.arange(B), np.maximum(feedback.choice, 0)]
            score = np.where(feedback.choice[:, None] >= 0, bought, 0.0) - mean
            response = np.einsum("bjk,bk->bj", known, self.theta) + score
            self.sums.add(np.hstack([known.reshape(B, -1), response]))
            self.rounds += 1
            if self.rounds % 10 == 0:
                value = self.sums.value
                known = value[:, : d * d].reshape(B, d, d)
                shift = 0.01 + self.sums.noise_std * np.sqrt(2.0 * d)
                weights, vectors = np.linalg.eigh(0.5 * (known + known.transpose(0, 2, 1)))
                along = np.einsum("bji,bj->bi", vectors, value[:, d * d :])
                scaled = along / (np.maximum(weights, 0.0) + shift)
                self.theta = np.einsum("bji,bi->bj", vectors, scaled)

    named = {"supports": ["menu"], "protects": ("joint", "user-round")}
    dpb_gym.register_agent("menu-sums", **named)(MenuSums)
    yield module
    del KINDS["menu"], _REGISTRY["menu-sums"]
    for env_id in set(ENVIRONMENTS) - known:
        del ENVIRONMENTS[env_id], gym.registry[env_id]


def test_the_file_is_short() -> None:
    assert len(FILE.read_text(encoding="utf-8").splitlines()) < 200


def test_gymnasium_accepts_it(menus: ModuleType, recwarn: pytest.WarningsRecorder) -> None:
    check_env(gym.make(ENV, horizon=5).unwrapped)
    assert not recwarn.list
    env = gym.make(ENV, horizon=60, render_mode="rgb_array")
    many = gym.make_vec(ENV, num_envs=2, horizon=60)
    env.reset(seed=3)
    many.reset(seed=3)
    many.action_space.seed(3)
    bought = set()
    for _ in range(59):
        actions = many.action_space.sample()
        one = env.step(actions[0])
        both = many.step(actions)
        assert one[1] == both[1][0] and one[4]["regret"] == both[4]["regret"][0]
        bought.add(one[4]["choice"])
    assert -1 in bought and len(bought) > 2
    assert env.render().shape == (320, 480, 3)


@pytest.mark.slow
def test_agents_are_evaluated_and_learn(menus: ModuleType) -> None:
    agents = ["menu-sums", "random", "oracle"]
    result = dpb_gym.evaluate(
        ENV, agents, horizon=400, replicates=2, budgets=["rho=2", "none"], progress=False
    )
    assert not result.failures
    lost = {(row.agent, row.budget): row.regret[:, -1].mean() for row in result.rows}
    assert lost["oracle", "none"] == 0.0
    assert lost["menu-sums", "none"] < 0.4 * lost["random", "none"]
    assert lost["menu-sums", "none"] < lost["menu-sums", "rho=2"] < lost["random", "none"]


@pytest.mark.parametrize(
    "condition",
    [
        {"available": 0.5}, {"features": "correlated"}, {"features": "scaled"}, {"drift": "walk"},
        {"contamination": 0.2}, {"delay": 3}, {"returning": 10}, {"unknown_horizon": True},
    ],
    ids=str,
)  # fmt: skip
def test_conditions_apply(menus: ModuleType, condition: dict[str, Any]) -> None:
    result = dpb_gym.evaluate(
        ENV, ["random", "oracle"], horizon=60, replicates=2, env_kwargs=condition, progress=False
    )
    assert not result.failures
    lost = {row.agent: row.regret[:, -1].mean() for row in result.rows}
    assert lost["oracle"] <= 1e-9 < lost["random"]


@pytest.mark.parametrize("condition", ["types", "stock", "intercept"])
def test_conditions_that_the_kind_refuses(menus: ModuleType, condition: str) -> None:
    with pytest.raises(ParameterError, match=f"{condition} makes no sense for menu: "):
        dpb_gym.make_problem(ENV, **{condition: 2})


def test_an_unavailable_item_is_rejected(menus: ModuleType) -> None:
    problem = dpb_gym.make_problem(ENV, available=0.3, n_items=4)
    instance = problem.instance([0])
    (hidden,) = np.flatnonzero(~instance.context().available[0])[:1]
    menu = np.full((1, 4), -1.0)
    menu[0, hidden] = 0.5
    with pytest.raises(dpb_gym.errors.ActionError, match=f"item {hidden} of replicate 0"):
        instance.respond(menu)


@pytest.mark.slow
def test_agents_are_audited(menus: ModuleType) -> None:
    report = dpb_gym.audit("menu-sums", Budget.zcdp(1.0), runs=600, deployment=100)
    assert report.verdict == "PASS" and report.control == "FAIL"


@pytest.fixture(scope="module")
def sales(menus: ModuleType) -> dict[str, Any]:
    """Sales of three items at random prices, by known values and slopes."""
    rng = np.random.default_rng(0)
    price = rng.uniform(2.0, 10.0, (3000, 3))
    theta = np.array([[1.0, 0.5, 0.0, 4.0, 3.0, 2.0]])
    x = np.eye(3, dtype=np.float32)[None].repeat(3000, 0)
    chances = menus.choice_chances(x, theta.repeat(3000, 0), price / 10.0)
    reached = rng.random((3000, 1)) < np.cumsum(chances, axis=1)
    bought = np.where(reached.any(axis=1), reached.argmax(axis=1), -1)
    return {
        "case": np.repeat(np.arange(3000), 3),
        "item": np.tile(["tea", "coffee", "milk"], 3000),
        "chosen": (bought[:, None] == np.arange(3)).astype(int).ravel(),
        "price": price.ravel(),
    }


COLUMNS = {"case": "case", "item": "item", "chosen": "chosen"}


def test_a_log_gives_an_environment(menus: ModuleType, sales: dict[str, Any]) -> None:
    env_id = dpb_gym.from_log(sales, "menu", **COLUMNS)
    assert env_id.startswith("Log/Menu-Frame-")
    problem = dpb_gym.make_problem(env_id, horizon=100)
    # items in alphabetical order: coffee, milk, tea; the largest price is the unit
    unit = max(sales["price"]) / 10.0
    truth = np.array([0.5, 0.0, 1.0, 3.0 * unit, 2.0 * unit, 4.0 * unit])
    spread = problem.posterior(200).std(axis=0)
    assert (np.abs(problem.theta - truth) < 4.0 * spread).all() and spread.max() < 0.5
    assert "rows: 3000" in env_id.report.replace(",", "")
    result = dpb_gym.evaluate(env_id, ["random", "oracle"], horizon=50, replicates=2)
    assert not result.failures


@pytest.mark.slow
def test_advice_on_a_log(menus: ModuleType, sales: dict[str, Any]) -> None:
    advice = dpb_gym.advise(
        sales, "menu", budgets="rho=1", horizon=100, replicates=8, progress=False, **COLUMNS
    )
    earned = {e.label: e.earned.mean for e in advice.earnings}
    assert earned["random"] < earned["without privacy"]
    assert "always coffee at " in str(advice) or "always milk at " in str(advice)


def test_the_cost_of_privacy_needs_names_of_agents(menus: ModuleType) -> None:
    with pytest.raises(ParameterError, match="no agents are recommended for menu"):
        dpb_gym.cost_of_privacy(ENV, ["rho=1"], horizon=100)
