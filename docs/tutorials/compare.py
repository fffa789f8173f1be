# %% [markdown]
# # Compare agents with and without privacy
#
# Which slate of hotels, films or shirts should the next customer see, if nobody may learn from
# the shop's behaviour what one customer did? Here a private agent, the paper's one and two that
# are not private meet the same customers.

# %%
import dpb_gym

result = dpb_gym.evaluate(
    "DPB/Assortment-v0",
    agents={
        "One-pass": "one-pass-mnl",
        "DPMNL": "dpmnl",
        "Greedy, not private": "greedy-mnl",
        "random": "random",
    },
    budgets=["rho=0.1", "rho=0.5"],
    horizon=2000,
    replicates=8,
    env_kwargs={"n_items": 30, "capacity": 4, "dim": 3},
)
result

# %% [markdown]
# A budget applies to every agent that can take one. Each row says what it really guarantees: the
# notion, the unit and the price in zCDP, computed by the ledger that the noise was charged to.
# Intervals are at 95%, over replicates.
#
# How fast do they learn?

# %%
result.plot(agents=["One-pass", "DPMNL", "Greedy, not private"])

# %% [markdown]
# What does privacy cost? The dashed line is the best agent without it.

# %%
result.plot_frontier()

# %% [markdown]
# Every agent met the same customers, decided by the same random numbers, so differences are taken
# replicate by replicate, and are far narrower than the rows' own intervals.

# %%
result.plot_paired(against="Greedy, not private", agents=["One-pass", "DPMNL"])

# %% [markdown]
# The numbers, for a paper or a data frame: `result.to_latex()`, `result.to_csv()`, and one
# dictionary per agent, replicate and checkpoint:

# %%
result.records()[-1]
