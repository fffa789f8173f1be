"""A new agent, epsilon-greedy recommendation, compared with others.

Run it: python examples/new_agent.py
"""

import numpy as np

import dpb_gym


@dpb_gym.register_agent("epsilon-greedy", supports=["recommendation"])
class EpsilonGreedy(dpb_gym.SingleAgent):
    def __init__(self, epsilon=0.05):
        self.epsilon = epsilon

    def begin(self):
        self.gram, self.sums = np.eye(self.problem.dim), np.zeros(self.problem.dim)

    def act(self, context):
        explore = self.rng.random() < self.epsilon
        scores = context.features @ np.linalg.solve(self.gram, self.sums)
        return self.rng.integers(self.problem.n_candidates) if explore else int(scores.argmax())

    def observe(self, context, action, feedback):
        x = context.features[action].astype(float)
        self.gram, self.sums = self.gram + np.outer(x, x), self.sums + feedback.reward * x


if __name__ == "__main__":
    result = dpb_gym.evaluate(
        "DPB/Recommendation-v0",
        agents=["epsilon-greedy", "lin-ucb", "random"],
        horizon=1000,
        replicates=8,
    )
    result.table()
