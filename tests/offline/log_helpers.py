"""Small logs for tests of off-policy evaluation, and the formulas in plain Python."""

from __future__ import annotations

import math

import numpy as np

from dpb_gym.envs.registration import make_problem
from dpb_gym.offline import LoggedData, SlateProbabilities, evaluate_offline
from dpb_gym.offline.targets import frozen_choices


def wave(i, k=0.0):
    """Numbers in (0, 1) that need no random generator."""
    return (math.sin(12.9898 * (i + 1) + 78.233 * (k + 1)) * 43758.5453) % 1.0


def small_log(n=40, m=3, d=2):
    """A log with uneven propensities, a target policy and a model, all from `wave`."""
    features = [
        [[2 * wave(i, 10 * k + j) - 1 for j in range(d)] for k in range(m)] for i in range(n)
    ]
    behaviour = [normalised([0.2 + wave(i, 100 + k) for k in range(m)]) for i in range(n)]
    target = [normalised([0.05 + wave(i, 200 + k) ** 3 for k in range(m)]) for i in range(n)]
    q = [[wave(i, 300 + k) for k in range(m)] for i in range(n)]
    actions = [i * 7 % m for i in range(n)]
    rewards = [round(wave(i, 400), 3) for i in range(n)]
    propensities = [behaviour[i][actions[i]] for i in range(n)]
    log = LoggedData.from_arrays(features, actions, propensities, rewards, (0.0, 1.0))
    return log, np.array(target), np.array(q)


def normalised(values):
    total = sum(values)
    return [v / total for v in values]


def by_hand(log, target, q, threshold):
    """The estimators as sums over rounds, one float at a time."""
    n, m = len(log), log.n_candidates
    sums = dict.fromkeys(("logged", "ips", "snips", "dm", "dr", "switch-dr"), 0.0)
    weights = []
    for i in range(n):
        a, r = int(log.actions[i]), float(log.rewards[i])
        w = float(target[i][a]) / float(log.propensities[i])
        model = math.fsum(float(target[i][k]) * float(q[i][k]) for k in range(m))
        weights.append(w)
        sums["logged"] += r
        sums["ips"] += w * r
        sums["dm"] += model
        sums["dr"] += model + w * (r - float(q[i][a]))
        sums["switch-dr"] += model + (w * (r - float(q[i][a])) if w <= threshold else 0.0)
    estimates = {name: total / n for name, total in sums.items()}
    estimates["snips"] = sums["ips"] / math.fsum(weights)
    return estimates, weights


def weights_of(log, target):
    """Return pi(a|x) / p of the logged choices."""
    return np.asarray(target)[np.arange(len(log)), log.actions] / log.propensities


def small_slates(n=30, m=4, K=3):
    """Logged rankings of positions that do not depend on each other, a target and a model Q."""

    def rows(salt):
        return np.array(
            [[normalised([0.1 + wave(i, salt + 10 * k + a) for a in range(m)]) for k in range(K)]
             for i in range(n)]
        )  # fmt: skip

    actions = np.array([[(i * 5 + 3 * k + i // 4) % m for k in range(K)] for i in range(n)])
    conditional = rows(500)
    logged = {
        "features": [[[wave(i, 600 + a)] for a in range(m)] for i in range(n)],
        "actions": actions,
        "rewards": np.array([[round(wave(i, 700 + k), 3) for k in range(K)] for i in range(n)]),
        "behaviour": SlateProbabilities.of_ranking(conditional, actions),
        "conditional": conditional,
    }
    Q = np.array(
        [[[wave(i, 800 + 10 * k + a) for a in range(m)] for k in range(K)] for i in range(n)]
    )
    return logged, SlateProbabilities.of_ranking(rows(900), actions), Q


def small_prices(n=50):
    """Logged prices, a target's, and a model's rewards at the target's prices."""
    logged = {
        "features": [[wave(i, 1), wave(i, 2)] for i in range(n)],
        "prices": np.array([wave(i, 10) for i in range(n)]),
        "densities": np.array([0.5 + wave(i, 11) for i in range(n)]),
        "rewards": np.array([wave(i, 12) for i in range(n)]),
    }
    target = np.array([0.3 + 0.4 * wave(i, 13) for i in range(n)])
    return logged, target, np.array([wave(i, 14) for i in range(n)])


def estimate(name, log, target, **options):
    """One estimate without its interval."""
    return evaluate_offline(target, log, estimators=name, resamples=0, **options)[name].value


def simulated_value(agent, problem, rounds, seeds, skip, samples=1, **kwargs):
    """The true value of a frozen agent in further rounds, and its standard error, ``(B,)``."""
    if isinstance(problem, str):
        problem = make_problem(problem, horizon=rounds + skip, **kwargs)
    instance, ask = problem.instance(seeds), frozen_choices(agent, len(seeds), samples)
    values = []
    for i in range(skip + rounds):
        if i:
            instance.advance()
        if i >= skip:
            given = ask(instance.context())
            values.append(np.mean([instance.respond(one).expected for one in given], axis=0))
    return np.mean(values, axis=0), np.std(values, axis=0, ddof=1) / np.sqrt(rounds)
