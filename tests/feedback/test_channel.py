"""Messages in each kind of problem, the curator's sums, and the harness side."""

from __future__ import annotations

import itertools

import gymnasium as gym
import numpy as np
import pytest

import dpb_gym
from dpb_gym import Budget, feedback
from dpb_gym.agent import Agent
from dpb_gym.errors import AgentError, BudgetExceeded, ParameterError
from dpb_gym.feedback import RandomizedResponse, ResponseChannel, response_mechanism
from dpb_gym.local_privacy import LocalPrivacy
from dpb_gym.problems.base import Feedback
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams


def all_numbers(k, n=400):
    """Return a grid of pairs of uniforms on which probabilities are exact."""
    keep = (np.arange(n) + 0.5) / n
    other = (np.arange(k - 1) + 0.5) / (k - 1)
    return np.array(list(itertools.product(keep, other)))


def test_estimated_revenue_is_unbiased():
    """Average over all messages for every true choice, with empty and repeated slate places."""
    problem = dpb_gym.make_problem(
        "DPB/Assortment-v0", n_items=5, capacity=4, dim=2, revenues=[0.2, 0.5, 1.0, 3.0, 0.0]
    )
    mechanism = RandomizedResponse(1.3, 5)
    channel = ResponseChannel(mechanism, problem.info)
    numbers = all_numbers(5)
    n = len(numbers)
    revenues = np.tile(problem.revenues, (n, 1))
    for slate in ([3, 1, 0, 2], [3, -1, 3, 1], [-1, 2, -1, 4], [0, 0, 0, 0]):
        offered = [k for k in range(4) if slate[k] >= 0 and slate[k] not in slate[:k]]
        for choice in (-1, *offered):
            truth = problem.revenues[slate[choice]] if choice >= 0 else 0.0
            sent, estimate = channel.send(
                revenues,
                np.tile(slate, (n, 1)),
                Feedback(np.full(n, truth), choice=np.full(n, choice)),
                numbers,
            )
            assert estimate.mean() == pytest.approx(truth, abs=0.02)
            assert set(sent.choice.tolist()) == {-1, *offered}
            worth = [problem.revenues[slate[c]] if c >= 0 else 0.0 for c in sent.choice]
            assert np.array_equal(sent.reward, worth)
            share = (sent.choice == choice).mean()
            if len(offered) == 4:
                assert share == pytest.approx(mechanism.keep, abs=1 / 400)


@pytest.mark.parametrize("mechanism", ["randomized-response", "gaussian"])
@pytest.mark.parametrize("kind", ["Assortment", "Pricing", "Recommendation"])
def test_nothing_is_sent_where_nothing_was_observed(kind, mechanism):
    problem = dpb_gym.make_problem(f"DPB/{kind}-v0", horizon=20)
    made = response_mechanism(mechanism, Budget.zcdp(0.5), problem.info)
    instance, channel = problem.instance(range(40)), ResponseChannel(made, problem.info)
    numbers = np.random.default_rng(0).random((40, made.width))
    action = make_agent("random")
    action.set_up(problem.info, AgentStreams(range(40)))
    context = instance.context()
    chosen = action.act(context)
    seen = np.arange(40) % 2 == 0
    truth = instance.respond(chosen).feedback
    sent, estimate = channel.send(context.revenues, chosen, truth, numbers)
    half, part = channel.send(context.revenues, chosen, truth._replace(observed=seen), numbers)
    assert (half.observed == seen).all()
    silent = {"reward": 0.0, "demand": 0.0, "choice": -1}
    for key, nothing in silent.items():
        message = getattr(half, key)
        if message is not None:
            assert (message[seen] == getattr(sent, key)[seen]).all()
            assert (message[~seen] == nothing).all()
    assert (part[seen] == estimate[seen]).all() and not part[~seen].any()
    assert (sent.reward[~seen] != 0).any()


@pytest.mark.parametrize("mechanism", ["randomized-response", "gaussian", "laplace", "binary"])
@pytest.mark.parametrize("kind", ["Assortment", "Pricing", "Recommendation"])
def test_named_mechanisms_cost_the_budget(kind, mechanism):
    problem = dpb_gym.make_problem(f"DPB/{kind}-v0")
    made = response_mechanism(mechanism, Budget.zcdp(0.5), problem.info)
    assert made.guarantee.rho == pytest.approx(0.5, rel=1e-6)
    ResponseChannel(made, problem.info)


def test_unbounded_responses_have_no_named_mechanism():
    info = dpb_gym.make_problem("DPB/Pricing-v0", demand="gaussian").info
    with pytest.raises(ParameterError, match="explicit low and high"):
        response_mechanism("laplace", Budget.zcdp(1.0), info)
    with pytest.raises(ParameterError, match="must be one of"):
        response_mechanism("rr", Budget.zcdp(1.0), info)


# ------------------------------------------------------------------ the curator


@pytest.mark.slow
def test_the_curator_releases_noisy_batch_sums():
    batch, horizon = 25, 1000
    env = gym.make("DPB/Recommendation-v0", dim=3, n_arms=8, horizon=horizon)
    env = feedback.CentralCurator(env, Budget.zcdp(0.5), batch=batch)
    noise = []
    for episode in range(4):
        observation, _ = env.reset(seed=episode)
        exact = np.zeros(3)
        for t in range(1, horizon + 1):
            x = observation.reshape(-1, 3)[t % 5].astype(np.float64)
            observation, reward, _, _, info = env.step(t % 5)
            exact += env.truth["reward"] * x / max(1.0, np.linalg.norm(x))
            assert reward == 0.0 and info["released"] == (t % batch == 0)
            if info["released"]:
                noise.append(info["response"] - exact)
                exact = np.zeros(3)
            else:
                assert not info["response"].any()
    noise = np.array(noise)
    assert noise.std() == pytest.approx(1.0, rel=0.1)  # sensitivity 1 / sqrt(2 rho)
    assert abs(noise.mean()) < 0.15
    assert str(env.guarantee).startswith("central zCDP rho=0.5 per reward (replace-one)")
    assert env.ledgers[0].guarantee.rho == pytest.approx(0.5)


@pytest.mark.slow
def test_an_agent_that_uses_sums_learns_with_the_curator():
    """LinUCB that uses the wrapped environment alone learns."""
    horizon, d = 3000, 4
    env = gym.make("DPB/Recommendation-v0", dim=d, horizon=horizon)
    env = feedback.CentralCurator(env, Budget.zcdp(5.0), batch=100)
    observation, _ = env.reset(seed=1)
    gram, sums = np.eye(d), np.zeros(d)
    regret = []
    for _ in range(horizon):
        x = observation.reshape(-1, d).astype(np.float64)
        inverse = np.linalg.inv(gram)
        bonus = np.sqrt(np.einsum("ki,ij,kj->k", x, inverse, x))
        arm = int(np.argmax(x @ (inverse @ sums) + bonus))
        observation, _, _, _, info = env.step(arm)
        gram += np.outer(x[arm], x[arm])
        sums += info["response"]
        regret.append(env.truth["regret"])
    assert np.mean(regret[-1000:]) < 0.4 * np.mean(regret[:100])


# ------------------------------------------------------------------ the harness


class Recorder(Agent):
    """Play a fixed pattern and keeps what it is told."""

    def begin(self, problem, streams, curator):
        self.kind, self.told, self.problem = problem.kind, [], problem
        self.replicates = streams.replicates

    def act(self, context):
        if self.kind == "pricing":
            return np.full(self.replicates, np.float64(np.float32(0.1 + 0.05 * (context.t % 10))))
        if self.kind == "recommendation":
            return np.full(self.replicates, context.t % 3)
        return np.tile((np.arange(3) + context.t) % 6, (self.replicates, 1))

    def observe(self, context, action, feedback):
        self.told.append(feedback)


HARNESS = {
    "assortment": (
        "DPB/Assortment-v0",
        {"n_items": 6, "capacity": 3, "dim": 2},
        "randomized-response",
    ),
    "pricing": ("DPB/Pricing-v0", {}, "randomized-response"),
    "pricing-laplace": ("DPB/Pricing-v0", {}, "laplace"),
    "recommendation": ("DPB/Recommendation-v0", {"dim": 3}, "gaussian"),
    "replay": ("DPB/MovieLensReplay-v0", {"dim": 3, "protocol": "replay"}, "laplace"),
}


@pytest.mark.parametrize("case", HARNESS)
def test_harness_and_wrappers_send_the_same_messages(case):
    """Messages equal those of a wrapped environment for the same actions, bit for bit."""
    env_id, kwargs, mechanism = HARNESS[case]
    budget, seeds, horizon = Budget.zcdp(0.7), [3, 8], 20
    problem = dpb_gym.make_problem(env_id, horizon=horizon, **kwargs)
    agent = LocalPrivacy(Recorder, mechanism, debias=False)
    instance = problem.instance(seeds)
    agent.set_up(problem.info, AgentStreams(seeds), budget)
    for t in range(horizon):
        context = instance.context()
        action = agent.act(context)
        agent.observe(context, action, instance.respond(action).feedback)
        if t < horizon - 1:
            instance.advance()
    for i, seed in enumerate(seeds):
        env = gym.make(env_id, horizon=horizon, **kwargs)
        env = feedback.PrivateResponse(env, response_mechanism(mechanism, budget, problem.info))
        env.reset(seed=seed)
        for t in range(horizon):
            action = np.asarray(agent.inner.act(instance.context()._replace(t=t + 1))[i])
            given = np.float32(action)[None] if problem.info.kind == "pricing" else action
            _, reward, _, _, info = env.step(given)
            told = agent.inner.told[t]
            assert reward == told.reward[i]
            for key in ("choice", "demand", "observed"):
                value = getattr(told, key)
                assert (value is None and key not in info) or info[key] == value[i]


def test_local_privacy_has_the_mechanisms_guarantee():
    result = dpb_gym.evaluate(
        "DPB/Recommendation-v0",
        {"plain": "lin-ucb", "local": ("local-reward-lin-ucb", Budget.zcdp(2.0))},
        horizon=300,
        replicates=2,
        env_kwargs={"dim": 3},
        progress=False,
    )
    rows = {row.agent: row for row in result.to_leaderboard().tasks[0].rows}
    assert rows["local"].notion == "local" and rows["local"].unit == "reward"
    assert rows["local"].guarantee.startswith("local zCDP rho=2 per reward")
    assert rows["plain"].notion is None


def test_numeric_responses_are_debiased():
    problem = dpb_gym.make_problem("DPB/Recommendation-v0", dim=3, horizon=400)
    agent = LocalPrivacy(Recorder, "randomized-response")
    instance, seeds = problem.instance(range(50)), range(50)
    agent.set_up(problem.info, AgentStreams(seeds), Budget.zcdp(0.5))
    low, high = agent.inner.problem.reward_range
    assert low < 0.0 < 1.0 < high
    true, seen = [], []
    for t in range(400):
        context = instance.context()
        action = agent.act(context)
        outcome = instance.respond(action)
        agent.observe(context, action, outcome.feedback)
        true.append(outcome.feedback.reward.mean())
        seen.append(agent.inner.told[-1].reward.mean())
        assert set(agent.inner.told[-1].reward.tolist()) <= {low, high}
        if t < 399:
            instance.advance()
    assert np.mean(seen) == pytest.approx(np.mean(true), abs=0.03)


def test_a_given_mechanism_is_charged():
    info = dpb_gym.make_problem("DPB/Recommendation-v0").info
    streams = AgentStreams([0])
    agent = LocalPrivacy("lin-ucb", RandomizedResponse(1.0))
    agent.set_up(info, streams, Budget.zcdp(0.6))
    guarantee = agent.curator.guarantee
    assert guarantee.epsilon(0.0) == 1.0 and guarantee.basis == "computed"
    assert agent.curator.ledger.spent == 0.5
    with pytest.raises(BudgetExceeded):
        agent.set_up(info, streams, Budget.zcdp(0.4))
    with pytest.raises(AgentError, match="needs a budget"):
        LocalPrivacy("lin-ucb", "gaussian").set_up(info, streams)


@pytest.mark.parametrize(
    ("agent", "problem", "message"),
    [
        ("adaprivate-ucb", "DPB/Recommendation-v0", "private itself"),
        ("oracle", "DPB/Recommendation-v0", "sees the truth"),
        ("ucb-mnl", "DPB/Recommendation-v0", "supports"),
    ],
)
def test_unsuitable_agents_are_rejected(agent, problem, message):
    info = dpb_gym.make_problem(problem).info
    with pytest.raises(AgentError, match=message):
        LocalPrivacy(agent, "gaussian").set_up(info, AgentStreams([0]), Budget.zcdp(1.0))


def test_bad_arguments_are_rejected():
    with pytest.raises(ParameterError):
        LocalPrivacy("lin-ucb", params={"alpha": -1.0})
    with pytest.raises(ParameterError):
        LocalPrivacy(3)
    with pytest.raises(ParameterError):
        LocalPrivacy(Recorder, params={"a": 1})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local-lin-ucb", "local-lin-greedy", "local-reward-lin-ts"])
def test_local_agents_learn_and_do_not_depend_on_the_batch(name):
    problem = dpb_gym.make_problem("DPB/Recommendation-v0", dim=3, horizon=1500)

    def run(seeds):
        agent, instance = make_agent(name), problem.instance(seeds)
        agent.set_up(problem.info, AgentStreams(seeds), Budget.zcdp(20.0))
        played, regret = [], []
        for t in range(problem.horizon):
            context = instance.context()
            played.append(agent.act(context).copy())
            outcome = instance.respond(played[-1])
            regret.append(outcome.regret)
            agent.observe(context, played[-1], outcome.feedback)
            if t < problem.horizon - 1:
                instance.advance()
        return np.array(played), np.array(regret)

    together, regret = run([0, 1, 2, 3])
    alone, _ = run([2])
    assert np.array_equal(together[:, 2], alone[:, 0])
    assert regret[-500:].mean() < 0.5 * regret[:50].mean()


@pytest.mark.parametrize("bad", [{"alpha": -1.0}, {"ridge": 0.0}, {"rule": "ts"}, {"refresh": 0}])
def test_bad_parameters_of_local_linear_agents(bad):
    with pytest.raises(ParameterError):
        make_agent("local-lin-ucb", **bad)


def test_local_linear_agents_need_a_budget():
    info = dpb_gym.make_problem("DPB/Recommendation-v0").info
    with pytest.raises(AgentError, match="budget"):
        make_agent("local-lin-ucb").set_up(info, AgentStreams([0]), None)


def test_local_statistics_of_a_replay_are_sent_in_every_round():
    """Zeros would reveal that the logged candidate differs from the recommended one."""
    problem = dpb_gym.make_problem("DPB/MovieLensReplay-v0", dim=3, protocol="replay", horizon=30)
    agent, seeds = make_agent("local-lin-ucb"), range(30)
    instance = problem.instance(seeds)
    agent.set_up(problem.info, AgentStreams(seeds), Budget.zcdp(1.0))
    context = instance.context()
    action = agent.act(context)
    feedback = instance.respond(action).feedback
    assert not feedback.observed.all()
    agent.observe(context, action, feedback)
    assert (agent.plan.sums.release()[:, :, :3] != 0).all()
