"""Train PPO of Stable-Baselines3 on personalised pricing and compare it with random prices.

Needs the [sb3] extra: pip install dpb-gym[sb3]

    python examples/train_sb3.py --timesteps 10000
"""

from __future__ import annotations

import argparse

import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecEnv

from dpb_gym.envs.sb3 import make_sb3_vec


def mean_regret(model: PPO | None, venv: VecEnv, rounds: int, seed: int) -> np.ndarray:
    """Return the mean regret per round of each lane; random prices if `model` is None."""
    venv.seed(seed)
    venv.action_space.seed(seed)
    observations = venv.reset()
    total = np.zeros(venv.num_envs)
    for _ in range(rounds):
        if model is None:
            actions = np.stack([venv.action_space.sample() for _ in range(venv.num_envs)])
        else:
            actions, _ = model.predict(observations, deterministic=True)
        observations, _, _, infos = venv.step(actions)
        total += [info["regret"] for info in infos]
    return total / rounds


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--timesteps", type=int, default=10_000, help="training rounds")
    parser.add_argument("--envs", type=int, default=16, help="lanes trained on at once")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(argv)

    training = make_sb3_vec("DPB/Pricing-v0", options.envs, horizon=1000)
    model = PPO(
        "MlpPolicy",
        training,
        n_steps=64,
        batch_size=128,
        learning_rate=5e-3,
        gamma=0.0,  # prices do not affect later customers
        policy_kwargs={"net_arch": [32], "log_std_init": -0.7},
        seed=options.seed,
        device="cpu",
    )

    # Held-out customers, the same for every policy.
    test = make_sb3_vec("DPB/Pricing-v0", 64, horizon=200)

    def report(name: str, policy: PPO | None) -> None:
        regret = mean_regret(policy, test, 200, options.seed + 1_000_000)
        error = 1.96 * regret.std(ddof=1) / np.sqrt(len(regret))
        print(f"{name:<14} mean regret per round {regret.mean():.4f} +- {error:.4f}")

    report("random", None)
    report("PPO, untrained", model)
    report("PPO, trained", model.learn(options.timesteps))


if __name__ == "__main__":
    main()
