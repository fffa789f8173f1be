"""One audit per local mechanism, on the two answers that are hardest to tell apart privately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dpb_gym.feedback.features import GaussianContexts, GaussianStatistics
from dpb_gym.feedback.mechanisms import (
    NORMAL,
    FloatArray,
    GaussianResponse,
    LaplaceResponse,
    LocalMechanism,
    RandomizedResponse,
)
from dpb_gym.privacy import Budget
from dpb_gym.privacy.audit import AuditReport, audit_scores

Audit = Callable[..., AuditReport]
Messages = Callable[[FloatArray, int], FloatArray]


def message_audits(rho: float = 0.5, categories: int = 5) -> dict[str, Audit]:
    """Audits of every local mechanism, by name.

    Args:
        rho: zCDP of one message.
        categories: Categories of the k-ary randomized response.

    Returns:
        Functions of ``runs`` and ``seed`` (both keyword arguments) that audit.

    Example:
        >>> message_audits(0.5)["binary randomized response"](runs=500).verdict
        'PASS'
    """
    budget = Budget.zcdp(rho)
    audits = {
        "binary randomized response": _response(RandomizedResponse.for_budget(budget), 0, 1),
        f"{categories}-ary randomized response": _response(
            RandomizedResponse.for_budget(budget, categories), 0, 1
        ),
        "Gaussian response": _response(GaussianResponse.for_budget(budget), 0.0, 1.0),
        "Laplace response": _response(LaplaceResponse.for_budget(budget), 0.0, 1.0),
        "Gaussian contexts (3 vectors)": _contexts(GaussianContexts.for_budget(budget, 3, 2)),
        "Gaussian statistics x x', r x": _statistics(GaussianStatistics.for_budget(budget, 2)),
    }
    return {name: _named(name, audit) for name, audit in audits.items()}


def _named(name: str, audit: Audit) -> Audit:
    def run(*, runs: int = 2000, seed: int = 0) -> AuditReport:
        return audit(runs=runs, seed=seed, subject=name)

    return run


def _audit(mechanism: LocalMechanism, score: Messages) -> Audit:
    """``score(numbers, world)``: log-likelihood ratio of the messages in that world."""

    def run(*, runs: int, seed: int, **named: Any) -> AuditReport:
        streams = np.random.SeedSequence(seed).spawn(2)
        scores = []
        for world, stream in enumerate(streams):
            rng = np.random.default_rng(stream)
            shape = (runs, mechanism.width)
            normal = mechanism.numbers == NORMAL
            numbers = rng.standard_normal(shape) if normal else rng.random(shape)
            scores.append(score(numbers, world))
        return audit_scores(scores[0], scores[1], mechanism.guarantee, **named)

    return run


def _response(
    mechanism: RandomizedResponse | GaussianResponse | LaplaceResponse, low: float, high: float
) -> Audit:
    def score(numbers: FloatArray, world: int) -> FloatArray:
        sent = mechanism.privatise(np.full(len(numbers), (low, high)[world]), numbers)
        if isinstance(mechanism, RandomizedResponse):
            table = np.log(mechanism.transition())
            ratio: FloatArray = table[int(high), sent] - table[int(low), sent]
            return ratio
        if isinstance(mechanism, LaplaceResponse):
            return np.asarray(np.abs(sent - low) - np.abs(sent - high), dtype=np.float64)
        return np.asarray(sent, dtype=np.float64)

    return _audit(mechanism, score)


def _contexts(mechanism: GaussianContexts) -> Audit:
    truth = np.zeros((mechanism.vectors, mechanism.dim), np.float32)
    truth[:, 0] = 1.0

    def score(numbers: FloatArray, world: int) -> FloatArray:
        features = np.repeat(((2 * world - 1) * truth)[None], len(numbers), axis=0)
        sent = mechanism.privatise(features, numbers).astype(np.float64)
        ratio: FloatArray = (sent * truth).sum(axis=(1, 2))
        return ratio

    return _audit(mechanism, score)


def _statistics(mechanism: GaussianStatistics) -> Audit:
    pair = np.array([[1.0, 0.0], [-0.5, np.sqrt(0.75)]])
    grams = pair[:, :, None] * pair[:, None, :]
    reward = mechanism.high

    def score(numbers: FloatArray, world: int) -> FloatArray:
        runs = len(numbers)
        x = np.repeat(pair[world : world + 1], runs, axis=0)
        gram, response = mechanism.privatise(x, np.full(runs, reward), numbers)
        ratio: FloatArray = (gram * (grams[1] - grams[0])).sum(axis=(1, 2))
        ratio += reward * (response * (pair[1] - pair[0])).sum(axis=1)
        return ratio

    return _audit(mechanism, score)
