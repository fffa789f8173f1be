"""tianshou: vector environments, also in processes, and an epoch of DQN."""

import gymnasium as gym
import numpy as np
from rows import attempt
from tianshou.algorithm.modelfree.dqn import DQN, DiscreteQLearningPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv, SubprocVectorEnv
from tianshou.trainer import OffPolicyTrainerParams
from tianshou.utils.net.common import Net

import dpb_gym  # noqa: F401  (registers the environments)


def make():
    return gym.make("DPB/Recommendation-v0", dim=3, n_candidates=4, horizon=20)


def vector():
    for kind in (DummyVectorEnv, SubprocVectorEnv):
        envs = kind([make, make])
        envs.reset()
        observation, *_ = envs.step(np.array([0, 1]))
        envs.close()
    return f"observations {observation.shape}, in processes too"


def train():
    env = make()
    net = Net(
        state_shape=env.observation_space.shape, action_shape=env.action_space.n,
        hidden_sizes=[16],
    )  # fmt: skip
    policy = DiscreteQLearningPolicy(model=net, action_space=env.action_space, eps_training=0.1)
    algorithm = DQN(policy=policy, optim=AdamOptimizerFactory(lr=1e-3))
    envs = [DummyVectorEnv([make, make]) for _ in range(2)]
    training = Collector(algorithm, envs[0], VectorReplayBuffer(200, 2), exploration_noise=True)
    result = algorithm.run_training(
        OffPolicyTrainerParams(
            training_collector=training,
            test_collector=Collector(algorithm, envs[1]),
            max_epochs=1,
            epoch_num_steps=80,
            collection_step_num_env_steps=20,
            test_step_num_episodes=2,
            batch_size=16,
            update_step_num_gradient_steps_per_sample=0.1,
        )
    )
    return f"one epoch of {result.train_step} rounds"


attempt("tianshou DummyVectorEnv, SubprocVectorEnv", "reset and step", vector)
attempt("tianshou DQN", "one epoch", train)
