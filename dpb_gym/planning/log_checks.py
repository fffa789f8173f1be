"""Checks of a model fitted to a log: calibration, other models, prices, customers needed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy.special import chdtrc

from dpb_gym.problems.base import Array
from dpb_gym.problems.kinds import kind_of, log_form
from dpb_gym.problems.price_curve import equal_rows

DOUBT = 0.001
"""A test warns if its p-value is below this: advice runs several tests on each log."""
_MOST_ROWS = 20_000  # that a flexible model is fitted to
_FEW_DIFFERENT = 200  # rows, of which shares are the flexible model: trees would find the same
_FEWEST = 100
_BILLION = 10**9


def model_warnings(problem: Any, data: Any) -> list[str]:
    """Return doubts about the fitted model of a log, each a sentence.

    Args:
        problem: The problem of the log (`dpb_gym.problems.logged.Logged`).
        data: Its table.
    """
    hit = problem.fit.chosen[problem.fit.held_rows]
    doubts = [calibration_doubt(problem.fit.chance, hit), _against_others(problem, hit)]
    doubts += log_form(problem.kind).doubts(problem, data)
    return [text for text in doubts if text]


def calibration_doubt(chance: Array, hit: Array) -> str:
    """Return a warning if frequencies differ from predictions in tenths of the predictions.

    The statistic of Hosmer and Lemeshow (1980) on held-out rows has ten degrees of freedom.

    Args:
        chance: Predicted probabilities of held-out rows ``(n,)``.
        hit: Whether they were chosen ``(n,)``.
    """
    parts = [p for p in np.array_split(np.argsort(chance, kind="stable"), 10) if len(p)]
    expected = np.array([chance[p].sum() for p in parts])
    variance = np.array([(chance[p] * (1.0 - chance[p])).sum() for p in parts])
    seen = np.array([hit[p].sum() for p in parts])
    distance = float(np.sum((seen - expected) ** 2 / np.maximum(variance, 1e-12)))
    if chdtrc(len(parts), distance) >= DOUBT:
        return ""
    k = int(np.argmax((seen - expected) ** 2 / np.maximum(variance, 1e-12)))
    return (
        f"misspecified: where the model predicts {expected[k] / len(parts[k]):.1%}, "
        f"{seen[k] / len(parts[k]):.1%} of {len(parts[k]):,} held-out rows responded"
    )


def _against_others(problem: Any, hit: Array) -> str:
    """Return a warning if a constant or a flexible model predicts held-out rows better.

    `hit` says which of these rows were chosen.
    """
    fit = problem.fit
    if not fit.informed:
        return "the model predicts held-out customers no better than a constant"
    held = fit.held_rows
    first, place = equal_rows(problem.rows)
    if len(first) <= _FEW_DIFFERENT:
        what = "shares of equal rows predict"
        other = _shares(place[~held], fit.chosen[~held], len(first))[place[held]]
        chance = fit.chance
    else:
        try:
            from sklearn.ensemble import HistGradientBoostingClassifier
        except ImportError:
            return (
                "the model was not compared with a flexible one, which needs the extra [data]: "
                "pip install 'dpb-gym[data]'"
            )
        what = "boosted trees predict"
        train = np.flatnonzero(~held)
        train = train[:: -(-len(train) // _MOST_ROWS)]
        model = HistGradientBoostingClassifier(max_iter=100, random_state=0, early_stopping=False)
        model.fit(problem.rows[train], fit.chosen[train])
        step = -(-len(hit) // _MOST_ROWS)
        other = model.predict_proba(problem.rows[held][::step])[:, 1]
        chance = fit.chance[::step]
        hit = hit[::step]
    better = _log_chance(other, hit) - _log_chance(chance, hit)
    error = float(better.std() / np.sqrt(len(better)))
    if better.mean() <= 3.0 * error:
        return ""
    return (
        f"misspecified: {what} held-out rows better, by {better.mean():.3f} "
        f"+- {2 * error:.3f} nats per row: add features, or their products"
    )


def _shares(place: Array, hit: Array, count: int) -> Array:
    """Return the share of chosen rows of each kind ``(count,)``, with one more row of the mean."""
    rows = np.bincount(place, minlength=count)
    hits = np.bincount(place, hit, minlength=count)
    shares: Array = (hits + hit.mean()) / (rows + 1.0)
    return shares


def _log_chance(chance: Array, hit: Array) -> Array:
    log_chance: Array = np.log(np.clip(np.where(hit, chance, 1.0 - chance), 1e-12, 1.0))
    return log_chance


def customers_needed(problem: Any) -> int | None:
    """Return how many random customers suffice to choose better than at random; None above 10^9.

    A policy that is fitted to n customers of this log's variation has coefficients with the
    inverse of n times a customer's information as covariance. The result is the smallest n, up to
    a factor of two, at which 19 of 20 such policies earn more than random choices if the fitted
    coefficients are true.

    Args:
        problem: The problem of the log (`dpb_gym.problems.logged.Logged`).
    """
    # policies of other logs of the same demand: without the other penalties that it may have
    best = max(problem.fit.members, key=lambda one: one.weight)
    fit = replace(problem.fit, members=(best,))
    truth = problem.rounds_under(problem.theta)
    rows = len(fit.held)
    rng = np.random.default_rng(0)
    kind = kind_of(problem.kind)
    shape = (20, len(truth.best[0]), *kind.action_shape(problem.info))
    actions = [kind.random(problem.info, uniforms) for uniforms in rng.random(shape)]
    level = np.mean([truth.respond(action)[1].mean() for action in actions])
    n = _FEWEST
    while n <= _BILLION:
        draws = fit.draws(20, n / rows) / problem.scale
        earned = [
            float(truth.respond(problem.rounds_under(theta).best[0])[1].mean()) for theta in draws
        ]
        if sum(value > level for value in earned) >= 19:
            return n
        n *= 2
    return None
