"""Audit your own agent: does the code keep the promise?

Two agents, both of which claim that one reward may be exchanged for another without anybody
noticing much. One adds the noise that the claim needs; the other computed the sensitivity of its
sums for rewards in [0, 1] and then forgot that it scales rewards by two. The audit runs each
thousands of times in two worlds that differ in one reward, and bounds the privacy loss from below.
A FAIL is a proof (at 95% confidence); a PASS only says that this attack found nothing.

    python examples/audit_your_agent.py
"""

from __future__ import annotations

import argparse

import numpy as np

import dpb_gym
from dpb_gym.privacy import Composition, GaussianSum, Guarantee, Ledger, NoiseSource, Segment
from dpb_gym.problems import Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams

Array = np.ndarray

BATCH = 8


class NoisyScores(dpb_gym.Agent):
    """Scores candidates by noisy sums of r x, released every few rounds.

    Args:
        scale: Rewards are multiplied by it before they are summed.
        declared: The scale that the sensitivity was computed for.
    """

    def __init__(self, scale: float = 2.0, declared: float = 2.0) -> None:
        self.scale, self.declared = scale, declared

    def begin(
        self,
        problem: ProblemInfo,
        streams: AgentStreams,
        budget: dpb_gym.Budget | None = None,
    ) -> None:
        assert budget is not None and budget.rho is not None
        self.releaser = GaussianSum(
            problem.dim,
            streams.replicates,
            clip=Segment(0.0, self.scale),
            sensitivity=self.declared,  # by default a releaser derives it from `clip`
            rho=budget.rho,
            noise=NoiseSource(streams.noise),
            ledger=Ledger(budget, notion="central", unit="reward"),
        )
        # Every reward is in one batch only, so all batches together cost what one costs.
        curve = Composition(parallel=((self.releaser.event,),))
        self.guarantee = Guarantee("central", "reward", curve=curve)
        self.scores = np.zeros((streams.replicates, problem.dim))

    def act(self, context: Context) -> Array:
        best: Array = (context.features * self.scores[:, None]).sum(axis=2).argmax(axis=1)
        return best

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        chosen = context.features[np.arange(len(action)), action]
        self.releaser.add(self.scale * feedback.reward, chosen)
        if context.t % BATCH == 0:
            self.scores = self.scores + self.releaser.release()


def main(runs: int) -> None:
    """Audits the honest agent and the careless one."""
    for title, params in (
        ("honest", {"scale": 2.0, "declared": 2.0}),
        ("careless", {"scale": 2.0, "declared": 1.0}),
    ):
        report = dpb_gym.audit(
            NoisyScores,
            dpb_gym.Budget.zcdp(0.5),
            runs=runs,
            params=params,
            env_id="DPB/Recommendation-v0",
            env_kwargs={"dim": 2, "n_arms": 12, "n_candidates": 3},
            horizon=4 * BATCH,
        )
        print(f"--- {title}\n{report}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=1000, help="runs in each of the two worlds")
    main(parser.parse_args().runs)
