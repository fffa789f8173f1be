"""Ray RLlib: one training iteration of PPO and DQN, in one process."""

import os

os.environ.setdefault("RAY_DEDUP_LOGS", "0")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")

import gymnasium as gym
import ray
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env
from rows import attempt

import dpb_gym  # noqa: F401  (registers the environments)

KWARGS = {"dim": 3, "n_candidates": 4, "horizon": 20}


def train(config, env):
    config = config.environment(env, env_config=KWARGS).env_runners(num_env_runners=0)
    algorithm = config.build_algo()
    result = algorithm.train()
    algorithm.stop()
    steps = result["env_runners"]["num_env_steps_sampled_lifetime"]
    return f"{int(steps)} rounds in one iteration"


def ppo(env="DPB/Recommendation-v0"):
    options = {"train_batch_size": 128, "minibatch_size": 64, "num_epochs": 1}
    return train(PPOConfig().training(**options), env)


def dqn(env="DPB/Recommendation-v0"):
    return train(DQNConfig().training(num_steps_sampled_before_learning_starts=64), env)


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
register_env("dpb", lambda config: gym.make("DPB/Recommendation-v0", **config))
LINE = 'register_env("dpb", lambda config: gymnasium.make("DPB/Recommendation-v0", **config))'
attempt("RLlib PPO", "one iteration", ppo, LINE, lambda: ppo("dpb"))
attempt("RLlib DQN", "one iteration", dqn, LINE, lambda: dqn("dpb"))
ray.shutdown()
