"""What privacy costs for a lender's quotes, from a CSV file such as ``loans.csv``."""

import dpb_data
import dpb_gym

file = dpb_data.write_sample("synthetic-loans", "loans.csv")
advice = dpb_gym.advise(file, bounds={"price": (0, 12)}, budgets="eps=1,delta=1e-6", replicates=16)
print(advice, advice.to_html("loans.html"), advice.plot("loans.png"), sep="\n")
