"""Audit your own agent: test its guarantee empirically.

Three agents claim to protect single rewards. The first adds the required noise. The second
declares a third of its true sensitivity. The third has the right noise, but also uses a raw
reward. The audit runs each agent many times in two worlds that differ in one reward, and computes
a lower bound on the privacy loss. A FAIL refutes the claim (at 95% confidence). A PASS only says
that this attack found no violation, although it detects the same agent with a third of its noise.

    python examples/audit_your_agent.py
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import dpb_gym

BATCH = 8


class Honest(dpb_gym.SingleAgent):
    """Score candidates by noisy sums of r x, released every few rounds."""

    protects = ("central", "reward")
    sensitivity: float | None = None  # the releaser derives it from the range

    def begin(self) -> None:
        self.sums = self.curator.batch_sum(
            self.problem.dim, reward=(0.0, 1.0), sensitivity=self.sensitivity
        )
        self.scores = np.zeros(self.problem.dim)

    def act(self, context: Any) -> int:
        return int((context.features @ self.scores).argmax())

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        self.sums.add(feedback.reward, along=context.features[action])
        if context.t % BATCH == 0:
            self.scores = self.scores + self.sums.release()


class Careless(Honest):
    """Declare a sensitivity that is too small, so that the noise is too small."""

    sensitivity = 1.0 / 3.0


class Peeking(Honest):
    """Use a raw reward without a releaser."""

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        super().observe(context, action, feedback)
        if context.t % BATCH == 1:
            self.scores = self.scores + feedback.reward * context.features[action]


def main(runs: int) -> None:
    """Audit the three agents."""
    for agent in (Honest, Careless, Peeking):
        report = dpb_gym.audit(
            agent,
            dpb_gym.Budget.zcdp(0.5),
            runs=runs,
            env_id="DPB/Recommendation-v0",
            env_kwargs={"dim": 2, "n_arms": 12, "n_candidates": 3},
            horizon=4 * BATCH,
        )
        print(f"--- {agent.__name__.lower()}\n{report}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000, help="runs in each of the two worlds")
    main(parser.parse_args().runs)
