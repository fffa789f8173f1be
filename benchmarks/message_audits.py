"""Audits of local mechanisms, each on the pair of inputs that is hardest to protect."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dpb_gym.audits import AuditReport, audit_scores
from dpb_gym.feedback.context_mechanisms import GaussianContexts, GaussianStatistics
from dpb_gym.feedback.local_mechanisms import (
    NORMAL,
    GaussianResponse,
    LaplaceResponse,
    RandomizedResponse,
)
from dpb_gym.privacy import Budget
from dpb_gym.validation import FloatArray

Audit = Callable[..., AuditReport]


def message_audits(rho: float = 0.5) -> dict[str, Audit]:
    """Return the audits of all local mechanisms, by name.

    Args:
        rho: zCDP of one message.

    Returns:
        Audits as functions of ``runs`` and ``seed`` (keyword arguments).

    Example:
        >>> message_audits(0.5)["binary randomized response"](runs=500).verdict
        'PASS'
    """
    budget, ends = Budget.zcdp(rho), np.array([0.0, 1.0])
    opposite = np.zeros((2, 3, 2), np.float32)
    opposite[..., 0] = [[-1.0], [1.0]]
    statistics = GaussianStatistics.for_budget(budget, 2)
    # features at the angle that attains the joint sensitivity, both with the largest reward
    pair = np.array([[1.0, 0.0], [-0.5, np.sqrt(0.75)]]), np.full(2, statistics.high)
    audits: dict[str, tuple[Any, ...]] = {
        "binary randomized response": (RandomizedResponse.for_budget(budget), ends),
        "5-ary randomized response": (RandomizedResponse.for_budget(budget, 5), ends),
        "Gaussian response": (GaussianResponse.for_budget(budget), ends),
        "Laplace response": (LaplaceResponse.for_budget(budget), ends),
        "Gaussian contexts (3 vectors)": (GaussianContexts.for_budget(budget, 3, 2), opposite),
        "Gaussian statistics x x', r x": (statistics, *pair),
    }
    return {name: partial(_audit, name, *what) for name, what in audits.items()}


def _audit(
    subject: str, mechanism: Any, *worlds: FloatArray, runs: int = 2000, seed: int = 0
) -> AuditReport:
    """Audit one mechanism; `worlds` are the inputs of `privatise` in both worlds, ``(2, ...)``."""
    normal, scores = mechanism.numbers == NORMAL, []
    for world, stream in enumerate(np.random.SeedSequence(seed).spawn(2)):
        rng, shape = np.random.default_rng(stream), (runs, mechanism.width)
        numbers = rng.standard_normal(shape) if normal else rng.random(shape)
        truth = [np.repeat(part[world : world + 1], runs, axis=0) for part in worlds]
        sent = mechanism.privatise(*truth, numbers)
        scores.append(_ratio(mechanism, sent, worlds))
    return audit_scores(scores[0], scores[1], mechanism.guarantee, subject=subject)


def _ratio(mechanism: Any, sent: Any, worlds: tuple[FloatArray, ...]) -> FloatArray:
    """Return a multiple of the log-likelihood ratio of messages, second world against first."""
    if isinstance(mechanism, RandomizedResponse):
        table = np.log(mechanism.transition())
        return np.asarray(table[1, sent] - table[0, sent])
    if isinstance(mechanism, LaplaceResponse):
        return np.asarray(np.abs(sent) - np.abs(sent - 1.0))
    exact = mechanism.privatise(*worlds, np.zeros((2, mechanism.width)))
    parts = zip(sent, exact) if isinstance(sent, tuple) else [(sent, exact)]
    along = [np.float64(part) * np.diff(ends.astype(np.float64), axis=0) for part, ends in parts]
    return np.asarray(sum(part.reshape(len(part), -1).sum(axis=1) for part in along))
