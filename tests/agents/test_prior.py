"""`ProblemInfo.prior`: mean and precision of theta, and its cost on ledgers."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import dpb_gym
from dpb_agents.kernels.curvature import informed
from dpb_agents.recommendation.one_pass_linear import set_prior
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import BudgetError, BudgetExceeded, ParameterError
from dpb_gym.offline import collect, release_prior
from dpb_gym.privacy import Budget, Composition, Curator, GaussianEvent, Guarantee, NoiseSource
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams

ENV = "DPB/Recommendation-v0"
SMALL = {"n_candidates": 5, "dim": 3}
SEEDS = [1_005_000, 1_005_001]
MEAN = np.array([0.3, -0.2, 0.1])
ROOT = np.array([[3.0, 0.0, 0.0], [1.0, 2.0, 0.0], [-0.5, 0.4, 1.0]])
PRECISION = ROOT @ ROOT.T


def cost(rho, protects=("central", "reward"), basis="computed"):
    event = GaussianEvent(1.0, (2 * rho) ** 0.5)
    return Guarantee(*protects, curve=Composition.of(event), basis=basis)


def info(prior=None, env=ENV, **kwargs):
    return dpb_gym.make_problem(env, horizon=300, prior=prior, **(kwargs or SMALL)).info


def begun(name, problem, budget=None, **params):
    agent = make_agent(name, **params)
    agent.set_up(problem, AgentStreams(SEEDS), Budget.parse(budget))
    return agent


def seeded(budget, unit="reward", seed=0):
    return Curator(budget, ("central", unit), noise=NoiseSource.from_seed(seed), horizon=1)


@pytest.mark.parametrize(
    ("value", "match"),
    [
        ({"mean": [1.0, np.nan, 0.0]}, "finite"),
        ({"mean": [1.0, 0.0, 0.0], "precision": np.eye(2)}, "shape"),
        ({"mean": [0.0] * 3, "precision": np.diag([1.0, 1.0, -1.0])}, "semidefinite"),
        ({"mean": [0.0] * 3, "precision": np.triu(np.ones((3, 3)))}, "symmetric"),
        ({"mean": [0.0] * 3, "scale": 1.0}, "prior takes mean"),
        ([0.0] * 3, "a mapping with mean"),
        ({"mean": [0.0] * 4}, "of 4 numbers, theta has 3"),
    ],
)
def test_invalid_priors_are_rejected(value, match):
    with pytest.raises(ParameterError, match=match):
        info(value)


def test_a_prior_round_trips_through_json():
    prior = dpb_gym.Prior(MEAN, PRECISION, cost(0.1))
    told = info(json.loads(json.dumps(prior.to_dict())))
    assert told.prior == prior
    assert json.loads(json.dumps(told.to_dict()))["prior"] == prior.to_dict()
    assert "prior" not in info().to_dict()


@pytest.mark.parametrize("intercept", [0.0, 0.5])
@pytest.mark.parametrize("name", ["lin-greedy", "adaprivate-ucb", "lin-ts"])
def test_ridge_regression_counts_a_prior_as_records(name, intercept):
    """A = ridge I + P / 4 in units of the features as they are, and A^-1 b = mean."""
    problem = info(dpb_gym.Prior(MEAN, PRECISION))
    budget = "rho=1" if name.startswith("ada") else None
    agent = begun(name, problem, budget, ridge=2.0, intercept=intercept)
    stretch = 1.0 + intercept**2
    gram = np.eye(3 + (intercept > 0.0)) * 2.0
    gram[:3, :3] += PRECISION / 4.0
    own = agent.state.A[0]
    own = own.T @ own if name == "lin-ts" else np.linalg.inv(own)
    np.testing.assert_allclose(own * stretch, gram, rtol=1e-9, atol=1e-12)
    theta = np.linalg.solve(own, agent.state.b[0]) / np.sqrt(stretch)
    np.testing.assert_allclose(theta[:3], MEAN, rtol=1e-9)


@pytest.mark.parametrize("name", ["one-pass-linear", "one-pass-linear-joint"])
def test_the_linear_filters_start_at_the_prior(name):
    agent = begun(name, info(dpb_gym.Prior(MEAN, PRECISION)), norm=1.2)
    wanted = np.linalg.inv(PRECISION + np.eye(3) / (0.6**2 / 3))
    if name == "one-pass-linear":
        state = type(agent.state)(*(part[0] for part in agent.state))
        # before the first round: features of length 1, independent candidates
        set_prior(agent.known, state)
        covariance = state.covariance
        assert not covariance[4:, 4:].any()
    else:
        known, mean = agent.known, 2.0 * agent.known.centre
        # lengths of candidates are uniform: their variance is 1/12
        covariance = known.prior - np.outer(mean, mean) / 12.0
        covariance /= np.outer(known.scale, known.scale)
    np.testing.assert_allclose(covariance[:3, :3], wanted, rtol=1e-9)
    assert covariance[3, 3] == pytest.approx(0.6**2 / 3)
    certain = begun(name, info(dpb_gym.Prior(MEAN, 1e12 * np.eye(3))), "rho=1")
    vague = begun(name, info(dpb_gym.Prior(MEAN, 0.0 * PRECISION)), "rho=1")
    plain = begun(name, info(dpb_gym.Prior(MEAN)), "rho=1")
    ends = [a.plan.sums.schedule.ends for a in (certain, vague, plain)]
    assert ends[0][0] > ends[1][0] and (ends[1] == ends[2]).all()


def test_posterior_with_a_prior_equals_that_of_a_normal_model():
    rng = np.random.default_rng(4)
    d, spread, noise = 4, 1.3, 0.7
    half = rng.normal(size=(2, d, d))
    H, u, m = half @ half.transpose(0, 2, 1), rng.normal(size=(2, d)), rng.normal(size=d)
    H[1] -= 0.5 * np.eye(d)  # negative directions count as none
    P = np.diag([1.0, 2.0, 0.1, 5.0]) + 0.05
    left = np.array([0.0, 0.2])
    for b in range(2):
        theta, covariance = informed(H[b], u[b], m, P, spread, noise, left[b])
        h, U = np.linalg.eigh(H[b])
        h = np.maximum(h, 0.0)
        extra = left[b] * (1 + 1 / d) / 2 * (d**2 / np.trace(P) + m @ m)
        F, E = U * h @ U.T, U * (spread * h + noise + extra) @ U.T
        V = np.linalg.inv(P)
        gain = V @ F @ np.linalg.inv(F @ V @ F + E)
        residual = U @ (U.T @ u[b] * (h > 0)) - F @ m
        np.testing.assert_allclose(theta, m + gain @ residual, rtol=1e-8)
        np.testing.assert_allclose(covariance, V - gain @ F @ V, rtol=1e-8)


@pytest.mark.parametrize(
    ("name", "env", "kwargs"),
    [
        ("one-pass-mnl", "DPB/Assortment-v0", {"n_items": 6, "capacity": 2, "dim": 3}),
        ("one-pass-pricing", "DPB/Pricing-v0", {"dim": 3}),
    ],
)
def test_a_precise_prior_dominates_and_a_vague_one_does_not(name, env, kwargs):
    moved = {}
    for weight in (1e9, 1e-9):
        problem = dpb_gym.make_problem(env, horizon=300, **kwargs)
        told = replace(problem.info, prior=dpb_gym.Prior(MEAN, weight * np.eye(3)))
        agent = begun(name, told)
        np.testing.assert_array_equal(agent.state.theta[0, -3:], MEAN)
        instance = problem.instance(SEEDS)
        for _ in range(200):
            context = locked(instance.context())
            action = agent.act(context)
            agent.observe(context, action, instance.respond(action).feedback)
            instance.advance()
        moved[weight] = np.abs(agent.state.theta[:, -3:] - MEAN).max()
    assert moved[1e9] < 1e-6 and moved[1e-9] > 0.05


@pytest.mark.parametrize("budget", ["rho=0.5", "eps=1,delta=1e-5"])
@pytest.mark.parametrize("name", ["one-pass-linear", "adaprivate-ts", "lin-ucb"])
def test_the_cost_of_a_prior_is_on_the_ledger(name, budget):
    earlier = cost(0.01)
    problem = info(dpb_gym.Prior(MEAN, PRECISION, earlier))
    if name == "lin-ucb":  # non-private
        assert begun(name, problem).curator.guarantee is None
        return
    agent, cold = begun(name, problem, budget), begun(name, info(), budget)
    ledger = agent.curator.ledger
    assert ledger.entries[0].what == "prior"
    assert ledger.inherited.events == earlier.curve.events
    assert ledger.spent == pytest.approx(ledger.budget.limit, rel=1e-6)
    assert ledger.spent <= ledger.budget.limit * (1 + 1e-9)
    assert agent.curator.ledger.entries[1].event.zcdp < cold.curator.ledger.entries[0].event.zcdp
    promised = agent.curator.guarantee
    assert str(promised).endswith("; rho=0.01 of it for the prior")
    assert Guarantee.from_dict(promised.to_dict()) == promised
    assert "prior" not in str(cold.curator.guarantee)
    # agents that ignore the prior are not charged for it
    own = begun(name, problem, budget, prior_mean=[0.0] * 3)
    assert own.curator.guarantee == cold.curator.guarantee


def test_single_agents_are_charged_for_the_prior():
    @dpb_gym.register_agent(
        "prior-reader", supports=["recommendation"], protects=("joint", "reward")
    )
    class Reader(dpb_gym.SingleAgent):
        def begin(self):
            self.sums = self.curator.running_sum(self.problem.dim, reward=(0.0, 1.0))

    agent = begun("prior-reader", info(dpb_gym.Prior(MEAN, None, cost(0.2))), "rho=0.5")
    assert agent.curator.guarantee.rho == pytest.approx(0.5)
    assert agent.curator.guarantee.inherited.zcdp == pytest.approx(0.2)
    with pytest.raises(BudgetError, match="never charged"):
        curator = seeded("rho=0.5")
        curator.inherit(cost(0.2), what="prior")
        _ = curator.guarantee


@pytest.mark.parametrize(
    ("prior", "budget", "error", "match"),
    [
        (cost(0.6), "rho=0.5", BudgetExceeded, "prior would bring the cost to 0.6"),
        (cost(0.6), "eps=1,delta=1e-5", BudgetExceeded, "prior would bring"),
        (cost(0.5), "rho=0.5", BudgetError, "takes the whole budget"),
        (cost(0.1, ("joint", "reward")), "rho=0.5", BudgetError, "does not protect the reward"),
        (Guarantee.none(), "rho=0.5", BudgetError, "non-private does not protect"),
    ],
)
def test_a_prior_beyond_the_budget_is_rejected(prior, budget, error, match):
    problem = info(dpb_gym.Prior(MEAN, None, prior))
    with pytest.raises(error, match=match):
        begun("one-pass-linear", problem, budget)


def test_stronger_guarantees_cover_weaker_ones():
    assert cost(1, ("local", "user")).covers("central", "reward", "replace-one")
    assert cost(1, ("central", "user-round")).covers("joint", "reward", "replace-one")
    assert not cost(1, ("central", "user-rewards")).covers("central", "user-round", "replace-one")
    assert cost(1, ("local", "reward")).covers("shuffle", "reward", "replace-one")
    for notion in ("local", "shuffle", "aggregate"):  # the target's own action has its context
        assert not cost(1, (notion, "user")).covers("central", "user-round", "replace-one")
        assert cost(1, (notion, "user")).covers("joint", "user-round", "replace-one")
    assert not cost(1, ("central", "reward")).covers("local", "reward", "replace-one")
    assert not cost(1).covers("central", "reward", "add-remove")


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["reward", "user-round"])
def test_a_released_prior_is_calibrated(unit):
    problem = dpb_gym.make_problem(ENV, horizon=3000, **SMALL)
    log = collect(problem, 3000, [1_005_002])[0]
    truth = problem.instance([1_005_002]).hidden["theta"][0]
    exact = release_prior(log, None, unit=unit)
    assert exact.guarantee is None
    assert np.corrcoef(exact.centre, truth)[0, 1] > 0.95
    for budget in ("rho=0.01", "rho=5"):
        off, noise, sure = [], [], np.linalg.inv(np.array(exact.precision))
        for seed in range(40):
            prior = release_prior(log, seeded(budget, unit, seed), unit=unit)
            assert prior.guarantee.rho == pytest.approx(Budget.parse(budget).rho)
            assert (prior.guarantee.notion, prior.guarantee.unit) == ("central", unit)
            noise.append(np.trace(np.linalg.inv(np.array(prior.precision)) - sure))
            off.append(prior.centre - exact.centre)
        # how far it is from the exact one is what its covariance has more
        assert 0.3 < np.square(off).sum(axis=1).mean() / np.mean(noise) < 1.5


@pytest.mark.slow
def test_a_released_prior_starts_an_agent_at_the_cost_of_both():
    log = collect(ENV, 3000, [1_005_003], **SMALL)[0]
    prior = release_prior(log, seeded("rho=0.1"))
    told = {**SMALL, "prior": prior.to_dict()}
    agents = {
        "warm": ("one-pass-linear", "rho=0.5"),
        "cold": ("one-pass-linear", "rho=0.5", {"prior_mean": [0.0] * 3}),
    }
    run = dpb_gym.evaluate(ENV, agents, 50, 1, seed=1_005_003, env_kwargs=told)
    assert (run.final_regret("warm") < run.final_regret("cold")).all()
    lines = {key.split(" ")[0]: line for key, line in run.guarantees().items()}
    assert "rho=0.1 of it for the prior" in lines["warm"] and "prior" not in lines["cold"], lines
