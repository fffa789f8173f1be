# %% [markdown]
# # Write a private agent, and attack it
#
# An agent is private if it learns from releases alone. The **curator** makes releasers: it
# divides the budget, calibrates the noise and keeps the ledger. You say what is summed, and in
# which range.

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
# Without a budget the same calls are exact: the non-private twin is the same code, and the
# difference between the two is what privacy costs this algorithm.

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
# Is the promise kept? An **audit** plays the agent in two worlds that differ in one reward and
# bounds its privacy loss from below, from everything that it released.

# %%
dpb_gym.audit("tutorial", "rho=2", 200)

# %% [markdown]
# And if the agent looks past its releaser? This one remembers a raw reward.


# %%
@dpb_gym.register_agent("leaky", supports=["recommendation"], protects=("central", "reward"))
class Leaky(Tutorial):
    """Remembers the newest raw reward."""

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
