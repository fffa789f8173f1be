# %% [markdown]
# # From your own log to the cost of privacy
#
# A lender quoted rates to applicants, and some accepted. What would the lender earn with privacy
# for the applicants? The file below is generated and has one row per quote.

# %%
import dpb_data
import dpb_gym

file = dpb_data.write_sample("synthetic-loans", "loans.csv")
print(file.read_text()[:300])

# %% [markdown]
# `from_log` fits a model of demand and makes an environment of it. The bounds of the columns are
# public constants, not taken from the data. The report shows the fit on held-out applicants.

# %%
bounds = {"term": (24, 84), "score": (300, 850), "price": (0, 12)}
loans = dpb_gym.from_log(file, "pricing", features=["term", "score"], bounds=bounds)
loans

# %%
loans.plot()

# %% [markdown]
# Agents with and without a budget play applicants drawn from that model. The difference is the
# cost of privacy.

# %%
cost = dpb_gym.cost_of_privacy(loans, ["eps=1,delta=1e-6"], horizon=5000, replicates=4)
cost

# %%
cost.plot()
