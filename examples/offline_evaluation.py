"""Evaluate a private recommender offline, on the log of another policy.

A shop has recommended at random and kept what it showed, how likely that was, and the reward.
Private agents learn from the first half of that log, and from the second half we estimate what
each would earn, by inverse propensities and doubly robust, without showing anybody anything. The
log is simulated, so the truth is known and drawn beside the estimates.

The agents' guarantees cover what they learned. The estimates read raw rewards and are not private;
the last one is published with a guarantee of its own, and noise from the operating system (extra
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


def draw(found: dict[str, dpb_gym.offline.OfflineEvaluation], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.0, 3.4), layout="constrained")
    for offset, name, label in ((-0.15, "ips", "IPS"), (0.15, "dr", "doubly robust")):
        estimates = [evaluation[name] for evaluation in found.values()]
        places = [i + offset for i in range(len(found))]
        axes.errorbar(
            [e.value for e in estimates],
            places,
            xerr=[[e.value - e.percentile[0] for e in estimates],
                  [e.percentile[1] - e.value for e in estimates]],
            fmt="o", capsize=3, label=f"{label}, 95% bootstrap",
        )  # fmt: skip
    truth = [evaluation.true_value for evaluation in found.values()]
    axes.plot(truth, range(len(found)), "k|", markersize=20, label="truth")
    axes.axvline(
        next(iter(found.values())).logged_mean, color="grey", ls=":", label="logging policy"
    )
    axes.set_yticks(range(len(found)), list(found))
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

    found = {}
    for name, budget in CANDIDATES:
        agent = train_offline(name, first, budget)
        title = f"{name}, {'non-private' if budget is None else f'eps={budget.epsilon:g}'}"
        found[title] = dpb_gym.evaluate_offline(agent, second, resamples=500)
        print(f"\n{title}\n{found[title]}")
        if budget is not None and budget.epsilon == 1 and name == "one-pass-linear":
            policy = probabilities(agent, second)

    # The log is uniform over five candidates, so no weight exceeds 5.
    released = release_value(second, policy, "eps=0.5,delta=1e-5", clip=5.0)
    print(
        f"\npublished for one-pass-linear, eps=1: {released.value:.4f} +- {released.std_error:.4f}"
    )
    print(f"at a cost of: {released.guarantee}")
    draw(found, options.picture)
    print(f"picture: {options.picture}")


if __name__ == "__main__":
    main()
