"""What privacy costs for choice sets of travellers, from a CSV file."""

import dpb_data
import dpb_gym

file = dpb_data.write_sample("synthetic-mode-canada", "trips.csv")
model = {"outside": "car", "revenue": "cost", "capacity": 2, "budgets": "eps=1,delta=1e-6"}
advice = dpb_gym.advise(file, replicates=16, horizon=5000, **model)
print(advice, advice.to_html("trips.html"), advice.plot("trips.png"), sep="\n")
