"""Local privacy: customers randomise their responses, so no trusted curator is needed.

A wrapper of `dpb_gym.feedback` randomises the responses of an environment, which makes any agent
locally private. In the harness `LocalPrivacy` does the same for any registered non-private agent.
A trusted curator (central privacy) costs far less regret at the same epsilon, but its guarantee is
weaker.

    python examples/local_privacy.py
"""

from __future__ import annotations

import argparse

import gymnasium
import numpy as np

import dpb_gym
from dpb_gym.feedback import PrivateResponse, RandomizedResponse
from dpb_gym.local_privacy import LocalPrivacy

EPSILON, DELTA = 2.0, 1e-5

dpb_gym.register_agent(
    "private-answers",
    supports=["recommendation"],
    protects=("local", "reward"),
    budget="required",
    agent="lin-greedy",
    mechanism="gaussian",
)(LocalPrivacy)


def learn_prices(env: gymnasium.Env, rounds: int) -> float:
    """Return the best of ten prices by explore-then-commit, with the Gymnasium interface only."""
    env.reset(seed=0)
    earned, tried = np.zeros(10), np.zeros(10)
    for t in range(rounds):
        k = t % 10 if t < rounds // 4 else int((earned / tried).argmax())
        reward = env.step(k)[1]
        earned[k] += reward
        tried[k] += 1
    return float((earned / tried).argmax()) / 9


def wrapped(rounds: int) -> None:
    """Use a Gymnasium wrapper."""
    env = gymnasium.make("DPB/Pricing-v0", horizon=rounds, n_prices=10)
    private = PrivateResponse(env, RandomizedResponse(epsilon=EPSILON), debias=True)
    print(f"guarantee of the wrapper: {private.guarantee}")
    print(f"best price learned from the messages: {learn_prices(private, rounds):.2f}")
    private.reset(seed=1)
    _, reward, _, _, info = private.step(5)
    print(f"the agent gets {reward:+.3f} and {info}; only the harness has {private.truth}")


def compared(rounds: int, replicates: int) -> None:
    """Compare a non-private agent, a locally private one and one with a curator."""
    budget = dpb_gym.Budget.approx(epsilon=EPSILON, delta=DELTA)
    dpb_gym.evaluate(
        "DPB/Recommendation-v0",
        agents={
            "not private": "lin-greedy",
            "central (trusted curator)": ("one-pass-linear", budget),
            "local (no trusted party)": ("private-answers", budget),
            "random": "random",
        },
        horizon=rounds,
        replicates=replicates,
        seed=0,
    ).table()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--horizon", type=int, default=5_000)
    parser.add_argument("--replicates", type=int, default=8)
    options = parser.parse_args()
    wrapped(options.horizon)
    compared(options.horizon, options.replicates)
