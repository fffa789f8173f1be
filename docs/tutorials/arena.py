# %% [markdown]
# # Run your agent on the arena
#
# The agent is a class. Nothing else is needed to play a task of the arena against the published
# agents.

# %%
import dpb_gym
from dpb_gym.suites import load_suite


@dpb_gym.register_agent("mine", supports=["pricing"])
class Mine(dpb_gym.SingleAgent):
    """Ask the price that has earned most per customer so far, out of five."""

    def begin(self):
        self.earned, self.asked = [0.0] * 5, [1e-9] * 5

    def act(self, context):
        best = [e / n if n >= 1 else 1.0 for e, n in zip(self.earned, self.asked)]
        self.choice = best.index(max(best))
        return (self.choice + 1) / 5

    def observe(self, context, action, feedback):
        self.earned[self.choice] += feedback.reward
        self.asked[self.choice] += 1


# %% [markdown]
# Play a fifth of the rounds of the task `pricing-easy`, on four replicates, beside published
# agents.

# %%
task = next(task for task in load_suite("dpb-bench-v1").tasks if task.name == "pricing-easy")
result = dpb_gym.evaluate(
    task.env,
    ["mine", ("one-pass-pricing", "rho=0.5"), "greedy-pricing", "random"],
    horizon=task.horizon // 5,
    replicates=4,
    env_kwargs=task.env_kwargs,
)
result

# %%
result.plot()

# %% [markdown]
# From a package, `dpb run dpb-bench-v1 --agents mine --out results --html leaderboard.html` runs
# all tasks and adds the agent to the page: see [the arena](/arena.md).
