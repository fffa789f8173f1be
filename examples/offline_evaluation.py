"""Evaluate a private recommender offline, on the log of another policy.

The log has random recommendations with their probabilities and rewards. Private agents learn from
the first half of the log. The second half gives estimates of each agent's value, by inverse
propensities and doubly robust. The log is simulated, so the picture also shows the true values.

The agents' guarantees cover what they learned. The estimates use raw rewards and are not private.
The last one is released with its own guarantee and noise from the operating system (extra
[secure]).

    python examples/offline_evaluation.py
"""

from __future__ import annotations

import argparse
from pathlib import Path

import dpb_gym
from dpb_gym.offline import LoggedData, probabilities, release_value, train_offline

ENVIRONMENT = "DPB/Recommendation-v0"
CANDIDATES = [
    ("lin-greedy", None),
    ("one-pass-linear", dpb_gym.Budget.approx(5, 1e-5)),
    ("one-pass-linear", dpb_gym.Budget.approx(1, 1e-5)),
    ("adaprivate-ucb", dpb_gym.Budget.approx(5, 1e-5)),
    ("adaprivate-ucb", dpb_gym.Budget.approx(1, 1e-5)),
]


def draw(evaluations: dict[str, dpb_gym.offline.OfflineEvaluation], path: Path) -> None:
    """Draw estimates and true values."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.0, 3.4), layout="constrained")
    for offset, name, label in ((-0.15, "ips", "IPS"), (0.15, "dr", "doubly robust")):
        estimates = [evaluation[name] for evaluation in evaluations.values()]
        positions = [i + offset for i in range(len(evaluations))]
        axes.errorbar(
            [e.value for e in estimates],
            positions,
            xerr=[[e.value - e.percentile[0] for e in estimates],
                  [e.percentile[1] - e.value for e in estimates]],
            fmt="o", capsize=3, label=f"{label}, 95% bootstrap",
        )  # fmt: skip
    truth = [evaluation.true_value for evaluation in evaluations.values()]
    axes.plot(truth, range(len(evaluations)), "k|", markersize=20, label="true value")
    axes.axvline(
        next(iter(evaluations.values())).logged_mean, color="grey", ls=":", label="logging policy"
    )
    axes.set_yticks(range(len(evaluations)), list(evaluations))
    axes.invert_yaxis()
    axes.set_xlabel("mean reward")
    figure.legend(loc="outside upper center", ncols=4, fontsize=8)
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=8000, help="rounds in each half of the log")
    parser.add_argument("--picture", type=Path, default=Path("offline_evaluation.png"))
    options = parser.parse_args()
    log = LoggedData.from_problem(ENVIRONMENT, 2 * options.rounds, seed=7)
    first, second = log.select(slice(0, options.rounds)), log.select(slice(options.rounds, None))
    print(log)

    evaluations = {}
    for name, budget in CANDIDATES:
        agent = train_offline(name, first, budget)
        title = f"{name}, {'non-private' if budget is None else f'eps={budget.epsilon:g}'}"
        evaluations[title] = dpb_gym.evaluate_offline(agent, second, resamples=500)
        print(f"\n{title}\n{evaluations[title]}")
        if budget is not None and budget.epsilon == 1 and name == "one-pass-linear":
            policy = probabilities(agent, second)

    # The log is uniform over five candidates, so no weight exceeds 5.
    released = release_value(second, policy, "eps=0.5,delta=1e-5", clip=5.0)
    value, error = released.value, released.std_error
    print(f"\nprivate estimate for one-pass-linear, eps=1: {value:.4f} +- {error:.4f}")
    print(f"guarantee of the estimate: {released.guarantee}")
    draw(evaluations, options.picture)
    print(f"picture: {options.picture}")


if __name__ == "__main__":
    main()
