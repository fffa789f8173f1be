"""Equality of training steps with Stable-Baselines3, from equal weights and rounds."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest

from dpb_agents import kernels as agent_kernels

pytestmark = pytest.mark.sb3
torch = pytest.importorskip("torch", reason="needs the [sb3] extra")
pytest.importorskip("stable_baselines3", reason="needs the [sb3] extra")

ROUNDS, BATCH, HIDDEN, DIM = 24, 10, (8, 6), 3
RNG = np.random.default_rng(3)


def setup(model: Any, actions: gymnasium.Space[Any], width: int = DIM) -> Any:
    """A model of Stable-Baselines3 without an environment."""
    from stable_baselines3.common.logger import Logger

    model.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (width,), np.float32)
    model.action_space, model.n_envs = actions, 1
    model.set_logger(Logger(folder=None, output_formats=[]))
    torch.manual_seed(5)
    model._setup_model()
    for parameter in model.policy.parameters():  # away from the small last layers
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def flat(*modules: Any) -> np.ndarray:
    """Return weights of linear layers in our layout: ``(inputs, outputs)``, then the bias."""
    parts = []
    for module in (m for part in modules for m in part.modules()):
        if isinstance(module, torch.nn.Linear):
            parts += [module.weight.detach().numpy().T.ravel(), module.bias.detach().numpy()]
    return np.concatenate(parts).astype(np.float32)


def state(weights: np.ndarray) -> tuple[np.ndarray, ...]:
    moments = np.zeros((1, 2, len(weights)), np.float32)
    return weights[None].copy(), moments, np.zeros(1, np.int64)


def shared(**more: Any) -> dict[str, Any]:
    policy = {"net_arch": list(HIDDEN), **more}
    return {"policy_kwargs": policy, "device": "cpu", "gamma": 0.0, "_init_setup_model": False}


class Slates:
    """An actor-critic policy of slates for PPO: torch's autograd of Plackett-Luce."""

    def __init__(self, actor: Any, critic: Any, items: int, rate: float) -> None:
        self.actor, self.critic, self.items = actor, critic, items
        self.optimizer = torch.optim.Adam(self.parameters(), lr=rate, eps=1e-5)

    def parameters(self) -> list[Any]:
        return [*self.actor.parameters(), *self.critic.parameters()]

    def set_training_mode(self, mode: bool) -> None:
        pass

    def evaluate_actions(self, observations: Any, slates: Any) -> tuple[Any, Any, None]:
        rows, slates = observations.reshape(len(observations), self.items, -1), slates.long()
        scores = self.actor(rows).squeeze(-1)
        taken = torch.nn.functional.one_hot(slates, self.items)
        gone = (taken.cumsum(1) - taken).bool()
        left = scores.unsqueeze(1).masked_fill(gone, -torch.inf)
        logs = scores.gather(1, slates) - left.logsumexp(-1)
        return self.critic(rows.mean(1)), logs.sum(1), None


def layers(width: int, outputs: int) -> Any:
    stack = torch.nn.Sequential()
    for fan, out in zip((width, *HIDDEN), HIDDEN):
        stack.extend((torch.nn.Linear(fan, out), torch.nn.Tanh()))
    stack.append(torch.nn.Linear(HIDDEN[-1], outputs))
    for parameter in stack.parameters():
        parameter.data = 0.5 * torch.randn_like(parameter)
    return stack


@pytest.mark.parametrize("epochs", [1, 4])
@pytest.mark.parametrize(("items", "places"), [(1, 0), (5, 1), (6, 3)])
def test_ppo(items: int, places: int, epochs: int) -> None:
    """Mini-batches of 10, 10 and 4 rounds, some of whose ratios are clipped."""
    from stable_baselines3 import PPO

    rate = 0.03
    model = PPO(
        "MlpPolicy",
        None,  # type: ignore[arg-type, unused-ignore]
        learning_rate=rate,
        n_steps=ROUNDS,
        batch_size=BATCH,
        n_epochs=epochs,
        **shared(),
    )
    space = gymnasium.spaces.MultiDiscrete([items] * places)
    setup(model, space if places else gymnasium.spaces.Box(-1, 1, (1,)), items * DIM)
    contexts = RNG.normal(size=(ROUNDS, items, DIM)).astype(np.float32)
    slates = np.array([RNG.permutation(items)[:places] for _ in range(ROUNDS)])
    bids, rewards = RNG.normal(size=ROUNDS), RNG.random(ROUNDS)
    if places:
        model.policy: Any = Slates(layers(DIM, 1), layers(DIM, 1), items, rate)
        own = [flat(model.policy.actor), flat(model.policy.critic), np.zeros(1)]
    else:
        policy = model.policy
        extract = policy.mlp_extractor
        parts = (extract.policy_net, policy.action_net), (extract.value_net, policy.value_net)
        own = [*(flat(*part) for part in parts), policy.log_std.detach().numpy().copy()]
    weights, moments, steps = state(np.concatenate(own).astype(np.float32))
    played = slates if places else bids[:, None]
    for x, action, reward in zip(contexts, played, rewards):
        observation = torch.tensor(x.reshape(1, -1))
        action = torch.tensor(action[None].astype(np.float32))
        with torch.no_grad():
            value, log, _ = model.policy.evaluate_actions(observation, action)
        one = np.zeros(1)
        model.rollout_buffer.add(observation.numpy(), action.numpy(), one + reward, one, value, log)
    model.rollout_buffer.compute_returns_and_advantage(value, np.zeros(1))
    np.random.seed(1)  # noqa: NPY002
    orders = [[np.random.permutation(ROUNDS) for _ in range(epochs)]]  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    model.train()
    rounds = contexts, np.ones((ROUNDS, items), bool), slates.reshape(ROUNDS, places), bids, rewards
    widths = np.array([DIM, *HIDDEN, 1])
    agent_kernels.ppo.train(
        weights,
        moments,
        steps,
        widths,
        tuple(part[None] for part in rounds),
        np.ones(1, bool),
        np.array(orders),
        BATCH,
        rate,
    )
    if places:
        theirs = [flat(model.policy.actor), flat(model.policy.critic), np.zeros(1)]
    else:
        theirs = [*(flat(*part) for part in parts), policy.log_std.detach().numpy()]
    assert steps[0] == 3 * epochs
    wanted = np.concatenate(theirs)
    if places:  # results do not depend on a constant added to all scores; its gradient is rounding
        wanted[len(own[0]) - 1] = weights[0, len(own[0]) - 1]
    np.testing.assert_allclose(weights[0], wanted, atol=1e-5 * epochs)


def remember(model: Any, contexts: np.ndarray, actions: np.ndarray, rewards: np.ndarray) -> Any:
    """Fill the replay buffer; its sample is then what is returned, picked beforehand."""
    buffer, picks = model.replay_buffer, RNG.integers(ROUNDS, size=(2, BATCH))
    for x, action, reward in zip(contexts, actions, rewards):
        buffer.add(x[None], x[None], action, np.array([reward]), np.zeros(1), [{}])
    left = list(picks)
    buffer.sample = lambda *_, **__: buffer._get_samples(left.pop(0))
    return picks[None]


def test_dqn() -> None:
    """One network with a value for each action; rewards so large that Huber's loss bends."""
    from stable_baselines3 import DQN

    rate = 0.02
    model = DQN("MlpPolicy", None, learning_rate=rate, buffer_size=50, **shared())  # type: ignore[arg-type, unused-ignore]
    setup(model, gymnasium.spaces.Discrete(4))
    contexts = RNG.normal(size=(ROUNDS, DIM)).astype(np.float32)
    played, rewards = RNG.integers(4, size=ROUNDS), 40.0 * RNG.normal(size=ROUNDS)
    picks = remember(model, contexts, played[:, None], rewards)
    weights, moments, steps = state(flat(model.q_net))
    model.train(2, BATCH)
    rounds = contexts[None], played[None].astype(float), rewards[None]
    widths, due = np.array([DIM, *HIDDEN, 4]), np.ones(1, bool)
    agent_kernels.off_policy.train_values(weights, moments, steps, widths, rounds, due, picks, rate)
    np.testing.assert_allclose(weights[0], flat(model.q_net), atol=1e-5)


def test_sac() -> None:
    """Actor, both critics and entropy coefficient after one step and after two."""
    from stable_baselines3 import SAC

    rate, target = 0.02, -2.0
    model = SAC(
        "MlpPolicy",
        None,  # type: ignore[arg-type, unused-ignore]
        learning_rate=rate,
        buffer_size=50,
        ent_coef="auto_0.1",
        target_entropy=target,
        **shared(),
    )
    setup(model, gymnasium.spaces.Box(-1, 1, (1,)))
    contexts = RNG.normal(size=(ROUNDS, DIM)).astype(np.float32)
    actions, rewards = RNG.uniform(-1, 1, ROUNDS), RNG.random(ROUNDS)
    picks = remember(model, contexts, actions[:, None], rewards)

    def theirs() -> np.ndarray:
        actor, entropy = model.actor, model.log_ent_coef.detach().numpy()
        body, heads = flat(actor.latent_pi), (actor.mu, actor.log_std)
        last = np.concatenate([h.weight.detach().numpy() for h in heads]).T.ravel()
        bias = np.concatenate([h.bias.detach().numpy() for h in heads])
        return np.concatenate([body, last, bias, flat(*model.critic.q_networks), entropy])

    weights, moments, steps = state(theirs())
    torch.manual_seed(9)
    normals = np.empty((1, 2, BATCH))
    for g in range(2):
        for k in range(2):  # the second is for the next round, whose value a discount of 0 drops
            drawn = torch.normal(torch.zeros(BATCH, 1), torch.ones(BATCH, 1)).numpy()[:, 0]
            if k == 0:
                normals[0, g] = drawn
    torch.manual_seed(9)
    widths, due = np.array([DIM, *HIDDEN, 2]), np.ones(1, bool)
    rounds = contexts[None], actions[None], rewards[None]
    for g in range(2):
        model.train(1, BATCH)
        one = picks[:, g : g + 1], normals[:, g : g + 1]
        agent_kernels.off_policy.train_actor(
            weights, moments, steps, widths, rounds, due, *one, target, rate
        )
        np.testing.assert_allclose(weights[0], theirs(), atol=1e-5)


def test_evaluate_plays_a_trained_model_as_its_environment_does() -> None:
    import gymnasium as gym
    from stable_baselines3 import PPO

    import dpb_gym

    env = gym.make("DPB/Pricing-v0", horizon=30)
    model = PPO("MlpPolicy", env, n_steps=32, batch_size=32, seed=1, device="cpu").learn(32)
    result = dpb_gym.evaluate("DPB/Pricing-v0", {"ppo": model}, 30, 2, progress=False)
    expected = []
    for seed in range(2):
        observation, _ = env.reset(seed=seed)
        total = 0.0
        for _ in range(30):
            action, _ = model.predict(observation, deterministic=True)
            observation, _, _, _, info = env.step(action)
            total += info["regret"]
        expected.append(total)
    np.testing.assert_allclose(result.final_regret("ppo"), expected, rtol=1e-6)
    from dpb_gym.predictors import PredictorMaker

    before = PredictorMaker(model).version
    assert PredictorMaker(model).version == before
    model.learn(32)
    assert PredictorMaker(model).version != before
