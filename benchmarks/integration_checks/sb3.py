"""Stable-Baselines3 and sb3-contrib: `check_env`, and one `learn` of every algorithm."""

import gymnasium as gym
import numpy as np
import sb3_contrib
import stable_baselines3
from rows import attempt
from stable_baselines3.common.env_checker import check_env

import dpb_gym

IDS = {
    "slates": ("DPB/Assortment-v0", {"n_items": 6, "capacity": 2, "dim": 3}),
    "prices": ("DPB/Pricing-v0", {"dim": 3}),
    "candidates": ("DPB/Recommendation-v0", {"dim": 3, "n_candidates": 4}),
}
ONE_STEP = {"learning_starts": 16, "buffer_size": 200}
ROLLOUT = {"n_steps": 32}
ALGORITHMS = {
    "A2C": (stable_baselines3, ("slates", "prices", "candidates"), ROLLOUT),
    "PPO": (stable_baselines3, ("slates", "prices", "candidates"), ROLLOUT | {"batch_size": 32}),
    "DQN": (stable_baselines3, ("candidates",), ONE_STEP),
    "DDPG": (stable_baselines3, ("prices",), ONE_STEP),
    "TD3": (stable_baselines3, ("prices",), ONE_STEP),
    "SAC": (stable_baselines3, ("prices",), ONE_STEP),
    "ARS": (sb3_contrib, ("prices", "candidates"), {"n_delta": 2}),
    "CrossQ": (sb3_contrib, ("prices",), ONE_STEP),
    "MaskablePPO": (sb3_contrib, ("slates", "candidates"), ROLLOUT | {"batch_size": 32}),
    "QRDQN": (sb3_contrib, ("candidates",), ONE_STEP),
    "RecurrentPPO": (
        sb3_contrib, ("slates", "prices", "candidates"), ROLLOUT | {"batch_size": 32},
    ),
    "TQC": (sb3_contrib, ("prices",), ONE_STEP),
    "TRPO": (sb3_contrib, ("slates", "prices", "candidates"), ROLLOUT | {"batch_size": 32}),
}  # fmt: skip


def env_of(name: str, **kwargs):
    env_id, own = IDS[name]
    return gym.make(env_id, horizon=40, **own, **kwargs)


def check():
    for name in IDS:
        check_env(env_of(name))
    return ", ".join(env_id for env_id, _ in IDS.values())


def learn(name: str):
    module, kinds, options = ALGORITHMS[name]
    for kind in kinds:
        policy = {"ARS": "LinearPolicy", "RecurrentPPO": "MlpLstmPolicy"}.get(name, "MlpPolicy")
        masked = {"available": 0.5} if name == "MaskablePPO" else {}
        env = env_of(kind, **masked)
        model = getattr(module, name)(policy, env, device="cpu", seed=0, **options)
        model.learn(80)
        if not masked:
            env_id, own = IDS[kind]
            result = dpb_gym.evaluate(
                env_id, {"model": model}, 20, 2, env_kwargs=own, progress=False
            )
            assert np.isfinite(result.final_regret("model")).all()
    return "learn on " + ", ".join(kinds)


attempt("Stable-Baselines3", "check_env", check)
for algorithm, (where, _, _) in ALGORITHMS.items():
    masked = "learn with sold-out items" if algorithm == "MaskablePPO" else "learn, then evaluate"
    program = "Stable-Baselines3" if where is stable_baselines3 else "sb3-contrib"
    attempt(f"{program} {algorithm}", masked, lambda name=algorithm: learn(name))
