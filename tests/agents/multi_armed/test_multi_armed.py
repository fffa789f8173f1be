"""Agents of the multi-armed bandit against their papers' loops in plain Python."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

import dpb_gym
from dpb_agents.multi_armed import dp_se
from dpb_agents.multi_armed.arms import ArmSums
from dpb_agents.multi_armed.ucb import BernoulliResponse
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import ActionError, AgentError, ParameterError
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.problems.base import Feedback
from dpb_gym.registry import agent_specs, make_agent
from dpb_gym.streams import AgentStreams

AGENTS = sorted(name for name, spec in agent_specs().items() if spec.fixed_arms)
MEANS = np.array([0.2, 0.75, 0.6, 0.1])


def problem(horizon=3000, means=MEANS, **kwargs):
    theta = 4.0 * (np.asarray(means) - 0.5)
    return dpb_gym.make_problem(
        "DPB/MultiArmed-v0", horizon=horizon, n_arms=len(theta), theta=theta, **kwargs
    )


def play(name, budget, made=None, **params):
    """Return arms, rewards and the releases of all episodes, for one replicate.

    Releases have the random numbers of the arms as their order, see `numbers`.
    """
    made = made or problem()
    agent, instance = make_agent(name, **params), made.instance([5])
    agent.set_up(made.info, AgentStreams([5]), budget and dpb_gym.Budget.parse(budget))
    arms, rewards, released = [], [], []
    sums = behind(agent.plan.sums) if name != "ldp-ucb" else None
    if isinstance(sums, ArmSums):
        release = sums.release
        sums.release = lambda due: released.append(release(due)) or released[-1]
    for t in range(made.horizon):
        context = locked(instance.context())
        action = agent.act(context)
        feedback = instance.respond(action).feedback
        arms.append(int(context.arms[0, action[0]]))
        rewards.append(float(feedback.reward[0]))
        agent.observe(context, action, feedback)
        if t < made.horizon - 1:
            instance.advance()
    return agent, arms, rewards, [r[0] for r in released]


def numbers(rounds):
    """Return the arms' random numbers and the uniforms for ties of a replicate of `play`."""
    streams = AgentStreams([5])
    labels = streams.agent[0].permutation(4)
    return labels, streams.uniforms(1).take(rounds).ravel()


# ------------------------------------------------------------------ the papers' loops


def successive_elimination(rewards, released, n, epsilon, scale, T):
    """Algorithm 2 of Sajed & Sheffet; means are those released, if any are given."""
    S, e, played, epochs = list(range(n)), 0, [], []
    while len(S) > 1:
        e += 1
        big, small = math.log(8 * len(S) * e**2 * T), math.log(4 * len(S) * e**2 * T)
        gap = 2.0**-e
        R = 1 + math.ceil(max(scale**2 * 32 * big / gap**2, scale * 8 * small / (epsilon * gap)))
        means, start = dict.fromkeys(S, 0.0), len(played)
        while len(played) < start + R * len(S):
            if len(played) == T:
                return played, epochs
            arm = S[(len(played) + 1) % len(S)]
            means[arm] += rewards[len(played)] / R
            played.append(arm)
        epochs.append((R, len(S)))
        if released:
            means = {arm: released[len(epochs) - 1][arm] / R for arm in S}
        slack = 2 * scale * (math.sqrt(big / (2 * R)) + small / (epsilon * R))
        S = [arm for arm in S if max(means.values()) - means[arm] <= slack]
    return played + S * (T - len(played)), epochs


@pytest.mark.parametrize(("budget", "epsilon"), [(None, math.inf), ("rho=0.5", 1.0)])
def test_dp_se_equals_the_loop_of_its_paper(budget, epsilon):
    agent, arms, rewards, released = play("dp-se", budget, scale=0.2)
    noisy = released if budget else []
    labels, _ = numbers(3000)
    played, epochs = successive_elimination(rewards, noisy, 4, epsilon, 0.2, 3000)
    assert played == labels[arms].tolist()
    assert len(epochs) == len(released) >= 2 and arms[-1] == 1
    for e in (1, 2, 5):
        state = dp_se.State(np.arange(4) < 3, np.zeros(4, int), np.array([e]), np.zeros(1, int))
        big, small = math.log(24 * e * e * 3000), math.log(12 * e * e * 3000)
        R = 1 + math.ceil(max(1.28 * big * 4**e, 1.6 * small * 2**e / epsilon))
        slack = 0.4 * math.sqrt(big / (2 * R)) + 0.4 * small / (epsilon * R)
        assert dp_se.epoch_plan(agent.known, state) == (R, pytest.approx(slack))
    if budget:
        assert agent.curator.guarantee.epsilon(0.0) == pytest.approx(1.0)


def episodes(rewards, released, uniforms, n, alpha, T, bonus):
    """AdaP-UCB and AdaC-UCB: the bonus is a function of log t^alpha and the episode's length.

    Of m equal indices number floor(u m) is taken, for the uniform u of the episode's first round.
    """
    N, index_parts, played, number = [0] * n, [(math.inf, 1)] * n, [], 0
    while len(played) < T:
        log = alpha * math.log(len(played) + 1)
        index = np.array([mean + bonus(log, size) for mean, size in index_parts])
        equal = np.flatnonzero(index == index.max())
        arm = equal[int(uniforms[len(played)] * len(equal))]
        size = max(1, N[arm])
        start, end = len(played), min(T, len(played) + size)
        played += [arm] * (end - start)
        N[arm] += end - start
        if end - start == size and (not released or number < len(released)):
            total = released[number][arm] if released else sum(rewards[start:end])
            index_parts[arm] = total / size, size
        number += 1
    return played


def gaussian(log, n):  # rho = 0.5
    return math.sqrt((1 / (2 * n) + 1 / (0.5 * n * n)) * log)


def laplace(log, n):  # epsilon = 1
    return math.sqrt(log / (2 * n)) + log / n


def exact(log, n):
    return math.sqrt(log / (2 * n))


@pytest.mark.parametrize(
    ("name", "budget", "bonus"),
    [
        ("adac-ucb", "rho=0.5", gaussian),
        ("adap-ucb", "rho=0.5", laplace),
        ("adac-ucb", None, exact),
        ("adap-ucb", None, exact),
    ],
)
def test_adaptive_episodes_equal_the_loops_of_their_papers(name, budget, bonus):
    _, arms, rewards, released = play(name, budget, alpha=1.0)
    labels, uniforms = numbers(3000)
    played = episodes(rewards, released if budget else [], uniforms, 4, 1.0, 3000, bonus)
    assert played == labels[arms].tolist() and len(released) > 10
    assert np.bincount(arms).argmax() == 1


@pytest.mark.parametrize("name", ["ucb", "ldp-ucb"])
def test_ucb_equals_its_loop_on_rewards_or_on_bits(name):
    budget = None if name == "ucb" else "rho=2"
    made = problem(1500)
    agent, arms, rewards, _ = play(name, budget, made, alpha=0.5)
    if name == "ldp-ucb":
        streams = AgentStreams([5])
        again = make_agent(name, alpha=0.5)
        again.set_up(made.info, streams, dpb_gym.Budget.parse(budget))
        chance = np.where(np.array(rewards) > 0, agent.mechanism.keep, agent.mechanism.other)
        uniforms = [again.responses.numbers.next()[0, 0] for _ in rewards]
        rewards = (np.array(uniforms) < chance).astype(float)
    sums, counts = [0.0] * 4, [0] * 4
    for t, (arm, reward) in enumerate(zip(arms, rewards), start=1):
        values = [
            sums[a] / counts[a] + math.sqrt(0.5 * math.log(t) / counts[a]) if counts[a] else 9.0
            for a in range(4)
        ]
        # estimates are the bits, scaled: sums differ in their last digits
        assert values[arm] >= max(values) - 1e-9
        sums[arm] += reward
        counts[arm] += 1
    assert min(counts) > 5 and np.argmax(counts) == 1


# ------------------------------------------------------------------ noise


def curator(budget, replicates, system=False):
    noise = dpb_gym.privacy.NoiseSource.from_seed(3, replicates)
    if system:
        pytest.importorskip("opendp")
        noise = dpb_gym.privacy.SystemNoise(replicates)
    return dpb_gym.privacy.Curator(budget, noise=noise, horizon=9)


@pytest.mark.parametrize("system", [False, True])
@pytest.mark.parametrize(
    ("law", "budget"),
    [("laplace", "rho=0.5"), ("laplace", "eps=2,delta=1e-6"), ("gaussian", "rho=0.5")],
)
def test_sums_have_the_noise_that_is_charged(law, budget, system):
    B = 4000
    made = curator(budget, B, system)
    sums = ArmSums(made, 2, reward=(0.0, 3.0), law=law, what="sums")
    seen = np.arange(B) % 2 == 0
    for arm in (0, 1, 1):
        sums.add(np.full(B, 9.0), np.where(seen[:, None], np.eye(2)[arm], 0.0))  # clipped to 3
    due = np.arange(B) < B - 10
    released = sums.release(due)
    assert (released[~due] == 0.0).all()
    exact = np.where(seen[:, None], [3.0, 6.0], 0.0)
    noise = (released - exact)[due]
    assert abs(np.corrcoef(noise.T)[0, 1]) < 0.06
    norm = stats.laplace(0.0, sums.scale) if law == "laplace" else stats.norm(0.0, sums.sigma)
    size = sums.scale if law == "laplace" else sums.sigma * math.sqrt(2.0 / math.pi)
    assert np.abs(noise).mean() == pytest.approx(size, rel=0.045)
    assert stats.kstest(noise.ravel(), norm.cdf).pvalue > 1e-3
    assert (sums.release(due)[due] != released[due]).all(), "every segment has noise of its own"
    if system:
        assert (released / sums.grid == np.round(released / sums.grid)).all()
    epsilon = made.guarantee.epsilon(0.0)
    if law == "laplace":
        wanted = {"rho=0.5": 1.0}.get(budget, 2.0)
        least = (3.0 + sums.grid) / sums.scale
        assert least * (1 - 1e-12) <= epsilon == pytest.approx(wanted, rel=1e-4)
        assert made.ledger.spent <= made.budget.limit
    else:
        assert sums.sigma == pytest.approx(3.0, rel=1e-5) and math.isinf(epsilon)


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_a_bit_is_private_and_an_unbiased_estimate(epsilon):
    bit = BernoulliResponse(epsilon, -1.0, 3.0)
    rewards = np.linspace(-2.0, 4.0, 13)  # clipped to the range
    grid = (np.arange(20_000) + 0.5) / 20_000
    chances = np.array([bit.privatise(np.full(20_000, r), grid[:, None]).mean() for r in rewards])
    e = math.exp(epsilon)
    r = (np.clip(rewards, -1.0, 3.0) + 1.0) / 4.0
    np.testing.assert_allclose(chances, (r * e + 1 - r) / (e + 1), atol=1e-4)
    for p in (chances, 1.0 - chances):
        assert p.max() <= math.exp(epsilon) * p.min() * 1.001
    low, high = bit.bounds
    np.testing.assert_allclose(
        low + (high - low) * chances, np.clip(rewards, -1.0, 3.0), atol=1e-3 / epsilon
    )


# ------------------------------------------------------------------ where they play


def test_arms_are_unit_vectors_in_the_same_order():
    instance = problem(5).instance([0, 1])
    for _ in range(4):
        context = locked(instance.context())
        np.testing.assert_array_equal(context.features, np.tile(np.eye(4, dtype="f4"), (2, 1, 1)))
        np.testing.assert_array_equal(context.arms, [[0, 1, 2, 3]] * 2)
        expected = [instance.respond(np.array([a, a])).expected[0] for a in range(4)]
        np.testing.assert_allclose(expected, MEANS, atol=1e-7)
        assert instance.best_action().tolist() == [1, 1]
        instance.advance()
    drawn = dpb_gym.make_problem("DPB/MultiArmed-v0", n_arms=3).instance([0, 1])
    assert not np.array_equal(*drawn.hidden["theta"])
    with pytest.raises(ParameterError, match="n_arms"):
        dpb_gym.make_problem("DPB/MultiArmed-v0", n_arms=0)


@pytest.mark.parametrize("name", AGENTS)
@pytest.mark.parametrize(
    "kwargs",
    [{}, {"n_candidates": 5, "fresh": True}, {"n_arms": 5, "available": 0.5}],
    ids=["5 of 100", "fresh", "masked"],
)
def test_arms_that_change_are_refused(name, kwargs):
    with pytest.raises(AgentError, match="needs the same arms in every round"):
        dpb_gym.evaluate(
            "DPB/Recommendation-v0",
            agents=[(name, None if name == "ucb" else "rho=1")],
            horizon=10,
            replicates=1,
            env_kwargs=kwargs,
        )
    made = dpb_gym.make_problem("DPB/Recommendation-v0", **kwargs).info
    with pytest.raises(AgentError, match="the same arms in every round"):
        budget = None if name == "ucb" else dpb_gym.Budget.zcdp(1.0)
        make_agent(name).set_up(made, AgentStreams([0]), budget)


@pytest.mark.parametrize("name", AGENTS)
def test_arms_are_identified_by_number_in_any_position(name):
    """Shuffled every round, the same arms are played as in a fixed order."""
    budget = None if name == "ucb" else "rho=50"
    _, arms, _, _ = play(name, budget, problem(400))
    made, rng = problem(400), np.random.default_rng(0)
    instance, agent = made.instance([5]), make_agent(name)
    agent.set_up(made.info, AgentStreams([5]), budget and dpb_gym.Budget.parse(budget))
    shuffled = []
    for t in range(400):
        context, order = instance.context(), rng.permutation(4)
        shown = context._replace(arms=context.arms[:, order], features=context.features[:, order])
        action = agent.act(shown)
        shuffled.append(int(order[action[0]]))
        agent.observe(shown, action, instance.respond(order[action]).feedback)
        if t < 399:
            instance.advance()
    assert shuffled == arms and len(set(arms)) == 4


def test_invalid_arguments_are_refused():
    agent, made = make_agent("ucb"), problem(5)
    agent.set_up(made.info, AgentStreams([0]), None)
    context = made.instance([0]).context()
    for wrong in (4, -1):
        message = rf"candidate {wrong} of replicate 0 is outside 0\.\.3"
        with pytest.raises(ActionError, match=message):
            agent.observe(context, np.array([wrong]), Feedback(np.zeros(1)))
    for name, parameter in (("dp-se", "scale"), ("adac-ucb", "alpha"), ("ldp-ucb", "alpha")):
        with pytest.raises(ParameterError, match=parameter):
            make_agent(name, **{parameter: -1.0})
    with pytest.raises(AgentError, match="needs a budget"):
        make_agent("ldp-ucb").set_up(made.info, AgentStreams([0]), None)
