# %% [markdown]
# # Write and audit a private agent
#
# An agent is private if it learns from releases only. The **curator** makes releasers, divides
# the budget, calibrates the noise and maintains the ledger. You choose what is summed, and its
# range.

# %%
import numpy as np

import dpb_gym


@dpb_gym.register_agent("tutorial", supports=["recommendation"], protects=("central", "reward"))
class Tutorial(dpb_gym.SingleAgent):
    """Ridge regression on a private running sum of rewards times features."""

    def begin(self):
        d = self.problem.dim
        self.sums = self.curator.running_sum(d, reward=(0.0, 1.0))
        self.gram = np.eye(d)

    def act(self, context):
        theta = np.linalg.solve(self.gram, self.sums.value)  # releases only
        return int((context.features @ theta).argmax())

    def observe(self, context, action, feedback):
        x = context.features[action]
        self.gram += np.outer(x, x)  # contexts are public in this unit
        self.sums.add(feedback.reward, along=x)


# %% [markdown]
# Without a budget the same calls are exact: the non-private version is the same code, and the
# difference between the two is the cost of privacy for this algorithm.

# %%
result = dpb_gym.evaluate(
    "DPB/Recommendation-v0",
    agents={"mine": "tutorial", "random": "random"},
    budgets=["eps=1,delta=1e-5", "eps=5,delta=1e-5", "none"],
    horizon=1000,
    replicates=4,
)
result

# %% [markdown]
# An **audit** tests the guarantee. It plays the agent in two worlds that differ in one reward and
# computes a lower bound on its privacy loss from all releases.

# %%
dpb_gym.audit("tutorial", "rho=2", 200)

# %% [markdown]
# The next agent has an error: it stores a raw reward.


# %%
@dpb_gym.register_agent("leaky", supports=["recommendation"], protects=("central", "reward"))
class Leaky(Tutorial):
    """Store the newest raw reward."""

    def begin(self):
        super().begin()
        self.last = 0.0

    def act(self, context):
        return super().act(context) if self.last < 0.5 else 0

    def observe(self, context, action, feedback):
        super().observe(context, action, feedback)
        self.last = feedback.reward


report = dpb_gym.audit("leaky", "rho=2", 200)
report

# %%
assert report.verdict == "READS RAW DATA"
