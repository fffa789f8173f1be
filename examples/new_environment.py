"""A new environment: pricing for customers whose features change with the season.

Run it: python examples/new_environment.py
"""

import gymnasium
import numpy as np

import dpb_gym
from dpb_gym.problems.pricing import PricingProblem


class SeasonalPricing(PricingProblem):
    """`PricingProblem` whose first feature follows the seasons.

    Args:
        period: Rounds per year.
        **kwargs: Parameters of `PricingProblem`.
    """

    def __init__(self, horizon=10_000, dim=3, period=500, **kwargs):
        self.period = period
        super().__init__(horizon=horizon, dim=dim, **kwargs)

    def draw_features(self, rng, start, hidden, out):
        # One replicate's features of the rounds start + 1, start + 2, ... Draw from `rng` in
        # round order, so that results do not depend on the block length.
        super().draw_features(rng, start, hidden, out)
        rounds = start + 1 + np.arange(len(out))
        out[:, 0] = np.sin(2 * np.pi * rounds / self.period)


dpb_gym.register_environment(
    "Examples/SeasonalPricing-v0",
    SeasonalPricing,
    kind="pricing",
    summary="Pricing with seasonal customers",
)

if __name__ == "__main__":
    env = gymnasium.make("Examples/SeasonalPricing-v0", horizon=200)
    env.reset(seed=0)
    revenue = sum(env.step(env.action_space.sample())[1] for _ in range(200))
    print(f"random prices earn {revenue:.1f} in 200 rounds")
    dpb_gym.evaluate(
        "Examples/SeasonalPricing-v0",
        agents=["greedy-pricing", "fixed-price", "random"],
        horizon=1000,
        replicates=8,
    ).table()
