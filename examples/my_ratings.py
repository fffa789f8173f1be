"""The cost of privacy for ratings of films, from a CSV file."""

import dpb_data
import dpb_gym

file = dpb_data.write_sample("synthetic-movielens", "ratings.csv")
columns = {"user": "user", "item": "item", "rating": "rating", "rating_range": (0.5, 5)}
films = dpb_gym.from_log(file, "recommendation", **columns)
cost = dpb_gym.cost_of_privacy(films, ["eps=1,delta=1e-6"], horizon=10_000, replicates=6)
print(films.report, cost, sep="\n\n")
cost.plot("ratings.png")
