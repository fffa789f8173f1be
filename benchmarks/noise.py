"""Write the noise and the true costs on the pages of agents, computed from the agents of today.

``python benchmarks/noise.py`` sets up every agent below and writes the blocks ``<!-- noise NAME
-->`` of its page. A test computes them again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from marked import replaced, table

from dpb_gym import make_agent, make_problem
from dpb_gym.privacy import Ball, Budget, Curator
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.release_schedule import Schedule
from dpb_gym.streams import AgentStreams

DOCS = Path(__file__).parents[1] / "docs"
SLATES = ("DPB/Assortment-v0", {"capacity": 10, "dim": 5, "context_norm": "clip"})
FILMS = ("DPB/Recommendation-v0", {})
PRICES = ("DPB/Pricing-v0", {"dim": 3})
EPSILONS = (0.5, 1, 2, 5)


def made(where: Any, name: str, budget: str, horizon: int = 10_000, **params: Any) -> Any:
    """Return an agent that is set up for one replicate."""
    problem = make_problem(where[0], horizon=horizon, **where[1])
    agent = make_agent(name, **params)
    agent.set_up(problem.info, AgentStreams([0]), Budget.parse(budget))
    return agent


def called(name: str, params: dict[str, Any]) -> str:
    """Return an agent with its parameters as text."""
    return ", ".join([f"`{name}`", *(f'`{key}="{value}"`' for key, value in params.items())])


def short(value: float) -> str:
    """Return three digits, or all digits before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def dpmnl() -> str:
    """Return ridge, noise and true cost of the private multinomial-logit bandits."""
    head = ["agent", "ridge", "MLE noise", "largest Gram noise", "true rho", "true epsilon"]
    rows = [head]
    paper = {"calibration": "paper"}
    for name, params in (
        ("dpmnl", {}),
        ("dpmnl", {"mechanism": "blt"}),
        ("dpmnl", {"calibration": "zcdp"}),
        ("dpmnl", paper),
        ("dpmnl-approx", {}),
        ("dpmnl-approx", {"conversion": "paper"}),
        ("dpmnl-approx", paper),
        ("dpmnl-approx", {**paper, "conversion": "paper"}),
    ):
        agent = made(SLATES, name, "rho=1", explore=500, max_updates=10, **params)
        plan, gram = agent._releasers.estimator.plan, agent._releasers.gram
        spent = agent.curator.guarantee
        values = plan.ridge, plan.sigma, getattr(gram, "_sum", gram).noise_std_max
        cells = *values, spent.rho, spent.epsilon(1e-5)
        rows.append([called(name, params), *map(short, cells)])
    return table(rows)


def rivals() -> str:
    """Return what the rivals in linear recommendation spend of a nominal epsilon of 1."""
    rows = [["agent", "true epsilon at nominal 1"]]
    for name, params in (
        ("jdp-lin-ucb", {"calibration": "paper"}),
        ("coreset-elimination", {}),
        ("coreset-elimination", {"composition": "parallel"}),
        ("batched-aggregation", {}),
        ("batched-aggregation", {"composition": "parallel"}),
    ):
        spent = made(FILMS, name, "eps=1,delta=1e-5", **params).curator.guarantee
        rows.append([called(name, params), short(spent.epsilon(1e-5))])
    return table(rows)


def adaprivate() -> str:
    """Return sigma and the true epsilon of AdaPrivate at nominal ones."""
    rows = [["agent", *(f"epsilon {epsilon:g}: sigma, true" for epsilon in EPSILONS)]]
    for name, params in (
        ("adaprivate-ts", {}),
        ("adaprivate-ts", {"calibration": "paper"}),
        ("adaprivate-amp", {"sampling": 0.3}),
        ("adaprivate-amp", {"calibration": "paper", "sampling": 0.3}),
    ):
        cells = []
        for epsilon in EPSILONS:
            agent = made(FILMS, name, f"eps={epsilon},delta=1e-5", **params)
            spent = agent.curator.guarantee.epsilon(1e-5)
            cells.append(f"{short(agent.plan.sums.sigma)}, {short(spent)}")
        rows.append([called(name, params).replace('"0.3"', "0.3"), *cells])
    return table(rows)


def sampling() -> str:
    """Return the noise of a rescaled sampled sum over that of an unsampled one."""
    budgets = {epsilon: f"eps={epsilon},delta=1e-5" for epsilon in EPSILONS}
    rows = [["q", *(f"epsilon {epsilon:g}: in [0, 1], centred" for epsilon in EPSILONS)]]
    plain = {e: made(FILMS, "adaprivate-ts", b).plan.sums.sigma for e, b in budgets.items()}
    for q in (0.3, 0.5, 0.7, 0.9):
        cells = []
        for epsilon, budget in budgets.items():
            ratios = []
            for centre in (False, True):
                agent = made(FILMS, "adaprivate-amp", budget, sampling=q, centre=centre)
                unsampled = plain[epsilon]
                ratios.append(f"{agent.plan.sums.sigma / q / unsampled:.2f}")
            cells.append(", ".join(ratios))
        rows.append([f"{q:g}", *cells])
    return table(rows)


def pricing() -> str:
    """Return ridge, noise and true epsilon of private-pricing at T = 100,000."""
    head = ["calibration", "nominal epsilon", "ridge", "MLE noise", "node noise", "true epsilon"]
    rows = [head]
    for calibration, epsilon in (
        ("verified", 2),
        ("paper", 2),
        ("paper-curvature", 2),
        ("paper-uncomposed", 0.04),
        ("paper-uncomposed", 1),
    ):
        budget = f"eps={epsilon},delta=2e-10"
        agent = made(PRICES, "private-pricing", budget, 100_000, calibration=calibration)
        plan, gram = agent._releasers.estimator.plan, agent._releasers.gram
        cells = plan.ridge, plan.sigma, gram.sigma, agent.curator.guarantee.epsilon(2e-10)
        rows.append([f"`{calibration}`", f"{epsilon:g}", *map(short, cells)])
    return table(rows)


def combinations() -> str:
    """Return the noise of combined releases, and of a buffered Toeplitz sum of as many steps."""
    rows = [["T", "releases", "largest noise", "noise at T", "`blt`, as many steps"]]
    for horizon in (1_000, 10_000, 100_000, 1_000_000):
        schedule = Schedule.geometric(horizon, 100, 1.1, 1.25)
        std = schedule.best_weights(1.0, 0.0).std
        curator = Curator("rho=0.5", noise=NoiseSource.from_seed(0), horizon=len(std))
        blt = curator.running_sum(1, mechanism="blt", clip=Ball(0.5))
        cells = f"{horizon:,}", f"{len(std)}", *map(short, (std.max(), std[-1], blt.noise_std_max))
        rows.append(list(cells))
    return table(rows)


def on_pages(page: str) -> str:
    """Return a page with every block ``<!-- noise NAME -->`` written again."""
    tables = (dpmnl, rivals, adaprivate, sampling, pricing, combinations)
    made_by = {one.__name__: one for one in tables}
    return replaced(page, "noise", lambda name, _: made_by[name]())


def main() -> None:
    """Write all pages."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    for path in sorted(DOCS.rglob("*.md")):
        if "<!-- noise " in (text := path.read_text(encoding="utf-8")):
            path.write_text(on_pages(text), encoding="utf-8")


if __name__ == "__main__":
    main()
