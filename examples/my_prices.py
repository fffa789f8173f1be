"""The cost of privacy for a lender's quotes, from a CSV file such as ``loans.csv``."""

import dpb_data
import dpb_gym

file = dpb_data.write_sample("synthetic-loans", "loans.csv")
bounds = {"term": (24, 84), "score": (300, 850), "price": (0, 12)}  # public
loans = dpb_gym.from_log(file, "pricing", features=["term", "score"], bounds=bounds)
loans.plot("loans-fit.png")
cost = dpb_gym.cost_of_privacy(loans, ["eps=1,delta=1e-6"], horizon=20_000, replicates=6)
print(loans.report, cost, sep="\n\n")
cost.plot("loans.png")
