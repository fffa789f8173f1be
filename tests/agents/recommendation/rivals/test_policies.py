"""Every rival against plain NumPy on the same history, with vanishing noise."""

from __future__ import annotations

import inspect
import math
from pathlib import Path

import numpy as np
import pytest
import yaml

from dpb_gym import make_agent, make_problem
from dpb_gym.errors import ActionError, AgentError, ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Feedback
from dpb_gym.registry import agent_spec, check_supported
from dpb_gym.streams import AgentStreams
from dpb_gym.suites.recipes import load_recipe

RIVALS = (
    "jdp-lin-ucb",
    "noisy-gram-ucb",
    "zcdp-episodic",
    "adac-oful-zcdp",
    "rarely-switching-zcdp",
    "dgs-lin-ucb",
    "coreset-elimination",
    "batched-aggregation",
)
EXACT = Budget.zcdp(1e14)
D, T = 6, 700


class Twin:
    """Ridge statistics since the start, without noise."""

    def __init__(self, **params):
        self.__dict__.update(params)
        self.t, self.A, self.b = 0, np.eye(D), np.zeros(D)
        self.theta, self.V, self.width = np.zeros(D), np.eye(D), None
        self.start()

    def start(self):
        pass

    def scores(self, x, arms):
        width = self.alpha if self.width is None else self.width
        return x @ self.theta + width * np.sqrt(np.einsum("ki,ij,kj->k", x, inv(self.V), x))

    def take(self, x, r):
        self.t += 1
        self.A += np.outer(x, x)
        self.b += r * x
        self.learn(x, r)


def inv(matrix):
    return np.linalg.inv(matrix)


class Batched(Twin):
    def start(self):
        self.released = np.zeros(D)

    def learn(self, x, r):
        if self.t % self.batch == 0:
            self.released = self.b.copy()
        self.V, self.theta = self.A, inv(self.A) @ self.released


class DGS(Twin):
    def learn(self, x, r):
        self.V = self.A
        if self.t % self.every == 0:
            self.theta = inv(self.A) @ self.b


class Joint(Twin):
    def learn(self, x, r):
        if self.t % self.every == 0:
            self.V, self.theta = self.A.copy(), inv(self.A) @ self.b


class Switching(Twin):
    def start(self):
        self.at = 0.0
        self.update()

    def update(self):
        pass

    def learn(self, x, r):
        if np.linalg.slogdet(self.A)[1] - self.at > math.log(1 + self.growth):
            self.at = np.linalg.slogdet(self.A)[1]
            self.V, self.theta = self.A.copy(), inv(self.A) @ self.b
            self.update()


class AdaC(Switching):
    def update(self):
        log = 2 * math.log(T) + np.linalg.slogdet(self.V)[1]
        self.width = self.alpha * (self.norm + 0.5 * math.sqrt(log))


class Episodic(Twin):
    def start(self):
        self.open()
        self.least = self.length

    def open(self):
        self.G, self.s, self.n, self.before = np.eye(D), np.zeros(D), 0, self.A.copy()

    def learn(self, x, r):
        self.G += np.outer(x, x)
        self.s += r * x
        self.n += 1
        grown = np.linalg.slogdet(self.A)[1] - np.linalg.slogdet(self.before)[1]
        if self.n >= self.least and grown >= math.log(self.trigger):
            self.V, self.theta = self.G, inv(self.G) @ self.s
            self.least *= 2
            self.open()


class Coreset(Twin):
    pool = 100

    def start(self):
        self.end = self.size = self.length
        self.G, self.s = np.eye(D), np.zeros(D)
        self.active, self.features = np.ones(self.pool, bool), {}
        self.estimated = False

    def bounds(self, x):
        phases = math.ceil(math.log2(T / self.length + 1))
        log = math.sqrt(2 * math.log(2 * self.pool * phases * T))
        half = self.alpha * 0.5 * log * np.sqrt(np.einsum("ki,ij,kj->k", x, inv(self.V), x))
        return x @ self.theta - half, x @ self.theta + half

    def scores(self, x, arms):
        if self.pool == 100:
            self.features.update(zip(arms.tolist(), x))
            active = self.active[arms]
        else:
            active = np.ones(len(x), bool)
            if self.estimated:
                low, high = self.bounds(x)
                active = high >= low.max()
        if not active.any():
            return x @ self.theta
        widest = np.sqrt(np.einsum("ki,ij,kj->k", x, inv(self.G), x))
        return np.where(active, widest, -np.inf)

    def learn(self, x, r):
        self.G += np.outer(x, x)
        self.s += r * x
        if self.t == self.end:
            self.V, self.theta, self.estimated = self.G.copy(), inv(self.G) @ self.s, True
            if self.features:
                left = [a for a in self.features if self.active[a]]
                low, high = self.bounds(np.array([self.features[a] for a in left]))
                for a, top in zip(left, high):
                    self.active[a] = top >= low.max()
            self.G, self.s = np.eye(D), np.zeros(D)
            self.size *= 2
            self.end += self.size


CASES = [
    ("batched-aggregation", Batched, {"alpha": 0.7, "batch": 40}),
    ("dgs-lin-ucb", DGS, {"alpha": 0.7, "every": 7}),
    ("jdp-lin-ucb", Joint, {"alpha": 0.7, "every": 10}),
    ("noisy-gram-ucb", Joint, {"alpha": 0.7, "every": 50}),
    ("rarely-switching-zcdp", Switching, {"alpha": 0.7, "growth": 2.0}),
    ("adac-oful-zcdp", AdaC, {"alpha": 0.3, "growth": 0.9, "norm": 1.5}),
    ("zcdp-episodic", Episodic, {"alpha": 0.5, "length": 20, "trigger": 3.0}),
    ("zcdp-episodic", Episodic, {"alpha": 0.5, "length": 2, "trigger": 40.0}),
    ("coreset-elimination", Coreset, {"alpha": 0.05, "length": 30}),
]


@pytest.mark.slow
@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize(("name", "twin", "params"), CASES)
def test_every_action_is_best_in_the_plain_version(play, name, twin, params, centre):
    run = play(name, range(3), T, EXACT, {**params, "centre": centre}, dim=D)
    follow(run, twin, params, centre)


def test_elimination_without_a_pool_compares_offered_candidates(play):
    params = {"alpha": 0.05, "length": 30}
    run = play("coreset-elimination", range(3), T, EXACT, params, dim=D, fresh=True)
    follow(run, type("Fresh", (Coreset,), {"pool": 5}), params, False)


def follow(run, twin, params, centre):
    differ = 0
    for i in range(3):
        plain = twin(**params)
        arms = run.arms[:, i]
        for t in range(T):
            x = run.features[t, i].astype(np.float64)
            x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
            score, action = plain.scores(x, arms[t]), run.actions[t, i]
            # unit vectors score the same until something is known
            assert score[action] > score.max() - 1e-5, (t, score, action)
            differ += score.max() - np.sort(score)[-2] > 1e-5
            plain.take(x[action], run.rewards[t, i] - 0.5 * centre)
    assert differ > T  # of 3 T


@pytest.mark.parametrize("name", RIVALS)
def test_bad_parameters_budgets_problems_and_actions_are_named(name):
    bad = {"alpha": -1.0, "ridge": 0.0, "centre": 1}
    for key in ("growth", "batch", "every", "length"):
        if key in inspect_parameters(name):
            bad[key] = 0
    for key in ("composition", "mechanism", "calibration"):
        if key in inspect_parameters(name):
            bad[key] = "none"
    for key, value in bad.items():
        with pytest.raises(ParameterError, match=key):
            make_agent(name, **{key: value})
    problem = make_problem("DPB/Recommendation-v0", horizon=10, dim=3)
    agent = make_agent(name)
    with pytest.raises(AgentError, match="needs a budget"):
        check_supported(agent_spec(name), problem.info, False)
    with pytest.raises(AgentError, match="plays recommendation problems, not pricing"):
        pricing = make_problem("DPB/Pricing-v0", horizon=10)
        agent.set_up(pricing.info, AgentStreams([0]), EXACT)
    agent.set_up(problem.info, AgentStreams([0, 1]), EXACT)
    context = problem.instance([0, 1]).context()
    agent.act(context)
    for arm in (-1, 5):
        with pytest.raises(ActionError, match=r"replicate 1 is outside 0\.\.4"):
            agent.observe(context, np.array([0, arm]), Feedback(np.zeros(2)))


def inspect_parameters(name):
    return inspect.signature(agent_spec(name).maker).parameters


@pytest.mark.parametrize("name", RIVALS)
def test_tuning_grids_are_of_equal_size_and_valid(name):
    grid = agent_spec(name).maker.tuning_grid
    assert math.prod(len(values) for values in grid.values()) == 8
    for key, values in grid.items():
        assert len(set(values)) == len(values)
        for value in values:
            make_agent(name, **{key: value})


@pytest.mark.parametrize("name", RIVALS)
def test_begin_resets_the_state(play, name):
    first = play(name, range(2), 400, Budget.zcdp(1.0), dim=4)
    again = play(first.agent, range(2), 400, Budget.zcdp(1.0), dim=4)
    np.testing.assert_array_equal(first.actions, again.actions)


@pytest.mark.parametrize("name", RIVALS)
def test_horizons_shorter_than_every_schedule(play, name):
    for horizon in (2, 3):
        assert play(name, range(2), horizon, Budget.zcdp(1.0), dim=2).actions.shape == (horizon, 2)


@pytest.mark.parametrize("name", RIVALS)
def test_the_defaults_are_a_point_of_the_grid(name):
    known = inspect_parameters(name)
    for key, values in agent_spec(name).maker.tuning_grid.items():
        assert known[key].default in values


@pytest.mark.parametrize("name", RIVALS)
def test_the_recipe_is_a_point_of_the_grid_tuned_on_tuning_seeds(name):
    path = Path(__file__).parents[4] / "agents" / "recipes" / f"{name}.yaml"
    agent, params = load_recipe(path)
    known, grid = inspect_parameters(name), agent_spec(name).maker.tuning_grid
    assert agent == name and set(params) == set(known)
    for key, value in params.items():
        assert value in grid.get(key, [known[key].default])
    tuned_on = yaml.safe_load(path.read_text())["tuned_on"]
    assert tuned_on["grid"] == grid and min(tuned_on["seeds"]) >= 1_000_000
