"""The non-private assortment agents, end to end."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from scipy.optimize import minimize

from dpb_agents.assortment.dpmnl import DPMNL, ChoiceReleasers
from dpb_agents.assortment.exact_mnl import ExactMNL
from dpb_agents.assortment.optimistic_slates import DesignMatrix
from dpb_gym.customer_rounds import locked
from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import AgentError, HorizonExceeded, ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.registry import agent_spec, make_agent
from dpb_gym.streams import AgentStreams

Array = NDArray[Any]
NAMES = ["greedy-mnl", "ucb-mnl", "ts-mnl"]
VARIANTS: dict[str, dict[str, Any]] = {
    "raw": {},
    "clipped": {"context_norm": "clip"},
    "random revenues": {"context_norm": "clip", "revenues": "random"},
    "fixed revenues": {"n_items": 12, "capacity": 3, "revenues": list(np.linspace(0.1, 2, 12))},
    "one item": {"n_items": 15, "capacity": 1, "context_norm": "clip"},
    "low rank": {"design": "low-rank", "n_items": 30, "capacity": 5},
    "unpopular": {"theta": [-2.0] * 5, "context_norm": "clip"},
    "one dimension": {"dim": 1, "theta": [1.0], "n_items": 10, "capacity": 2, "design": "uniform"},
}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_beats_random(play: Any, random_regret: Any, name: str, variant: str) -> None:
    seeds, horizon = list(range(12)), 400
    regret = play(name, seeds, horizon, **VARIANTS[variant]).regret
    reference = random_regret(seeds, horizon, **VARIANTS[variant])
    assert stats.ttest_rel(0.5 * reference, regret, alternative="greater").pvalue < 1e-3


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("revenues", ["equal", "random"])
def test_replicates_do_not_depend_on_the_batch(play: Any, name: str, revenues: str) -> None:
    params = {"explore": 7}
    env = {"revenues": revenues, "n_items": 20, "capacity": 4}
    batch = play(name, list(range(8)), 250, params=params, **env)
    for seeds in ([0], [6], [2, 5, 7]):
        part = play(name, seeds, 250, params=params, **env)
        np.testing.assert_array_equal(np.array(part.actions), np.array(batch.actions)[:, seeds])
        np.testing.assert_array_equal(part.regret, batch.regret[seeds])


@pytest.mark.parametrize("name", NAMES)
def test_begin_resets_the_agent(play: Any, name: str) -> None:
    run = play(name, [3, 4], 60, n_items=10, capacity=2)
    first = np.array(run.actions)
    again = type(run)(run.agent, run.problem, [3, 4]).play(60)
    np.testing.assert_array_equal(first, np.array(again.actions))


@pytest.mark.parametrize("name", [*NAMES, "dpmnl"])
def test_a_pickled_agent_continues_with_equal_actions(play: Any, name: str) -> None:
    params = {"explore": 20, "growth": 1.3}
    budget = Budget.zcdp(20.0) if name == "dpmnl" else None
    env = {"n_items": 10, "capacity": 3, "dim": 3, "params": params, "budget": budget}
    whole = play(name, [0, 1], 200, **env)
    part = play(name, [0, 1], 200, **env, stop=90)
    part.agent = pickle.loads(pickle.dumps(part.agent))
    part.play(110)
    np.testing.assert_array_equal(np.array(whole.actions), np.array(part.actions))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("revenues", ["equal", "random"])
def test_full_capacity(play: Any, name: str, revenues: str) -> None:
    run = play(name, [0, 1], 150, n_items=4, capacity=4, revenues=revenues, dim=2)
    if revenues == "equal":
        assert not run.regret.any()
    else:
        late = np.array(run.actions[100:])
        assert (late == -1).any() and (late >= 0).any()


@pytest.mark.parametrize("name", NAMES)
def test_learns_theta_and_knows_revenues(play: Any, name: str) -> None:
    """With theta nearly known, the slates are the exact optimum at the agent's theta."""
    env = {"revenues": "random", "n_items": 8, "capacity": 3, "dim": 2}
    run = play(name, list(range(6)), 3000, **env)
    error = np.abs(run.agent._theta - run.instance.hidden["theta"])
    assert error.max() < 0.5 and error.mean() < 0.15
    optimum = run.problem.best_slates(
        run.agent._theta, run.instance.context().features, run.instance.context().revenues
    )[0]
    greedy = make_agent("greedy-mnl", explore=0)
    greedy.set_up(run.problem.info, AgentStreams(range(6)))
    greedy._theta = run.agent._theta
    np.testing.assert_array_equal(greedy.act(run.instance.context()), optimum)


@pytest.mark.parametrize("name", NAMES)
def test_updates_are_logarithmic(play: Any, name: str) -> None:
    d, K, T = 3, 4, 2000
    run = play(name, [0, 1, 2], T, dim=d, capacity=K, n_items=30, context_norm="clip")
    cap = 1 + d * math.log2(1 + T * K / d)
    assert (run.agent.updates <= cap).all() and (run.agent.updates > 5).all()


def test_regret_flattens(play: Any) -> None:
    seeds = list(range(10))
    short = play("ucb-mnl", seeds, 500, context_norm="clip").regret
    long = play("ucb-mnl", seeds, 5000, context_norm="clip").regret
    assert (long >= short).all()
    assert long.mean() < 3 * short.mean()  # ten times the rounds


def test_ucb_equals_plain_numpy(play: Any) -> None:
    """The whole agent, written again in NumPy with scipy's optimiser."""
    T, N, K, d, scale, ridge = 120, 9, 3, 3, 0.4, 2.0
    params = {"explore": 0, "scale": scale, "ridge": ridge, "growth": 1.7}
    run = play("ucb-mnl", [11], T, params=params, n_items=N, capacity=K, dim=d)

    def penalised(theta: Array) -> float:
        value = 0.5 * ridge * theta @ theta
        for x, slate, choice in records:
            u = x[slate] @ theta
            value += np.log1p(np.exp(u).sum()) - (u[choice] if choice >= 0 else 0.0)
        return float(value)

    records: list[Any] = []
    V, theta = ridge * np.eye(d), np.zeros(d)
    last = np.linalg.slogdet(V)[1]
    for t in range(1, T + 1):
        x = run.features[t - 1][0].astype(float)
        width = scale * 0.5 * math.sqrt(2 * d * math.log(1 + t / d) + 2 * math.log(t))
        z = x @ theta + width * np.sqrt(np.einsum("id,de,ie->i", x, np.linalg.inv(V), x))
        slate = np.sort(np.argsort(-z)[:K])
        np.testing.assert_array_equal(run.actions[t - 1][0], slate)
        records.append((x, slate, run.choices[t - 1][0]))
        V = V + x[slate].T @ x[slate]
        if np.linalg.slogdet(V)[1] > last + math.log(1.7):
            last = np.linalg.slogdet(V)[1]
            theta = minimize(penalised, theta, method="BFGS", tol=1e-9).x
    np.testing.assert_allclose(run.agent._theta[0], theta, atol=2e-3)


class Told(DPMNL):
    """The policy on releases that are fixed in advance."""

    def __init__(self, rule: str) -> None:
        super().__init__(explore=3, growth=1.5, rule=rule, scale=0.5)

    def releasers(self, problem: Any, curator: Any) -> ChoiceReleasers:
        rng = np.random.default_rng(5)
        B, d = curator.replicates, problem.dim

        class Fixed:
            total = np.zeros((B, d, d))

            def add(self, *records: Any) -> None:
                pass

            def release(self, due: Array) -> Array:
                return rng.normal(size=(B, d))

            @property
            def value(self) -> Array:
                self.total = self.total + rng.random() * np.eye(d)
                return self.total.copy()

        return ChoiceReleasers(Fixed(), Fixed(), 1.0, 0.0, None, lambda t: 1.0, False)


@pytest.mark.parametrize("rule", ["greedy", "ucb", "ts"])
def test_the_policy_sees_releases_only(rule: str) -> None:
    """Non-interference: other records, same releases, same actions."""
    problem = make_problem("DPB/Assortment-v0", horizon=40, n_items=9, capacity=3, dim=2)
    actions = []
    for flip in (False, True):
        agent, instance = Told(rule), problem.instance([0, 1])
        agent.set_up(problem.info, AgentStreams([0, 1]))
        taken = []
        for t in range(40):
            context = locked(instance.context())
            taken.append(agent.act(context))
            feedback = instance.respond(taken[-1]).feedback
            if flip:
                other = 2 - feedback.choice % 3
                feedback = feedback._replace(choice=other, reward=1e6 + feedback.reward)
            agent.observe(context, taken[-1], feedback)
            if t < 39:
                instance.advance()
        actions.append(taken)
    np.testing.assert_array_equal(*actions)


def test_small_eigenvalues_are_raised_to_the_floor() -> None:
    design = DesignMatrix(2, 3, shift=2.0, floor=1.0)
    np.testing.assert_allclose(design.logdet, 3 * np.log(2.0))
    rng = np.random.default_rng(0)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0]
    bad = turn @ np.diag([-7.0, 1.0, 5.0]) @ turn.T
    design.update(np.array([bad, np.eye(3)]))
    V = np.linalg.inv(design.root.transpose(0, 2, 1) @ design.root)
    np.testing.assert_allclose(np.linalg.eigvalsh(V[0]), [1.0, 3.0, 7.0], rtol=1e-9)
    np.testing.assert_allclose(V[1], 3.0 * np.eye(3), rtol=1e-12)
    np.testing.assert_allclose(design.logdet, np.log([21.0, 27.0]))


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"explore": -1}, "explore must be an integer >= 0"),
        ({"explore": 2.5}, "explore must be an integer"),
        ({"scale": float("nan")}, "scale must be a finite number"),
        ({"scale": -0.1}, "scale must be a finite number"),
        ({"kappa": 0.0}, "kappa must be a finite number"),
        ({"ridge": 0.0}, "ridge must be a finite number"),
        ({"growth": 1.0}, "growth must be a finite number"),
        ({"width": 1.0}, "unexpected keyword argument 'width'"),
    ],
)
def test_bad_parameters(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make_agent("ucb-mnl", **params)


def test_bad_use(play: Any) -> None:
    with pytest.raises(ParameterError, match="samples must be an integer >= 1"):
        make_agent("ts-mnl", samples=0)
    agent = make_agent("ucb-mnl")
    with pytest.raises(AgentError, match="plays assortment problems, not pricing"):
        agent.set_up(make_problem("DPB/Pricing-v0").info, AgentStreams([0]))
    run = play("greedy-mnl", [0], 5, n_items=4, capacity=2)
    context = run.instance.context()
    feedback = run.instance.respond(run.actions[-1]).feedback
    with pytest.raises(HorizonExceeded):
        run.agent.observe(context, run.actions[-1], feedback)
    fresh = make_agent("ucb-mnl")
    fresh.set_up(run.problem.info, AgentStreams([0]))
    empty = context._replace(features=np.full_like(context.features, np.nan))
    with pytest.raises(ParameterError, match="features must be finite"):
        fresh.observe(empty, run.actions[-1], feedback)


def test_registration() -> None:
    for name in NAMES:
        spec = agent_spec(name)
        assert spec.supports == ("assortment",) and spec.budget == "never"
        assert spec.partial_feedback and isinstance(spec.make(), ExactMNL)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("revenues", ["equal", "random"])
def test_a_constant_of_the_agent_equals_one_among_the_features(name: str, revenues: str) -> None:
    rounds, seeds = 150, [3, 4]
    features = np.random.default_rng(2).normal(size=(rounds, 8, 3)).astype(np.float32)
    features[..., 2] = 1.5
    kwargs = {"n_items": 8, "capacity": 3, "revenues": revenues, "contexts": features, "dim": 3}
    problem = make_problem("DPB/Assortment-v0", horizon=rounds, **kwargs, theta=[0.8, -0.5, -1.5])
    whole = make_agent(name)
    own = make_agent(name, constant=1.5, prior_mean=[0.0, 0.0])
    whole.set_up(problem.info, AgentStreams(seeds))
    own.set_up(replace(problem.info, dim=2), AgentStreams(seeds))
    instance = problem.instance(seeds)
    for t in range(rounds):
        context = locked(instance.context())
        shown = context._replace(features=context.features[..., :2])
        action = whole.act(context)
        np.testing.assert_array_equal(own.act(shown), action)
        feedback = instance.respond(action).feedback
        whole.observe(context, action, feedback)
        own.observe(shown, action, feedback)
        if t < rounds - 1:
            instance.advance()
    assert own.updates.min() > 2
