# %% [markdown]
# # From a log of your own to the price of privacy
#
# A lender quoted rates to applicants, and some signed. What would it have earned with privacy for
# the applicants? The file below is generated and stands for yours: one row per quote.

# %%
import dpb_data
import dpb_gym

file = dpb_data.write_sample("synthetic-loans", "loans.csv")
print(file.read_text()[:300])

# %% [markdown]
# `from_log` fits a model of demand and makes an environment of it. The bounds of the columns are
# public knowledge, not read from the data. Its report says how well the model knows applicants
# that it has not seen.

# %%
bounds = {"term": (24, 84), "score": (300, 850), "price": (0, 12)}
loans = dpb_gym.from_log(file, "pricing", features=["term", "score"], bounds=bounds)
loans

# %%
loans.plot()

# %% [markdown]
# Now agents with and without privacy meet applicants drawn from that model, and the difference is
# the price.

# %%
cost = dpb_gym.cost_of_privacy(loans, ["eps=1,delta=1e-6"], horizon=5000, replicates=4)
cost

# %%
cost.plot()
