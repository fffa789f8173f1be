"""Deep reinforcement learning from Stable-Baselines3, learning online."""
