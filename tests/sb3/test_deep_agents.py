"""`ppo`, `dqn` and `sac`; `tests/sb3/test_oracle.py` compares them with Stable-Baselines3."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise, permutations
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

import dpb_gym
from dpb_agents import kernels as agent_kernels
from dpb_gym.errors import AgentError, ParameterError, UnknownNameError
from dpb_gym.problems.base import Feedback
from dpb_gym.registry import agent_spec, check_supported, make_agent
from dpb_gym.streams import AgentStreams, Stream, generator

NAMES = ["dqn", "ppo", "sac"]
SMALL = {"net_arch": (8,), "batch_size": 4, "learning_starts": 4, "train_freq": 3}
SMALL |= {"gradient_steps": 2}
PPO = {"net_arch": (8,), "n_steps": 8, "batch_size": 4, "n_epochs": 2}


def quick(name, **more):
    return make_agent(name, **({**PPO, **more} if name == "ppo" else {**SMALL, **more}))


def play(agent, env_id, rounds, seeds=(5,), observed=None, **kwargs):
    """Play some rounds; returns contexts, actions and rewards."""
    problem = dpb_gym.make_problem(env_id, horizon=rounds, **kwargs)
    instance = problem.instance(seeds)
    agent.set_up(problem.info, AgentStreams(seeds))
    seen = []
    for t in range(rounds):
        if t:
            instance.advance()
        context = instance.context()
        action = agent.act(context)
        feedback = instance.respond(action).feedback
        if observed is not None:
            feedback = Feedback(np.full(len(seeds), float(t)), observed=observed[t])
        agent.observe(context, action, feedback)
        seen.append((context.features.copy(), np.array(action), feedback.reward.copy()))
    return [np.array(part) for part in zip(*seen)]


@pytest.mark.parametrize(
    ("name", "params", "named"),
    [
        ("ppo", {"n_steps": 1}, "n_steps"),
        ("ppo", {"n_steps": 16, "batch_size": 17}, "batch_size"),
        ("ppo", {"n_epochs": 0}, "n_epochs"),
        ("ppo", {"log_std_init": float("inf")}, "log_std_init"),
        ("ppo", {"net_arch": (0,)}, "net_arch"),
        ("ppo", {"gamma": 0.9}, "unexpected keyword argument 'gamma'"),
        ("dqn", {"learning_rate": 0.0}, "learning_rate"),
        ("dqn", {"net_arch": "64"}, "net_arch"),
        ("dqn", {"net_arch": 64}, "net_arch"),
        ("dqn", {"buffer_size": 0}, "buffer_size"),
        ("dqn", {"learning_starts": 0}, "learning_starts"),
        ("dqn", {"train_freq": 0}, "train_freq"),
        ("dqn", {"gradient_steps": 0}, "gradient_steps"),
        ("dqn", {"exploration": 0.0}, "exploration"),
        ("dqn", {"final_epsilon": 1.1}, "final_epsilon"),
        ("dqn", {"n_prices": 1}, "n_prices"),
        ("sac", {"entropy": 0.0}, "entropy"),
        ("sac", {"target_entropy": float("nan")}, "target_entropy"),
    ],
)
def test_bad_parameters(name, params, named):
    with pytest.raises(ParameterError, match=named):
        make_agent(name, **params)


@pytest.mark.parametrize("name", NAMES)
def test_the_agents_of_stable_baselines_name_their_successors(name):
    with pytest.raises(UnknownNameError, match=rf"unknown agent 'sb3-{name}'; .*'{name}'"):
        make_agent(f"sb3-{name}")


def test_agents_without_assortments_raise_an_error():
    info = dpb_gym.make_problem("DPB/Assortment-v0").info
    for name in ("dqn", "sac"):
        with pytest.raises(AgentError, match="assortment"):
            check_supported(agent_spec(name), info, False)


def test_no_deep_learning_library_is_needed():
    code = (
        "import sys, dpb_gym; dpb_gym.evaluate('DPB/Pricing-v0', ['ppo'], horizon=70, replicates=1,"
        "progress=False); print([m for m in ('torch', 'stable_baselines3') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def outputs(weights, widths, x, relu):
    """A network by NumPy, in double precision."""
    at = 0
    for layer, (fan, out) in enumerate(pairwise(widths)):
        matrix = weights[at : at + fan * out].reshape(fan, out).astype(float)
        x = x @ matrix + weights[at + fan * out : at + (fan + 1) * out]
        at += (fan + 1) * out
        if layer < len(widths) - 2:
            x = np.maximum(x, 0.0) if relu else np.tanh(x)
    return x


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("widths", [(3, 1), (5, 33, 7, 2), (4, 40, 1)])
def test_networks_and_their_gradients(widths, relu):
    """Outputs by NumPy; slopes by differences of NumPy's outputs, in 5 to 19 columns."""
    rng = np.random.default_rng(1)
    count = sum((fan + 1) * out for fan, out in pairwise(widths))
    weights = rng.normal(size=(1, count)).astype(np.float32)
    for m in (5, 8, 19):
        x = rng.normal(size=(1, m, widths[0])).astype(np.float32)
        wide = np.array(widths)
        out = np.empty((1, m, widths[-1]), np.float32)
        agent_kernels.networks.run(weights, wide, relu, x, out)
        np.testing.assert_allclose(out[0], outputs(weights[0], widths, x[0], relu), atol=3e-5)
        tape, gradient = agent_kernels.networks.new_tape(wide, m), np.zeros(count, np.float32)
        packed = np.zeros((2, agent_kernels.networks.count(wide)[1]), np.float32)
        agent_kernels.networks.pack(weights[0], wide, packed[0], True)
        tape.reshape(len(tape), -1, 32)[0, :m, : widths[0]] = x[0]
        agent_kernels.networks.forward(packed[0], wide, relu, tape, m)
        slopes, pull = np.zeros_like(tape), rng.normal(size=(m, widths[-1]))
        blocks = slopes.reshape(len(tape), -1, 32)
        blocks[-1, :m, : widths[-1]] = pull
        agent_kernels.networks.backward(packed[0], wide, relu, tape, slopes, m, packed[1], True)
        agent_kernels.networks.unpack(packed[1], wide, gradient)
        direction, step = rng.normal(size=count), 1e-7
        ends = [outputs(weights[0] + s * step * direction, widths, x[0], relu) for s in (1, -1)]
        wanted = (pull * (ends[0] - ends[1])).sum() / (2 * step)
        assert gradient @ direction == pytest.approx(wanted, rel=1e-4, abs=1e-3)
        nudge = rng.normal(size=x[0].shape)
        ends = [outputs(weights[0], widths, x[0] + s * step * nudge, relu) for s in (1, -1)]
        wanted = (pull * (ends[0] - ends[1])).sum() / (2 * step)
        assert (blocks[0, :m, : widths[0]] * nudge).sum() == pytest.approx(
            wanted, rel=1e-4, abs=1e-3
        )


def probability(scores, offered, slate):
    left, product = [j for j in range(len(scores)) if offered[j]], 1.0
    for item in slate:
        if item >= 0:
            product *= np.exp(scores[item]) / np.exp(scores[left]).sum()
            left.remove(item)
    return product


@pytest.mark.parametrize("offered", [[1, 1, 1, 1], [1, 0, 1, 1]])
def test_slates_follow_plackett_luce(offered):
    scores, offered = np.array([0.5, 2.0, -1.0, 0.0]), np.array(offered, bool)
    slates = [s for s in permutations(range(4), 2) if offered[list(s)].all()]
    wanted = np.array([probability(scores, offered, s) for s in slates])
    assert wanted.sum() == pytest.approx(1.0)
    slopes = np.empty(4)
    for slate, chance in zip(slates, wanted):
        log = agent_kernels.ppo.slate_log_probability(scores, offered, np.array(slate), slopes)
        assert log == pytest.approx(np.log(chance), abs=1e-6)
        ends = [scores + s * 1e-6 * np.eye(4)[j] for j in range(4) for s in (1, -1)]
        logs = [np.log(probability(end, offered, slate)) for end in ends]
        np.testing.assert_allclose(slopes, np.diff(logs)[::2] / -2e-6, atol=1e-6)
    many = 20_000
    drawn = np.empty((many, 2), np.int64)
    uniforms = generator(3, Stream.AGENT).random((many, 4))
    agent_kernels.ppo.draw(np.tile(scores, (many, 1)), np.tile(offered, (many, 1)), uniforms, drawn)
    counts = [(drawn == s).all(axis=1).sum() for s in slates]
    assert sum(counts) == many and chisquare(counts, many * wanted).pvalue > 1e-3


def test_extreme_scores_and_short_offers_stay_finite():
    scores, slopes = np.array([900.0, 0.0, -900.0]), np.empty(3)
    log = agent_kernels.ppo.slate_log_probability(
        scores, np.ones(3, bool), np.array([2, 0]), slopes
    )
    assert np.isfinite(log) and np.isfinite(slopes).all()
    slates = np.empty((1, 3), np.int64)
    offered = np.array([[True, False, True]])
    agent_kernels.ppo.draw(scores[None], offered, np.zeros((1, 3)), slates)
    assert sorted(slates[0]) == [-1, 0, 2]


def test_revenues_count_relative_to_the_largest():
    """Twice the revenues (a power of two: exactly) are the same slates, and others are not."""
    base = np.array([1.0, 0.5, 0.25, 1.0, 0.75, 0.5])
    runs = []
    for revenues in (base, 1024.0 * base, base[::-1]):
        size = {"n_items": 6, "capacity": 2, "dim": 2, "revenues": list(revenues)}
        agent = quick("ppo", learning_rate=0.1)
        runs.append(play(agent, "DPB/Assortment-v0", 60, **size)[1])
    np.testing.assert_array_equal(runs[0], runs[1])
    assert (runs[0] != runs[2]).any()


@pytest.mark.parametrize("name", NAMES)
def test_the_replay_buffer_replaces_the_oldest_rounds(name):
    agent = quick(name, **({"n_steps": 20} if name == "ppo" else {"buffer_size": 10}))
    contexts, actions, rewards = play(agent, "DPB/Pricing-v0", 13)
    if name == "ppo":
        np.testing.assert_array_equal(agent._contexts[0, :13, 0], contexts[:, 0])
        np.testing.assert_array_equal(agent._rewards[0, :13], rewards[:, 0])
        prices = 0.5 * (np.clip(agent._bids[0, :13], -1, 1) + 1)
        np.testing.assert_array_equal(prices, actions[:, 0])
        return
    last = [10, 11, 12, 3, 4, 5, 6, 7, 8, 9]
    np.testing.assert_array_equal(agent._remembered[0], contexts[last, 0])
    np.testing.assert_array_equal(agent._rewards[0], rewards[last, 0])
    played = 20 * actions if name == "dqn" else 2 * actions - 1
    np.testing.assert_allclose(agent._played[0], played[last, 0], atol=1e-12)


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_rounds_without_feedback_are_left_out(name):
    observed = np.array([[True, t % 2 == 0] for t in range(6)])
    agent = quick(name)
    play(agent, "DPB/Recommendation-v0", 6, (1, 2), observed, dim=3)
    assert agent._seen.tolist() == [6, 3]
    np.testing.assert_array_equal(agent._rewards[1, :3], [0.0, 2.0, 4.0])


def test_the_replay_buffer_stores_the_played_candidate():
    """Agents with a replay buffer allow delayed responses, with their context and action."""
    agent = quick("dqn")
    contexts, actions, _ = play(agent, "DPB/Recommendation-v0", 9, (1, 2), dim=3)
    for b in range(2):
        played = contexts[np.arange(9), b, actions[:, b]]
        np.testing.assert_array_equal(agent._remembered[b, :9], played)


def test_replicates_train_when_due():
    """Rounds 6, 9, ..., 30 with two steps each; after every 8 rounds, two passes of two."""
    for name, steps in (("dqn", 18), ("sac", 18), ("ppo", 16)):
        agent = quick(name)
        play(agent, "DPB/Pricing-v0", 32, (0, 1))
        assert agent._steps.tolist() == [steps, steps]
        assert np.isfinite(agent._weights).all()


def test_the_last_mini_batch_may_have_one_round():
    agent = quick("ppo", n_steps=5)
    play(agent, "DPB/Pricing-v0", 17)
    assert agent._steps.tolist() == [12] and np.isfinite(agent._weights).all()


def test_prices_are_drawn_as_described():
    """Without hidden layers or training: clip((mean + std z + 1) / 2), means near 0."""
    problem, many = dpb_gym.make_problem("DPB/Pricing-v0", horizon=5), 400
    agent = make_agent("ppo", net_arch=(), log_std_init=-1.0)
    agent.set_up(problem.info, AgentStreams(range(many)))
    prices = agent.act(problem.instance(range(many)).context())
    assert abs(prices.mean() - 0.5) < 4 * 0.5 * np.exp(-1.0) / np.sqrt(many) + 0.01
    assert abs(prices.std() - 0.5 * np.exp(-1.0)) < 0.03
    prices = play(quick("dqn", n_prices=5), "DPB/Pricing-v0", 40)[1]
    assert {0.0, 1.0} < set(np.unique(prices)) <= {0.0, 0.25, 0.5, 0.75, 1.0}
    prices = play(quick("sac"), "DPB/Pricing-v0", 40, (0, 1))[1]
    assert ((prices >= 0.0) & (prices <= 1.0)).all() and len(np.unique(prices)) == 80


def test_epsilon_falls_to_its_end():
    """Zero on a network that always prefers the last price: the others are explored."""
    agent = make_agent("dqn", n_prices=2, exploration=0.5, final_epsilon=0.1, learning_starts=1)
    problem, many = dpb_gym.make_problem("DPB/Pricing-v0", horizon=100), 4000
    agent.set_up(problem.info, AgentStreams(range(many)))
    agent._weights[:] = 0.0
    agent._weights[:, -1] = 1.0
    context = problem.instance(range(many)).context()
    for seen, epsilon in ((1, 0.982), (25, 0.55), (50, 0.1), (99, 0.1)):
        agent._seen[:] = seen
        share = (agent.act(context) == 0.0).mean()
        assert abs(share - epsilon / 2) < 4 * np.sqrt(0.25 / many)
    agent._seen[:] = 0
    assert 0.46 < (agent.act(context) == 0.0).mean() < 0.54


def test_initial_weights_are_those_of_the_libraries():
    """Weights are orthonormal times sqrt(2), the last small; or uniform on +-1 / sqrt(inputs)."""
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=9, dim=7)
    agent = make_agent("ppo", net_arch=(32,))
    agent.set_up(problem.info, AgentStreams([1]))
    matrix = agent._weights[0, : 6 * 32].reshape(6, 32)
    np.testing.assert_allclose(matrix @ matrix.T, 2.0 * np.eye(6), atol=1e-5)
    assert not agent._weights[0, 192:224].any()
    assert np.linalg.norm(agent._weights[0, 224:256]) == pytest.approx(0.01, rel=1e-5)
    assert np.linalg.norm(agent._weights[0, 481:513]) == pytest.approx(1.0, rel=1e-5)
    agent = make_agent("sac", net_arch=(32,))
    agent.set_up(problem.info, AgentStreams(range(50)))
    first, last = agent._weights[:, :224], agent._weights[:, 224 : 224 + 66]
    for part, bound in ((first, 1 / np.sqrt(6)), (last, 1 / np.sqrt(32))):
        assert 0.98 * bound < abs(part).max() <= bound
        assert part.std() == pytest.approx(bound / np.sqrt(3), rel=0.03)


def test_compiled_training_equals_python():
    """Bits of short runs without a compiler."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import test_deep as t;"
        "agents = [t.quick(name) for name in t.NAMES];"
        "[t.play(a, 'DPB/Pricing-v0', 9, (3, 4)) for a in agents];"
        "print([a._weights.tobytes().hex() for a in agents])"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    runs = [
        subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "NUMBA_DISABLE_JIT": flag},
        ).stdout
        for flag in ("0", "1")
    ]
    assert runs[0] == runs[1] and len(runs[0]) > 2000
