"""skrl: `wrap_env`, and one training of PPO."""

import gymnasium as gym
import torch
from rows import attempt
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, Model
from skrl.trainers.torch import SequentialTrainer

import dpb_gym  # noqa: F401  (registers the environments)

KWARGS = {"dim": 3, "n_candidates": 4, "horizon": 20}


def vector():
    env = wrap_env(gym.make_vec("DPB/Recommendation-v0", num_envs=3, **KWARGS))
    env.reset()
    for _ in range(25):
        actions = torch.randint(0, 4, (3, 1))
        transition = env.step(actions)
    return f"{env.num_envs} lanes, observations {tuple(transition[0].shape)}"


def single():
    env = wrap_env(gym.make("DPB/Pricing-v0", dim=3, horizon=20))
    env.reset()
    for _ in range(20):
        transition = env.step(torch.rand(1, 1))
    return f"observations {tuple(transition[0].shape)}"


attempt("skrl wrap_env", "single environment", single)
attempt("skrl wrap_env", "vector environment", vector)


class Actor(CategoricalMixin, Model):
    """Policy network."""

    def __init__(self, observation_space, action_space, device):
        Model.__init__(
            self, observation_space=observation_space, action_space=action_space, device=device
        )
        CategoricalMixin.__init__(self)
        self.net = torch.nn.Linear(self.num_observations, self.num_actions)

    def compute(self, inputs, role):
        return self.net(inputs["observations"]), {}


class Critic(DeterministicMixin, Model):
    """Value network."""

    def __init__(self, observation_space, action_space, device):
        Model.__init__(
            self, observation_space=observation_space, action_space=action_space, device=device
        )
        DeterministicMixin.__init__(self)
        self.net = torch.nn.Linear(self.num_observations, 1)

    def compute(self, inputs, role):
        return self.net(inputs["observations"]), {}


def train():
    env = wrap_env(gym.make_vec("DPB/Recommendation-v0", num_envs=3, **KWARGS))
    spaces = env.observation_space, env.action_space, env.device
    agent = PPO(
        models={"policy": Actor(*spaces), "value": Critic(*spaces)},
        memory=RandomMemory(memory_size=16, num_envs=3, device=env.device),
        cfg=PPO_CFG(rollouts=16, learning_epochs=2, mini_batches=2),
        observation_space=env.observation_space, action_space=env.action_space, device=env.device,
    )  # fmt: skip
    SequentialTrainer(cfg={"timesteps": 48, "headless": True}, env=env, agents=agent).train()
    return "48 steps of 3 lanes"


attempt("skrl PPO", "SequentialTrainer.train", train)
