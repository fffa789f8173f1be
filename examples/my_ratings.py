"""What privacy costs for ratings of films, from a CSV file."""

import dpb_data
import dpb_gym

file = dpb_data.write_sample("synthetic-movielens", "ratings.csv")
advice = dpb_gym.advise(file, rating_range=(0.5, 5), budgets="eps=1,delta=1e-6", replicates=8)
print(advice, advice.to_html("ratings.html"), advice.plot("ratings.png"), sep="\n")
