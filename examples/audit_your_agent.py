"""Audit your own agent: does the code keep the promise?

Three agents, all of which claim that one reward may be exchanged for another without anybody
noticing much. The first adds the noise that the claim needs. The second says that one reward moves
its sums by at most a third of what it does. The third has the right noise, but also looks at a raw
reward. The audit runs each thousands of times in two worlds that differ in one reward, and bounds
the privacy loss from below. A FAIL is a proof (at 95% confidence); a PASS only says that this
attack found nothing, although it does find the same agent with a third of its noise.

    python examples/audit_your_agent.py
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import dpb_gym

BATCH = 8


class Honest(dpb_gym.SingleAgent):
    """Scores candidates by noisy sums of r x, released every few rounds."""

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
    """Vouches for a sensitivity that is too small, so that the noise is too."""

    sensitivity = 1.0 / 3.0


class Peeking(Honest):
    """Lets a raw reward past the releaser."""

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        super().observe(context, action, feedback)
        if context.t % BATCH == 1:
            self.scores = self.scores + feedback.reward * context.features[action]


def main(runs: int) -> None:
    """Audits the honest agent and the two others."""
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
