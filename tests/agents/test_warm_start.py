"""`prior_mean`: agents that estimate theta start at public prior knowledge."""

from __future__ import annotations

import inspect
from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

import dpb_gym
from dpb_agents.recommendation.rivals.linear_rival import shrunk
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import Budget, Curator, NoiseSource
from dpb_gym.problems.rounds import Round
from dpb_gym.registry import agent_spec, agent_specs, make_agent
from dpb_gym.streams import AgentStreams

PROBLEMS = {
    "assortment": ("DPB/Assortment-v0", {"n_items": 9, "capacity": 3, "revenues": "random"}),
    "assortment-pricing": ("DPB/AssortmentPricing-v0", {"n_items": 6, "capacity": 3}),
    "pricing": ("DPB/Pricing-v0", {}),
    "recommendation": ("DPB/Recommendation-v0", {"n_candidates": 8, "interactions_per_user": 2}),
}
# They do not estimate theta, or delegate it to another agent.
OTHERS = {"random", "oracle", "fixed-price", "best-fixed-price"}
OTHERS |= {"private-single-action", "adac-ucb", "adap-ucb", "dp-se", "ldp-ucb", "ucb"}
OTHERS |= {"local-reward-lin-ucb", "local-reward-lin-ts", "dqn", "ppo", "sac"}
BUILT_IN = sorted(n for n, s in agent_specs().items() if s.entry_point.startswith("dpb_agents."))
WARM = [n for n in BUILT_IN if n not in OTHERS]
# They start with random or exploring rounds, independently of the prior.
EXPLORING = {"coreset-elimination", "mle-cycle-pricing", "explore-commit-pricing"}
KNOWN = np.array([0.5, -0.4, 0.3, 0.6])
SEEDS = [1_004_000, 1_004_001]


def begin(name, prior_mean=KNOWN, budget=None, horizon=60, **params):
    env_id, kwargs = PROBLEMS[agent_spec(name).supports[0]]
    problem = dpb_gym.make_problem(env_id, horizon=horizon, dim=4, **kwargs)
    # greedy from the first round on, without the class's exploration
    greedy = {"alpha": 0.0, "v": 0.0, "scale": 1e-9, "width": 0.0, "disperse": 0.0}
    greedy |= {"size": 1e-9, "shock": 0.0}
    greedy |= {"explore": 0, "ridge": 1e12, "gamma": 0.0 if "pricing" in name else None}
    parameters = inspect.signature(agent_spec(name).maker).parameters
    params = {k: v for k, v in greedy.items() if k in parameters} | params
    agent = make_agent(name, prior_mean=prior_mean, **params)
    if agent_spec(name).budget == "required":
        budget = Budget.parse("eps=1,delta=1e-5")
    agent.set_up(problem.info, AgentStreams(SEEDS), budget)
    return agent, problem


def value(problem, context, action, b):
    """Return the expected reward of an action if KNOWN is theta."""
    x = context.features[b].astype(float)
    if problem.info.kind == "recommendation":
        x = x / np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]
        return x[action] @ KNOWN
    if problem.info.kind == "pricing":
        score = problem.info.zeta * (x @ KNOWN[:-1] - action * KNOWN[-1]) / 2.0
        return action / (1.0 + np.exp(-score))
    if problem.info.kind == "assortment-pricing":
        odds = np.where(action >= 0, np.exp(x @ KNOWN[:2] - action * (x @ KNOWN[2:])), 0.0)
        return action @ odds / (1.0 + odds.sum())
    items = [i for i in action if i >= 0]
    odds = np.exp(x[items] @ KNOWN)
    return odds @ context.revenues[b][items] / (1.0 + odds.sum())


def best(problem, context, b):
    if problem.info.kind == "recommendation":
        actions = range(8)
    elif problem.info.kind == "pricing":
        return value(problem, context, np.linspace(0.0, 1.0, 20_001), b).max()
    elif problem.info.kind == "assortment-pricing":
        actions = problem.best_action(
            {"theta": np.tile(KNOWN, (len(SEEDS), 1))}, Round(context, np.zeros(len(SEEDS)), {})
        )[0]
    else:
        actions = [s for k in (1, 2, 3) for s in combinations(range(9), k)]
    return max(value(problem, context, action, b) for action in actions)


def test_agents_without_prior_mean_estimate_nothing():
    for name in BUILT_IN:
        known = inspect.signature(agent_spec(name).maker).parameters
        assert ("prior_mean" in known) == (name in WARM), name


@pytest.mark.parametrize("name", [n for n in WARM if n not in EXPLORING])
def test_a_strong_prior_is_what_is_played(name):
    """The prior determines the first rounds, and with a large ridge all rounds."""
    agent, problem = begin(name)
    instance = problem.instance(SEEDS)
    kept = "ridge" in inspect.signature(agent_spec(name).maker).parameters
    for _ in range(25 if kept else 2):
        context = locked(instance.context())
        action = agent.act(context)
        for b in range(len(SEEDS)):
            assert value(problem, context, action[b], b) >= best(problem, context, b) - 1e-5
        agent.observe(context, action, instance.respond(action).feedback)
        instance.advance()


@pytest.mark.parametrize("name", WARM)
def test_a_prior_mean_is_a_vector_of_the_length_of_theta(name):
    with pytest.raises(ParameterError, match="prior_mean must have shape"):
        begin(name, KNOWN[:3])
    with pytest.raises(ParameterError, match="prior_mean must have shape"):
        begin(name, [KNOWN])
    with pytest.raises(ParameterError, match="prior_mean must be finite"):
        begin(name, KNOWN * np.nan)


@pytest.mark.parametrize("name", ["coreset-elimination", "dgs-lin-ucb", "jdp-lin-ucb"])
def test_linear_rivals_start_at_the_prior(name):
    agent, _ = begin(name, ridge=1.0)
    np.testing.assert_allclose(estimates(agent), [KNOWN, KNOWN])


def estimates(agent):
    """The estimates of a linear rival, with the pull of the prior mean."""
    s, c = agent.state, agent.known
    metric = s.A if name_of(agent) == "DynamicSensitivity" else s.V
    pull = s.pull[:, 0] if hasattr(s, "pull") else np.full(len(s.theta), c.ridge)
    return np.array([shrunk(*lane, c.mean) for lane in zip(s.theta, metric, pull)])


def name_of(agent):
    return type(agent.algorithm).__name__


@pytest.mark.parametrize("name", ["jdp-lin-ucb", "noisy-gram-ucb"])
def test_the_shift_of_v_pulls_to_the_prior(name):
    """The ridge alone is a hundredth of the shift."""
    agent, problem = begin(name, 1e6 * KNOWN, ridge=1.0, every=20)
    instance = problem.instance(SEEDS)
    for _ in range(40):
        context = locked(instance.context())
        action = agent.act(context)
        agent.observe(context, action, instance.respond(action).feedback)
        instance.advance()
    assert (np.linalg.norm(estimates(agent), axis=1) > 4e5 * np.linalg.norm(KNOWN)).all()


@pytest.mark.parametrize("intercept", [0.0, 0.5])
def test_ridge_regression_starts_at_the_prior(intercept):
    """theta minimises the squared errors plus the ridge times its distance from the prior mean."""
    agent, problem = begin("lin-greedy", ridge=3.0, intercept=intercept)
    instance, records = problem.instance(SEEDS), []
    for _ in range(50):
        context = locked(instance.context())
        action = agent.act(context)
        feedback = instance.respond(action).feedback
        records.append((context.features[0, action[0]].astype(float), feedback.reward[0] - 0.5))
        agent.observe(context, action, feedback)
        instance.advance()
    x, r = np.array([x for x, _ in records]), np.array([r for _, r in records])
    x /= np.maximum(1.0, np.linalg.norm(x, axis=1))[:, None]
    scale = np.sqrt(1.0 + intercept**2)
    x = np.column_stack([x, np.full(len(x), intercept)])[:, : 4 + (intercept > 0.0)]
    known = np.append(KNOWN, 0.0)[: x.shape[1]]
    gram = x.T @ x + 3.0 * np.eye(x.shape[1])
    theta = np.linalg.solve(gram, x.T @ r + 3.0 * known)
    estimate = agent.state.A[0] @ agent.state.b[0] / scale
    np.testing.assert_allclose(estimate, theta, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["greedy-pricing", "greedy-mnl"])
def test_maximum_likelihood_starts_at_the_prior(name):
    agent, problem = begin(name, ridge=2.0, growth=1.0001, horizon=120)
    instance, records = problem.instance(SEEDS), []
    for _ in range(100):
        context = locked(instance.context())
        action = agent.act(context)
        feedback = instance.respond(action).feedback
        records.append((context.features[0].astype(float), action[0], feedback))
        agent.observe(context, action, feedback)
        instance.advance()

    def loss(theta):
        total = (theta - KNOWN) @ (theta - KNOWN)
        for x, action, feedback in records:
            if name == "greedy-mnl":
                scores = np.append(x[action[action >= 0]] @ theta, 0.0)
                total += np.log(np.exp(scores).sum()) - scores[feedback.choice[0]]
            else:
                z = problem.info.zeta * np.append(x, -action) @ theta / 2.0
                total += np.log1p(np.exp(z)) - feedback.demand[0] * z
        return total

    fit = agent._estimator if name == "greedy-mnl" else agent.plan.sums.estimator
    fit.release(np.ones(len(SEEDS), bool))
    np.testing.assert_allclose(fit._theta[0], minimize(loss, KNOWN).x, atol=2e-3)


@pytest.mark.parametrize("name", ["dpmnl", "private-pricing"])
def test_a_replicate_keeps_the_prior_until_its_own_first_update(name):
    """An update of another replicate must not change its estimate."""
    agent, problem = begin(name, budget="rho=20", growth=1.05, horizon=200)
    instance, untouched = problem.instance(SEEDS), 0
    for _ in range(200):
        context = locked(instance.context())
        action = agent.act(context)
        agent.observe(context, action, instance.respond(action).feedback)
        first = agent._updates == 0
        untouched += first.any() and not first.all()
        np.testing.assert_array_equal(agent._theta[first], np.tile(KNOWN, (first.sum(), 1)))
        if not first.any():
            break
        instance.advance()
    assert untouched


def test_private_minimisers_pull_to_their_centre():
    """With negligible noise: (a + ridge m) / (1 + ridge) for the loss |theta - a|^2 / 2."""
    target, centre = np.array([0.3, -0.2]), np.array([2.0, 1.0])
    for budget in (None, Budget.zcdp(1e9)):
        streams = AgentStreams(SEEDS)
        noise = NoiseSource(streams.noise)
        curator = Curator(budget, ("central", "reward"), noise=noise, replicates=2, horizon=1)

        def loss(theta, _):
            return 0.5 * ((theta - target) ** 2).sum(), theta - target, np.eye(2)

        made = curator.minimiser(2, loss=loss, gradient_bound=1.0, curvature=1.0)
        made.centre = centre
        curator.seal()
        made.centre[:] = 0.0  # a copy
        made.add(np.zeros(2))
        ridge = 1.0 if made.plan is None else made.plan.ridge
        wanted = (target + ridge * centre) / (1.0 + ridge)
        np.testing.assert_allclose(made.release(), [wanted, wanted], atol=1e-3)
        with pytest.raises(AttributeError, match="set in begin"):
            made.centre = centre
