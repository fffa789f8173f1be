"""Lifetime budgets: regret over ten seasons of three problems, and an audit of one person.

``python benchmarks/lifetime.py regret`` serves customers who return by a heavy-tailed law in ten
seasons of pricing, assortment and recommendation. Each season is a new session whose prior is the
estimate of the last one. It compares

* ``account m``: sessions per user-round that share an account, epsilon 1 per person for life,
  which pays for m records in different sessions,
* ``per round``: the same sessions at epsilon 1 per user-round, without a limit per person,
* ``group``: per user-round at the epsilon that gives the most frequent person epsilon 1 for life,
* ``non-private``: the same sessions without a budget.

``rewards`` is the same with an account per user-rewards and `one-pass-linear`.
``python benchmarks/lifetime.py audit`` exchanges one person in all sessions, adds up the exact
log-likelihood ratios of all releases, and repeats it with a third of the noise.
``python benchmarks/lifetime.py speed`` measures an account of 10^7 people.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import dpb_gym
from dpb_gym import Budget, Prior
from dpb_gym.audits.distinguisher import audit_scores
from dpb_gym.audits.paired_run import play
from dpb_gym.audits.worlds import pairs_for
from dpb_gym.privacy import Account, Composition, Guarantee, SessionCharges
from dpb_gym.privacy.events import ZCDPEvent
from dpb_gym.registry import spec_of
from dpb_gym.suites.spec import AgentRun

SHORT = 48  # rounds of a season in the audit
SEASONS, ROUNDS, PEOPLE, LIFETIME = 10, 1000, 10_000, Budget.approx(1.0, 1e-5)
PROBLEMS = {
    "one-pass-pricing": ("DPB/Pricing-v0", {"dim": 2}),
    "one-pass-mnl": ("DPB/Assortment-v0", {"n_items": 10, "capacity": 3, "dim": 2}),
    "one-pass-linear-joint": ("DPB/Recommendation-v0", {"dim": 2, "n_arms": 20}),
}


def worlds(seed: int) -> dict[str, Any]:
    """Return an instance of every problem over all seasons; each has its own customers."""
    return {
        agent: dpb_gym.make_problem(
            env, horizon=SEASONS * ROUNDS, returning=PEOPLE, **kwargs
        ).instance([3 * seed + k])
        for k, (agent, (env, kwargs)) in enumerate(PROBLEMS.items())
    }


def largest_group(seed: int) -> int:
    """Return the sum over sessions of n^2, n the rounds of the most frequent person."""
    visits: Counter[int] = Counter()
    for k, instance in enumerate(worlds(seed).values()):
        for t in range(SEASONS * ROUNDS):
            visits[3 * (t // ROUNDS) + k] += instance.context().users[0] == 0
            if t < SEASONS * ROUNDS - 1:
                instance.advance()
    return sum(n * n for n in visits.values())


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
    """Return the agent's estimate, which was computed from releases, as a prior."""
    theta = agent.theta[0]
    known = getattr(agent, "covariance", getattr(agent, "_covariance", None))
    d = len(theta) if hasattr(agent, "covariance") else agent.problem.dim
    if known is None or not known[0, :d, :d].any():  # before the first release
        return Prior(theta[:d])
    precision = np.linalg.inv(known[0, :d, :d])
    return Prior(theta[:d], precision=0.5 * (precision + precision.T))


def regret(seed: int, budget: Budget | None, account: Account | None) -> dict[str, float]:
    """Return the regret of ten seasons of every problem."""
    instances = worlds(seed)
    total, priors = dict.fromkeys(PROBLEMS, 0.0), dict.fromkeys(PROBLEMS)
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


def measure_regret(replicates: int, unit: str = "user") -> None:
    """Print the regret of every way to protect people, problem by problem."""
    limit = Account(Path(tempfile.mkdtemp()) / "people", LIFETIME).limit
    print(f"{SEASONS} seasons of {ROUNDS} rounds, {PEOPLE} people")
    variants = {
        **{f"account {parts}": Budget.zcdp(limit / parts) for parts in (1, 2, 3)},
        "per round": Budget.zcdp(limit),
        "group": Budget.zcdp(limit / largest_group(0)),
        "non-private": None,
    }
    for name, budget in variants.items():
        rows = []
        for seed in range(replicates):
            account = None
            if name.startswith("account"):
                account = Account(Path(tempfile.mkdtemp()) / "people", LIFETIME, unit=unit)
            rows.append(list(regret(seed, budget, account).values()))
        mean, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / replicates**0.5
        cells = "  ".join(f"{m:8.1f} +- {e:5.1f}" for m, e in zip(mean, error))
        print(f"{name:12} {cells}  sum {mean.sum():.1f}", flush=True)
        if account is not None:
            print(f"             {account.summary()}")


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


def measure_audit(runs: int) -> None:
    """Audit a person who comes once or twice in each of thirty sessions."""
    account = Account(Path(tempfile.mkdtemp()) / "people", LIFETIME)
    budget, rng = Budget.zcdp(account.limit / 12), np.random.default_rng(0)
    per_round = Guarantee("joint", "user-round", curve=Composition.of(ZCDPEvent(budget.limit)))
    claimed = Guarantee("anticipating", "user", curve=Composition.of(ZCDPEvent(account.limit)))
    factors = (1.0, 1.0 / 3.0)
    scores = {factor: np.zeros(2 * runs) for factor in factors}
    admitted = 0
    for number in range(SEASONS * len(PROBLEMS)):
        charges = SessionCharges(account, per_round, {})
        arrivals = sorted(rng.choice(SHORT // 2, 1 + (rng.random() < 0.2), replace=False) + 1)
        targets = [int(t) for t in arrivals if charges.admit(0)]
        if not targets:
            continue
        admitted += len(targets)
        agent = list(PROBLEMS)[number % len(PROBLEMS)]
        for factor in factors:
            found = exchanged(agent, budget, targets, number, runs=runs, factor=factor)
            scores[factor] += found.scores
        print(f"session {number}, {agent}: rounds {targets}, mu^2 {found.power:.4g}", flush=True)
    print(f"{admitted} records, {account.summary()}")
    for factor, score in scores.items():
        report = audit_scores(
            score[:runs], score[runs:], claimed, subject="one person", confidence=0.95, details={}
        )
        print(f"noise times {factor:.3g}: {report}")


def measure_speed() -> None:
    """Measure an account of 10^7 people: a charge, and a commit every so many charges."""
    path = Path(tempfile.mkdtemp()) / "people"
    account, rng = Account(path, "rho=1"), np.random.default_rng(0)
    for user in (10**7 - 1, *range(0, 10**7, 512)):  # every page of the file
        account.charge(user, 1e-9)
    account.commit()
    for every in (1, 10, 100, 1000, 10_000):
        users = rng.integers(0, 10**7, min(50_000, 300 * every)).tolist()
        start, processor = time.perf_counter(), time.process_time()
        for n, user in enumerate(users, 1):
            account.charge(user, 1e-3)
            if n % every == 0:
                account.commit()
        wall, busy = time.perf_counter() - start, time.process_time() - processor
        print(
            f"a commit every {every} rounds: {1e6 * wall / len(users):.1f} us per round, "
            f"{1e6 * busy / len(users):.1f} us of processor"
        )
    print(f"{path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    if sys.argv[1] == "speed":
        measure_speed()
    elif sys.argv[1] == "audit":
        measure_audit(number)
    elif sys.argv[1] == "rewards":
        PROBLEMS["one-pass-linear"] = PROBLEMS.pop("one-pass-linear-joint")
        measure_regret(number, "user-rewards")
    else:
        measure_regret(number)
