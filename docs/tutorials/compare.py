# %% [markdown]
# # Compare private and non-private agents
#
# Which slate of hotels, films or shirts should the next customer see, if the slates may not reveal
# a customer's choices? This tutorial compares our private agent, a paper's private agent and two
# non-private ones on the same customers.

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
# A budget applies to every agent that can take one. Each row shows its guarantee: the notion, the
# unit and the cost in zCDP, computed from the ledger. Intervals are at 95%, over replicates.
#
# Regret by round:

# %%
result.plot(agents=["One-pass", "DPMNL", "Greedy, not private"])

# %% [markdown]
# The cost of privacy at each budget. The dashed line is the best non-private agent.

# %%
result.plot_frontier()

# %% [markdown]
# All agents have the same customers and the same random numbers, so differences are paired over
# replicates. Their intervals are much narrower than those of the rows.

# %%
result.plot_paired(against="Greedy, not private", agents=["One-pass", "DPMNL"])

# %% [markdown]
# The numbers, for a paper or a data frame: `result.to_latex()`, `result.to_csv()`, and one
# dictionary per agent, replicate and checkpoint:

# %%
result.records()[-1]
