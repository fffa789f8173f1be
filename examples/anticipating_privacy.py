"""Why pricing needs *anticipating* privacy: Proposition 1 of Chen, Simchi-Levi & Wang.

Two customer types arrive at random. Plain differential privacy requires every price, including
the customer's own, to be almost as likely for the other type. Then regret grows linearly for
every policy. Anticipating privacy protects a customer in all *later* prices, which others see,
and allows the customer's own price to depend on the type.

The plainly private policy in this example is optimal: the demand model is given, so that the only
private input is the customer's type, which is randomised by randomised response. For two types
this is optimal among all epsilon-private mechanisms (Kairouz, Oh & Viswanath 2016, Theorem 5), so
no plainly epsilon-private policy has less expected regret.

    python examples/anticipating_privacy.py --out anticipating_privacy.png
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_gym import make_agent, make_problem
from dpb_gym.agent import Agent
from dpb_gym.privacy import Budget, Composition, Curator, Guarantee, PureEvent
from dpb_gym.problems.base import ProblemInfo
from dpb_gym.streams import AgentStreams

Array = NDArray[Any]
PRICES = np.linspace(0.0, 1.0, 401)


def revenue(price: Array, kind: float) -> Array:
    """Return the expected revenue of a price for type +1 or -1 (proof of Proposition 1)."""
    value: Array = price / (1.0 + np.exp(-2.0 * (kind - price)))
    return value


def losses() -> tuple[Array, Array]:
    """Return the regret of every price of the grid for type +1 and for type -1."""
    high, low = revenue(PRICES, 1.0), revenue(PRICES, -1.0)
    return high.max() - high, low.max() - low


class PlainlyPrivate(Agent):
    """Price by the customer's type, after randomised response with odds e^epsilon.

    Customer t affects only price t, so the whole sequence of prices is epsilon-differentially
    private, including the customer's own price.
    """

    def __init__(self, epsilon: float) -> None:
        truth = 1.0 / (1.0 + math.exp(-epsilon))
        high, low = losses()
        # price after report +1 (rows) and after report -1 (columns) of least expected regret
        cost = np.add.outer(truth * high + (1.0 - truth) * low, (1.0 - truth) * high + truth * low)
        at, other = np.unravel_index(cost.argmin(), cost.shape)
        self.truth, self.prices = truth, (PRICES[at], PRICES[other])
        self.regret_per_round = 0.5 * float(cost.min())
        curve = Composition.of(PureEvent(epsilon, 1))
        self.plain = Guarantee("central", "user-round", curve=curve)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        self._uniforms = streams.uniforms()

    def act(self, context: Any) -> Array:
        truthful = self._uniforms.next() < self.truth
        reported_high = (context.features[:, 0] > 0) == truthful
        prices: Array = np.where(reported_high, *self.prices)
        return prices

    def observe(self, context: Any, action: Array, feedback: Any) -> None:
        pass  # the model is given


def play(agent: Agent, horizon: int, seeds: range, budget: Budget | None, at: Array) -> Array:
    """Return the cumulative regret of each replicate at the rounds `at`, ``(len(at), B)``."""
    problem = make_problem("DPB/PricingTwoType-v0", horizon=horizon)
    instance = problem.instance(list(seeds))
    agent.attach(instance)
    agent.set_up(problem.info, AgentStreams(list(seeds)), budget)
    total, curve = np.zeros(len(seeds)), []
    wanted = set(at.tolist())
    for t in range(1, horizon + 1):
        context = instance.context()
        action = agent.act(context)
        outcome = instance.respond(action)
        agent.observe(context, action, outcome.feedback)
        total += outcome.regret
        if t in wanted:
            curve.append(total.copy())
        if t < horizon:
            instance.advance()
    return np.array(curve)


def main(arguments: list[str] | None = None) -> dict[str, Array]:
    """Run, print and draw the comparison. Return the curves by label."""
    parser = argparse.ArgumentParser(description="Plain against anticipating privacy in pricing.")
    parser.add_argument("--horizon", type=int, default=20_000)
    parser.add_argument("--replicates", type=int, default=8)
    parser.add_argument("--epsilon", type=float, default=0.5, help="below log 2 = 0.69")
    parser.add_argument("--out", default="anticipating_privacy.png", help="picture to write")
    given = parser.parse_args(arguments)
    if not 0 < given.epsilon < math.log(2):
        parser.error(f"--epsilon must be in (0, log 2), got {given.epsilon}")
    if given.horizon < 100 or given.replicates < 2:
        parser.error("--horizon must be at least 100 and --replicates at least 2")
    T, epsilon = given.horizon, given.epsilon
    budget = Budget.approx(epsilon, 1.0 / T**2)
    plain = PlainlyPrivate(epsilon)
    entries: list[tuple[str, Agent, Budget | None]] = [
        ("plain DP, demand model given", plain, None),
        ("best fixed price", make_agent("best-fixed-price"), None),
        ("anticipating: private-pricing", make_agent("private-pricing"), budget),
        ("anticipating: one-pass-pricing", make_agent("one-pass-pricing"), budget),
    ]
    at = np.unique(np.linspace(1, T, 101).astype(int))
    curves = {}
    for label, agent, own in entries:
        curves[label] = play(agent, T, range(given.replicates), own, at)
        final, half = curves[label][-1].mean(), curves[label][len(at) // 2].mean()
        promise = "not private"
        if agent.curator.guarantee is not None:
            promise = agent.curator.guarantee.describe(1.0 / T**2)
        print(f"{label}: regret {final:.1f} ({half:.1f} at T / 2)\n    {promise}")
    floor = 3 / 16 * float(np.maximum(*losses()).min())
    print(f"every plainly {epsilon:g}-private policy: at least {plain.regret_per_round * T:.1f}")
    print(f"Proposition 1's own bound: at least {floor * T:.1f}")
    draw(at, curves, plain.regret_per_round, floor, epsilon, given.out)
    print(f"Picture: {given.out}")
    return curves


def draw(
    at: Array, curves: dict[str, Array], slope: float, floor: float, epsilon: float, out: str
) -> None:
    """Draw mean regret by round, with its standard error."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    for label, curve in curves.items():
        mean = curve.mean(axis=1)
        error = curve.std(axis=1, ddof=1) / math.sqrt(curve.shape[1])
        (line,) = axes.plot(at, mean, label=label)
        axes.fill_between(at, mean - error, mean + error, color=line.get_color(), alpha=0.2)
    best = "least regret of plainly private policies"
    axes.plot(at, slope * at, color="black", linestyle="--", linewidth=1, label=best)
    bound = "lower bound of Proposition 1"
    axes.plot(at, floor * at, color="black", linestyle=":", linewidth=1, label=bound)
    axes.set(
        xlabel="customers",
        ylabel="cumulative regret",
        title=f"Two customer types, epsilon = {epsilon:g}: plain and anticipating privacy",
    )
    axes.set_ylim(bottom=0.0)
    axes.legend(frameon=False)
    figure.savefig(out, dpi=130)


if __name__ == "__main__":
    main()
