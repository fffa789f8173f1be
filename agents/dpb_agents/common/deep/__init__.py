"""Deep reinforcement learning: small networks, those of all replicates trained at once."""
