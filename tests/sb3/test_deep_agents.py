"""`ppo`, `dqn` and `sac`, which train models of Stable-Baselines3 while they play."""

from __future__ import annotations

import contextlib
import sys
from itertools import permutations

import gymnasium
import numpy as np
import pytest
from scipy.stats import chisquare

import dpb_gym
from dpb_gym.agent import Agent
from dpb_gym.errors import AgentError, MissingExtraError, ParameterError, UnknownNameError
from dpb_gym.problems.base import Feedback
from dpb_gym.registry import agent_spec, check_supported, make_agent
from dpb_gym.streams import AgentStreams

pytestmark = pytest.mark.sb3
torch = pytest.importorskip("torch", reason="needs the [sb3] extra")
sb3 = pytest.importorskip("stable_baselines3", reason="needs the [sb3] extra")

from dpb_agents.common import deep_agents  # noqa: E402

NAMES = ["dqn", "ppo", "sac"]
SMALL = {"net_arch": (8,), "batch_size": 4, "learning_starts": 4, "train_freq": 3}
SMALL |= {"gradient_steps": 2}
PPO = {"net_arch": (8,), "n_steps": 8, "batch_size": 4, "n_epochs": 2}
EASY = {"dim": 2, "theta": [1.5, 2.0]}
CASES = [
    ("ppo", "DPB/Assortment-v0", {"n_items": 6, "capacity": 2, "dim": 2, "revenues": "random"}),
    ("ppo", "DPB/Pricing-v0", {}),
    ("ppo", "DPB/Recommendation-v0", {"dim": 3}),
    ("dqn", "DPB/Pricing-v0", {}),
    ("dqn", "DPB/Recommendation-v0", {"dim": 3}),
    ("sac", "DPB/Pricing-v0", {}),
]


def quick(name, **more):
    return make_agent(name, **({**PPO, **more} if name == "ppo" else {**SMALL, **more}))


def start(agent, env_id, rounds, seeds=(5,), **kwargs):
    problem = dpb_gym.make_problem(env_id, horizon=rounds, **kwargs)
    agent.set_up(problem.info, AgentStreams(seeds))
    return problem.instance(seeds)


def go_on(agent, instance, rounds, observed=None):
    """Play some rounds; returns contexts, actions and rewards."""
    seen = []
    for t in range(rounds):
        context = instance.context()
        action = agent.act(context)
        feedback = instance.respond(action).feedback
        if observed is not None:
            feedback = Feedback(np.full(len(action), float(t)), observed=observed[t])
        agent.observe(context, action, feedback)
        seen.append((context.features.copy(), np.array(action), feedback.reward.copy()))
        if instance.t[0] < instance.problem.horizon:
            instance.advance()
    return [np.array(part) for part in zip(*seen)]


def play(agent, env_id, rounds, seeds=(5,), observed=None, **kwargs):
    return go_on(agent, start(agent, env_id, rounds, seeds, **kwargs), rounds, observed)


def weights(agent, b=0):
    """Return all parameters of the model of a replicate."""
    return [p.detach().numpy().copy() for p in agent.copies[b]._model.policy.parameters()]


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
def test_unregistered_names_offer_the_registered_ones(name):
    with pytest.raises(UnknownNameError, match=rf"unknown agent 'sb3-{name}'; .*'{name}'"):
        make_agent(f"sb3-{name}")


def test_agents_without_assortments_raise_an_error():
    info = dpb_gym.make_problem("DPB/Assortment-v0").info
    for name in ("dqn", "sac"):
        with pytest.raises(AgentError, match="assortment"):
            check_supported(agent_spec(name), info, False)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_without_the_extra_a_run_fails_before_the_first_round(name, stored, monkeypatch, tmp_path):
    played = []

    class Watched(dpb_gym.SingleAgent):
        def act(self, context):
            played.append(context)
            return 0.5

    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    out = {"out": tmp_path / "result"} if stored else {}
    with pytest.raises(MissingExtraError, match=r"needs stable_baselines3.*dpb-gym\[sb3\]"):
        dpb_gym.evaluate("DPB/Pricing-v0", [Watched, name], 9, 1, workers=1, progress=False, **out)
    assert not played and not list(tmp_path.iterdir())
    assert name in [agent["name"] for agent in dpb_gym.list_agents()]


@pytest.mark.parametrize(
    ("name", "env_id", "kwargs"), CASES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_replicate_is_the_same_alone_and_in_a_batch(name, env_id, kwargs):
    seeds = (3, 8, 4)
    together = quick(name)
    actions = play(together, env_id, 40, seeds, **kwargs)[1]
    for b in (0, 2):
        alone = quick(name)
        single = play(alone, env_id, 40, seeds[b : b + 1], **kwargs)[1]
        np.testing.assert_array_equal(actions[:, b], single[:, 0])
        for ours, theirs in zip(weights(alone), weights(together, b)):
            np.testing.assert_array_equal(ours, theirs)
    assert (actions[:, 0] != actions[:, 2]).any()


@pytest.mark.parametrize("name", NAMES)
def test_the_generators_and_threads_of_the_program_stay_as_they_are(name):
    torch.manual_seed(3)
    np.random.seed(4)  # noqa: NPY002
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1]  # noqa: NPY002
    first = play(quick(name), "DPB/Pricing-v0", 20)[1]
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    assert torch.get_num_threads() == 2
    torch.set_num_threads(threads)
    torch.manual_seed(5)
    np.random.seed(6)  # noqa: NPY002
    np.testing.assert_array_equal(play(quick(name), "DPB/Pricing-v0", 20)[1], first)


@pytest.mark.parametrize(
    ("name", "env_id", "kwargs"), CASES, ids=lambda v: v if isinstance(v, str) else ""
)
def test_a_loaded_agent_continues(name, env_id, kwargs, tmp_path):
    """Round 21 of 40 is between two trainings, and the buffers of `dqn` and `sac` are full."""
    more = {} if name == "ppo" else {"buffer_size": 16}
    agent = quick(name, **more)
    instance = start(agent, env_id, 40, (3, 4), **kwargs)
    go_on(agent, instance, 21)
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent")
    whole = quick(name, **more)
    expected = play(whole, env_id, 40, (3, 4), **kwargs)[1][21:]
    again = go_on(loaded, instance, 19)[1]
    np.testing.assert_array_equal(again, expected)
    for ours, theirs in zip(weights(loaded, 1), weights(whole, 1)):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("change", "named"), [("shape", "observations"), ("dtype", "rewards"), ("name", "sample")]
)
def test_a_checkpoint_with_another_buffer_is_rejected(change, named):
    agent = quick("dqn")
    play(agent, "DPB/Pricing-v0", 20)
    copy = agent.copies[0]
    written = deep_agents._written(copy)
    buffer = written["_saved"]["buffer"]
    if change == "shape":
        buffer["observations"] = buffer["observations"][:-1]
    elif change == "dtype":
        buffer["rewards"] = buffer["rewards"].astype(complex)
    else:
        buffer["sample"] = 1
    with pytest.raises(dpb_gym.errors.StateError, match=named):
        deep_agents._read(object.__new__(deep_agents.DQN), written)


def test_online_training_equals_learn(monkeypatch):
    """The same draws give the model that Stable-Baselines3's own loop gives, to rounding."""
    monkeypatch.setattr(deep_agents, "seeded", lambda rng: contextlib.nullcontext())
    rounds, own = 48, {"n_steps": 16, "batch_size": 8, "n_epochs": 3}
    env = gymnasium.make("DPB/Pricing-v0", horizon=rounds + 1)
    env = gymnasium.wrappers.RescaleAction(env, np.float32(-1), np.float32(1))
    policy = {"net_arch": [8], "log_std_init": -0.5}
    model = sb3.PPO(
        "MlpPolicy", env, seed=7, gamma=0.0, learning_rate=3e-3, policy_kwargs=policy, **own
    )
    before = [p.detach().numpy().copy() for p in model.policy.parameters()]
    model.learn(rounds)
    agent = quick("ppo", **own)
    torch.manual_seed(7)
    np.random.seed(7)  # noqa: NPY002
    play(agent, "DPB/Pricing-v0", rounds + 1, (7,))
    theirs = [p.detach().numpy() for p in model.policy.parameters()]
    assert any(abs(a - b).max() > 1e-2 for a, b in zip(before, theirs))
    for a, b in zip(weights(agent), theirs):
        np.testing.assert_allclose(a, b, atol=2e-4)


def probability(scores, offered, slate):
    left, product = [j for j in range(len(scores)) if offered[j]], 1.0
    for item in slate:
        if item >= 0:
            product *= np.exp(scores[item]) / np.exp(scores[left]).sum()
            left.remove(item)
    return product


def item_policy(items, places, inputs=1):
    """A policy for slates whose scores are those of the only feature of each item."""
    policy = deep_agents.item_policy()(
        gymnasium.spaces.Box(-1, 1, (items * (inputs + 1),)),
        gymnasium.spaces.MultiDiscrete([items] * places),
        lambda _: 0.01,
        net_arch=[],
        use_sde=False,
    )
    with torch.no_grad():
        for network in (policy.actor, policy.critic):
            network[0].weight.fill_(1.0)
            network[0].bias.fill_(0.0)
    return policy


def observation(scores, offered, copies=1):
    rows = np.stack([scores, offered], axis=1).astype(np.float32)
    return torch.tensor(rows.reshape(1, -1)).repeat(copies, 1)


@pytest.mark.parametrize("offered", [[1, 1, 1, 1], [1, 0, 1, 1]])
def test_slates_follow_plackett_luce(offered):
    scores, offered = np.array([0.5, 2.0, -1.0, 0.0]), np.array(offered, bool)
    slates = [s for s in permutations(range(4), 2) if offered[list(s)].all()]
    wanted = np.array([probability(scores, offered, s) for s in slates])
    assert wanted.sum() == pytest.approx(1.0)
    policy, many = item_policy(4, 2), 20_000
    seen = observation(scores, offered, len(slates))
    values, logs, _ = policy.evaluate_actions(seen, torch.tensor(slates))
    np.testing.assert_allclose(logs.detach(), np.log(wanted), atol=1e-5)
    np.testing.assert_allclose(values.detach(), scores.mean(), atol=1e-6)
    torch.manual_seed(3)
    drawn, _, logs = policy(observation(scores, offered, many))
    counts = [(drawn.numpy() == s).all(axis=1).sum() for s in slates]
    assert sum(counts) == many and chisquare(counts, many * wanted).pvalue > 1e-3
    at = [slates.index(tuple(slate)) for slate in drawn[:50].tolist()]
    np.testing.assert_allclose(logs[:50].detach(), np.log(wanted)[at], atol=1e-5)


def test_extreme_scores_and_short_offers_stay_finite():
    policy = item_policy(3, 3)
    seen = observation(np.array([900.0, 0.0, -900.0]), np.ones(3))
    _, logs, _ = policy.evaluate_actions(seen, torch.tensor([[2, 0, 1]]))
    logs.sum().backward()
    assert torch.isfinite(logs).all()
    assert all(torch.isfinite(p.grad).all() for p in policy.actor.parameters())
    policy.zero_grad()
    slates, _, _ = policy(observation(np.array([0.3, 0.1, 0.2]), np.array([1, 0, 1]), 20))
    assert all(sorted(slate) == [-1, 0, 2] for slate in slates.tolist())
    seen = observation(np.array([0.3, 0.1, 0.2]), np.array([1, 0, 1]))
    _, logs, _ = policy.evaluate_actions(seen, torch.tensor([[0, 2, -1]]))
    wanted = probability(np.array([0.3, 0.1, 0.2]), [1, 0, 1], [0, 2, -1])
    assert logs.item() == pytest.approx(np.log(wanted), abs=1e-6)
    logs.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in policy.actor.parameters())


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_unavailable_candidates_are_never_chosen(name):
    agent = quick(name)
    instance = start(agent, "DPB/Recommendation-v0", 60, (1, 2), dim=3, available=0.3)
    for _ in range(59):
        context = instance.context()
        action = agent.act(context)
        assert context.available[np.arange(2), action].all()
        agent.observe(context, action, instance.respond(action).feedback)
        instance.advance()


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


def test_revenues_are_an_input_unless_they_are_equal():
    size = {"n_items": 3, "capacity": 2, "dim": 2}
    agent = quick("ppo")
    instance = start(agent, "DPB/Assortment-v0", 9, revenues=[3.0, 4.0, 1.0], **size)
    agent.act(instance.context())
    rows = agent.copies[0]._played[0].reshape(3, 4)
    np.testing.assert_allclose(rows[:, 2], [0.75, 1.0, 0.25])
    agent = quick("ppo")
    start(agent, "DPB/Assortment-v0", 9, revenues=[3.0, 3.0, 3.0], **size)
    assert agent.copies[0]._inputs == 2


def test_the_first_slates_are_almost_uniform():
    """Weights are orthonormal times sqrt(2); the last row has norm 0.01, that of values norm 1."""
    agent = make_agent("ppo", net_arch=(32,))
    start(agent, "DPB/Recommendation-v0", 9, dim=7)
    policy = agent.copies[0]._model.policy
    first = policy.actor[0].weight.detach().numpy()
    np.testing.assert_allclose(first.T @ first, 2.0 * np.eye(7), atol=1e-5)
    for network, norm in ((policy.actor, 0.01), (policy.critic, 1.0)):
        assert not network[0].bias.any() and not network[-1].bias.any()
        assert torch.linalg.norm(network[-1].weight).item() == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_buffers_have_the_latest_rounds(name):
    agent = quick(name, **({"n_steps": 20} if name == "ppo" else {"buffer_size": 10}))
    contexts, actions, rewards = play(agent, "DPB/Pricing-v0", 13)
    model = agent.copies[0]._model
    if name == "ppo":
        buffer = model.rollout_buffer
        np.testing.assert_array_equal(buffer.observations[:13, 0], contexts[:, 0])
        np.testing.assert_allclose(buffer.rewards[:13, 0], rewards[:, 0])
        prices = 0.5 * (np.clip(buffer.actions[:13, 0, 0], -1, 1).astype(float) + 1)
        np.testing.assert_array_equal(prices, actions[:, 0])
        return
    buffer, last = model.replay_buffer, [10, 11, 12, 3, 4, 5, 6, 7, 8, 9]
    np.testing.assert_array_equal(buffer.observations[:, 0], contexts[last, 0])
    np.testing.assert_allclose(buffer.rewards[:, 0], rewards[last, 0])
    assert buffer.dones.all()
    played = 20 * actions if name == "dqn" else 2 * actions - 1
    np.testing.assert_allclose(buffer.actions[:, 0, 0], played[last, 0], atol=1e-6)


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_rounds_without_feedback_are_left_out(name):
    observed = np.array([[True, t % 2 == 0] for t in range(6)])
    agent = quick(name)
    play(agent, "DPB/Recommendation-v0", 6, (1, 2), observed, dim=3)
    assert [copy._seen for copy in agent.copies] == [6, 3]
    buffer = deep_agents._buffer(agent.copies[1]._model)
    np.testing.assert_array_equal(buffer.rewards[:3, 0], [0.0, 2.0, 4.0])


def test_the_replay_buffer_stores_the_played_candidate():
    """Agents with a replay buffer allow delayed responses, with their context and action."""
    agent = quick("dqn")
    contexts, actions, _ = play(agent, "DPB/Recommendation-v0", 9, (1, 2), dim=3)
    for b in range(2):
        played = contexts[np.arange(9), b, actions[:, b]]
        buffer = agent.copies[b]._model.replay_buffer
        np.testing.assert_array_equal(buffer.observations[:9, 0], played)


def test_replicates_train_when_due():
    """Rounds 6, 9, ..., 30 with two steps each; after every 8 rounds, two passes of two."""
    for name, steps in (("dqn", 18), ("sac", 18), ("ppo", 4 * 2)):
        agent = quick(name)
        play(agent, "DPB/Pricing-v0", 32, (0, 1))
        assert [copy._model._n_updates for copy in agent.copies] == [steps, steps]
        assert all(np.isfinite(part).all() for part in weights(agent))


def test_prices_are_drawn_as_described():
    """Without hidden layers or training: clip((mean + std z + 1) / 2), means near 0."""
    problem, many = dpb_gym.make_problem("DPB/Pricing-v0", horizon=5), 400
    agent = make_agent("ppo", net_arch=(), log_std_init=-1.0)
    agent.set_up(problem.info, AgentStreams(range(many)))
    prices = agent.act(problem.instance(range(many)).context())
    assert abs(prices.mean() - 0.5) < 4 * 0.5 * np.exp(-1.0) / np.sqrt(many) + 0.01
    assert abs(prices.std() - 0.5 * np.exp(-1.0)) < 0.03
    prices = play(quick("dqn", n_prices=5, exploration=1.0), "DPB/Pricing-v0", 40)[1]
    assert {0.0, 1.0} < set(np.unique(prices)) <= {0.0, 0.25, 0.5, 0.75, 1.0}
    prices = play(quick("sac"), "DPB/Pricing-v0", 40, (0, 1))[1]
    assert ((prices >= 0.0) & (prices <= 1.0)).all() and len(np.unique(prices)) == 80


@pytest.mark.parametrize("name", ["ppo", "sac"])
def test_no_horizon_is_needed(name):
    agent = quick(name)
    actions = play(agent, "DPB/Pricing-v0", 20, unknown_horizon=True)[1]
    assert agent.copies[0]._model._n_updates > 0 and np.isfinite(actions).all()


def test_epsilon_falls_to_its_end():
    """A network that always prefers the last of two prices: the others are explored."""
    agent = make_agent("dqn", n_prices=2, exploration=0.5, final_epsilon=0.1, learning_starts=1)
    instance = start(agent, "DPB/Pricing-v0", 100)
    (copy,), context, many = agent.copies, instance.context(), 2000
    with torch.no_grad():
        for parameter in copy._model.q_net.parameters():
            parameter.zero_()
        parameter[-1] = 1.0
    for seen, epsilon in ((0, 1.0), (1, 0.982), (25, 0.55), (50, 0.1), (99, 0.1)):
        copy._seen = seen
        share = np.mean([agent.act(context)[0] == 0.0 for _ in range(many)])
        assert abs(share - epsilon / 2) < 4 * np.sqrt(0.25 / many)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_prices_become_better_than_random_ones(name):
    """Regret after 500 rounds is lower, paired over replicates, by four standard errors."""
    result = dpb_gym.evaluate(
        "DPB/Pricing-v0", [name, "random"], 500, 5, env_kwargs=EASY, workers=1, progress=False
    )
    gap = result.final_regret("random") - result.final_regret(name)
    assert gap.mean() > 4 * gap.std(ddof=1) / np.sqrt(len(gap)), gap
