"""Lifetime budgets: regret over ten seasons of three problems, and an audit of one person.

``python benchmarks/lifetime.py regret rewards audit`` measures all parts, or some, stores
them in docs/results/lifetime.json and writes the blocks of docs/account.md. Without parts the page
is written from what is stored. A test compares the page with what is stored, and the digests of
the agents with the code of today. rekey.py writes the digests again.

``regret`` serves customers who return by a heavy-tailed law in ten
seasons of pricing, assortment and recommendation. Each season is a new session whose prior is the
estimate of the last one. It compares

* ``account m``: sessions per user-round that share an account, epsilon 1 per person for life,
  which pays for m records in different sessions,
* ``per round``: the same sessions at epsilon 1 per user-round, without a limit per person,
* ``group``: per user-round at the epsilon that gives the most frequent person epsilon 1 for life,
* ``non-private``: the same sessions without a budget.

``rewards`` is the same with an account per user-rewards and `one-pass-linear`.
``audit`` exchanges one person in all sessions, adds up the exact log-likelihood ratios of all
releases, and repeats it with a third of the noise. benchmarks/account.py measures the speed.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from marked import replaced
from paper_pages import code

import dpb_gym
from dpb_gym import Budget, Prior
from dpb_gym.audits.distinguisher import audit_scores
from dpb_gym.audits.paired_run import play
from dpb_gym.audits.worlds import pairs_for
from dpb_gym.privacy import Account, Composition, Guarantee, SessionCharges
from dpb_gym.privacy.events import ZCDPEvent
from dpb_gym.registry import spec_of
from dpb_gym.suites.spec import AgentRun

REPOSITORY = Path(__file__).parents[1]
STORED, PAGE = REPOSITORY / "docs/results/lifetime.json", REPOSITORY / "docs/account.md"
SHORT = 48  # rounds of a season in the audit
SEASONS, ROUNDS, PEOPLE, LIFETIME = 10, 1000, 10_000, Budget.approx(1.0, 1e-5)
PROBLEMS = {
    "one-pass-pricing": ("DPB/Pricing-v0", {"dim": 2}),
    "one-pass-mnl": ("DPB/Assortment-v0", {"n_items": 10, "capacity": 3, "dim": 2}),
    "one-pass-linear-joint": ("DPB/Recommendation-v0", {"dim": 2, "n_arms": 20}),
}
REWARDS = {name.removesuffix("-joint"): problem for name, problem in PROBLEMS.items()}
LABELS = {
    "account 1": "account, one record per person",
    "account 2": "account, two records in different sessions",
    "account 3": "account, three records in different sessions",
    "per round": "per round, epsilon 1 per session",
    "group": "per round, epsilon 1 per person for life",
    "non-private": "non-private",
}


def worlds(seed: int, problems: dict[str, Any] = PROBLEMS) -> dict[str, Any]:
    """Return an instance of every problem over all seasons; each has its own customers."""
    return {
        agent: dpb_gym.make_problem(
            env, horizon=SEASONS * ROUNDS, returning=PEOPLE, **kwargs
        ).instance([3 * seed + k])
        for k, (agent, (env, kwargs)) in enumerate(problems.items())
    }


def groups(seed: int) -> np.ndarray:
    """Return everybody's rounds in every session ``(sessions, people)``."""
    visits = np.zeros((len(PROBLEMS) * SEASONS, PEOPLE), int)
    for k, instance in enumerate(worlds(seed).values()):
        for t in range(SEASONS * ROUNDS):
            visits[3 * (t // ROUNDS) + k, instance.context().users[0]] += 1
            if t < SEASONS * ROUNDS - 1:
                instance.advance()
    return visits


def season(agent: str, instance: Any, budget: Any, prior: Any, account: Any, seed: int) -> Any:
    info = replace(instance.problem.info, horizon=ROUNDS, prior=prior)
    return dpb_gym.serve(agent, budget, info, noise="seeded", seed=seed, account=account)


def serve(instance: Any, session: Any) -> float:
    """Serve the customer of the current round; return the regret."""
    context = instance.context()
    revenues = None if context.revenues is None else context.revenues[0]
    arms = None if context.arms is None else context.arms[0]
    number, action = session.decide(
        context.features[0], revenues=revenues, arms=arms, user=int(context.users[0])
    )
    if session.problem.kind == "assortment":
        action = action + [-1] * (session.problem.capacity - len(action))
    outcome = instance.respond(np.array([action]))
    feedback = outcome.feedback
    if session.problem.kind == "assortment":
        session.observe(number, None if feedback.choice[0] < 0 else action[feedback.choice[0]])
    else:
        told = feedback.reward if feedback.demand is None else feedback.demand
        session.observe(number, told[0])
    return float(outcome.regret[0])


def estimate(agent: Any) -> Prior:
    """Return the agent's estimate, which was computed from releases, as a prior of its features."""
    state, d = agent.state, agent.problem.dim
    theta = state.theta[0]
    if hasattr(state, "covariance"):  # of slopes and level, both of which a prior has
        V = state.covariance[0][: len(theta), : len(theta)]
    elif hasattr(state, "V"):  # a constant comes before the features
        theta = theta[-d:]
        V = state.V[0][-d:, -d:]
    else:
        return Prior(theta[:d])
    if not V.any():  # before the first release
        return Prior(theta)
    precision = np.linalg.inv(V)
    return Prior(theta, precision=0.5 * (precision + precision.T))


def regret(
    seed: int, budget: Budget | None, account: Account | None, problems: dict[str, Any]
) -> dict[str, float]:
    """Return the regret of ten seasons of every problem."""
    instances = worlds(seed, problems)
    total, priors = dict.fromkeys(problems, 0.0), dict.fromkeys(problems)
    for s in range(SEASONS):
        sessions = {
            agent: season(agent, instance, budget, priors[agent], account, 100 * seed + s)
            for agent, instance in instances.items()
        }
        for t in range(ROUNDS):
            for agent, instance in instances.items():
                total[agent] += serve(instance, sessions[agent])
                if (s, t) != (SEASONS - 1, ROUNDS - 1):
                    instance.advance()
        priors = {agent: estimate(session.agent) for agent, session in sessions.items()}
    return total


def measure_regret(replicates: int, unit: str = "user") -> dict[str, Any]:
    """Return the regret of every way to protect people, by problem and replicate."""
    problems = PROBLEMS if unit == "user" else REWARDS
    limit = Account(Path(tempfile.mkdtemp()) / "people", LIFETIME).limit
    visits = groups(0)
    squares = np.sort((visits**2).sum(0))[-int((visits.sum(0) > 0).sum()) :]
    variants = {
        **{f"account {parts}": Budget.zcdp(limit / parts) for parts in (1, 2, 3)},
        "per round": Budget.zcdp(limit),
        "group": Budget.zcdp(limit / float(squares[-1])),
        "non-private": None,
    }
    regrets: dict[str, dict[str, list[float]]] = {}
    for name, budget in variants.items():
        if unit == "user" or name in ("account 1", "account 2", "account 3", "per round"):
            regrets[name] = {agent: [] for agent in problems}
            for seed in range(replicates):
                account = None
                if name.startswith("account"):
                    account = Account(Path(tempfile.mkdtemp()) / "people", LIFETIME, unit=unit)
                for agent, value in regret(seed, budget, account, problems).items():
                    regrets[name][agent].append(float(f"{value:.5g}"))
            print(name, regrets[name], flush=True)

    def epsilon(square: float) -> float:
        event = ZCDPEvent(limit * square)
        guarantee = Guarantee("joint", "user-round", curve=Composition.of(event))
        return float(guarantee.epsilon(LIFETIME.delta))

    people = {
        "come": len(squares),
        "largest_share": float(visits.sum(0).max() / visits.sum()),
        "median_epsilon": epsilon(float(np.median(squares))),
        "largest_epsilon": epsilon(float(squares[-1])),
    }
    return {"people": people, "regret": regrets}


def exchanged(agent: str, budget: Budget, targets: list[int], seed: int, **how: Any) -> Any:
    """Play a session with one person exchanged; return its pair of worlds and all scores."""
    env, kwargs = PROBLEMS[agent]
    problem = dpb_gym.make_problem(env, horizon=SHORT, **kwargs)
    # an early first release, which small budgets would delay beyond so short a season
    spec = spec_of(agent, problem.kind).over({"first": 0.003})
    run = AgentRun(spec=spec, budget=budget)
    pairs = pairs_for(problem.info, "user-round")
    power = [play(run, problem, pair, targets, seed=seed).power for pair in pairs]
    pair = pairs[int(np.argmax(power))]
    return play(run, problem, pair, targets, seed=seed, part=1, **how)


def measure_audit(runs: int = 2000) -> dict[str, Any]:
    """Return an audit of a person who comes once or twice in each of thirty sessions."""
    account = Account(Path(tempfile.mkdtemp()) / "people", LIFETIME)
    budget, rng = Budget.zcdp(account.limit / 12), np.random.default_rng(0)
    per_round = Guarantee("joint", "user-round", curve=Composition.of(ZCDPEvent(budget.limit)))
    claimed = Guarantee("anticipating", "user", curve=Composition.of(ZCDPEvent(account.limit)))
    scores = {factor: np.zeros(2 * runs) for factor in (1.0, 1.0 / 3.0)}
    admitted, sessions = 0, 0
    for number in range(SEASONS * len(PROBLEMS)):
        charges = SessionCharges(account, per_round)
        arrivals = sorted(rng.choice(SHORT // 2, 1 + (rng.random() < 0.2), replace=False) + 1)
        targets = [int(t) for t in arrivals if charges.admit(0)]
        admitted, sessions = admitted + len(targets), sessions + bool(targets)
        agent = list(PROBLEMS)[number % len(PROBLEMS)]
        for factor in scores if targets else ():
            scores[factor] += exchanged(
                agent, budget, targets, number, runs=runs, factor=factor
            ).scores
    reports = [
        audit_scores(score[:runs], score[runs:], claimed, subject="one person", details={})
        for score in scores.values()
    ]
    return {
        "admitted": admitted,
        "sessions": sessions,
        "claimed": account.limit,
        "shown": [
            next(bound.bound for bound in report.comparisons if bound.quantity == "rho")
            for report in reports
        ],
        "verdicts": [report.verdict for report in reports],
    }


def regret_table(regrets: dict[str, dict[str, list[float]]]) -> str:
    """Return a table of mean regrets with standard errors, a row per way to protect people."""
    lines = ["| | pricing | assortment | recommendation | sum |", "|---" * 5 + "|"]
    for name, agents in regrets.items():
        values = np.array([*agents.values(), np.sum(list(agents.values()), axis=0)])
        errors = values.std(1, ddof=1) / values.shape[1] ** 0.5
        cells = [
            f"{mean:,.{0 if mean >= 100 else 1}f} ± {error:,.{0 if mean >= 100 else 1}f}"
            for mean, error in zip(values.mean(1), errors)
        ]
        lines.append(f"| {' | '.join([LABELS[name], *cells])} |")
    return "\n".join(lines)


def ratios(regrets: dict[str, dict[str, list[float]]], to: str) -> str:
    """Return the regrets of the accounts with one to three records over that of another way."""
    sums = {name: float(np.sum(list(agents.values()))) for name, agents in regrets.items()}
    return ", ".join(f"{sums[f'account {parts}'] / sums[to]:.2g}" for parts in (1, 2, 3))


def blocks(data: dict[str, Any]) -> dict[str, str]:
    """Return the text of every block of the page."""
    user, rewards, audit = (data[part] for part in ("regret", "rewards", "audit"))
    people, first = user["people"], next(iter(user["regret"]["per round"].values()))
    return {
        "regret": "\n".join(
            [
                f"Of {PEOPLE:,} people {people['come']:,} come. The most frequent one has "
                f"{people['largest_share']:.1%} of the rounds. Standard errors are over "
                f"{len(first)} replicates.",
                "",
                regret_table(user["regret"]),
                "",
                '"Per round, epsilon 1 per session" limits no person: the median person has an '
                f"epsilon of {people['median_epsilon']:.2g}, and the most frequent one of "
                f"{people['largest_epsilon']:,.0f}. The account with one, two and three records "
                f"has {ratios(user['regret'], 'per round')} times its regret. The account has "
                f"{ratios(user['regret'], 'group')} times the regret of noise alone that gives "
                "every person epsilon 1 for life.",
            ]
        ),
        "rewards": "\n".join(
            [
                regret_table(rewards["regret"]),
                "",
                f"The account has {ratios(rewards['regret'], 'per round')} times the regret of "
                '"per round" with one, two and three records.',
            ]
        ),
        "audit": (
            f"The account admits {audit['admitted']} records in {audit['sessions']} sessions. The "
            "exact log-likelihood ratios of all releases together show a rho of "
            f"{audit['shown'][0]:.2g} of the claimed {audit['claimed']:.3g} "
            f"({audit['verdicts'][0]}). With a third of the noise they show "
            f"{audit['shown'][1]:.2g} ({audit['verdicts'][1]})."
        ),
    }


def on_page(page: str, data: dict[str, Any]) -> str:
    """Return the page with every block ``<!-- lifetime PART -->`` written again."""
    return replaced(page, "lifetime", lambda part, _: blocks(data)[part])


def main() -> None:
    """Measure what is asked for, and write the page from what is stored."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("parts", nargs="*", help="regret, rewards, audit")
    parser.add_argument("--replicates", type=int, default=4)
    options = parser.parse_args()
    data = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {}
    measures = {
        "regret": lambda: measure_regret(options.replicates),
        "rewards": lambda: measure_regret(options.replicates, "user-rewards"),
        "audit": measure_audit,
    }
    for part in options.parts:
        data[part] = measures[part]()
        agents = REWARDS if part == "rewards" else PROBLEMS
        data[part]["agents"] = {name: code(name) for name in agents}
        STORED.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    PAGE.write_text(on_page(PAGE.read_text("utf-8"), data), encoding="utf-8")


if __name__ == "__main__":
    main()
