"""The cost of privacy for choice sets of travellers, from a CSV file."""

import dpb_data
import dpb_gym

file = dpb_data.write_sample("synthetic-mode-canada", "trips.csv")
columns = {"case": "case", "item": "alt", "chosen": "choice", "features": ["cost", "ivt", "ovt"]}
trips = dpb_gym.from_log(file, "assortment", outside="car", revenue="cost", capacity=2, **columns)
trips.plot("trips-fit.png")
cost = dpb_gym.cost_of_privacy(trips, ["eps=1,delta=1e-6"], horizon=20_000, replicates=6)
print(trips.report, cost, sep="\n\n")
cost.plot("trips.png")
