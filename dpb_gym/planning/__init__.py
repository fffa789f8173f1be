"""Planning: cost model and forecasts of a run, tuning on its own seeds, the cost of privacy."""
