"""Adversarial record pairs: none moves a release by more than its stated sensitivity.

Each case searches raw records far outside the declared bounds, gradient-free, starting from
random pairs and from the known extremal ones, and must attain 95% where the bound is tight.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from curated import batch, running
from privacy_oracles import factors, logistic_loss, mnl_loss
from scipy.optimize import minimize

from dpb_gym.privacy import Ball, BatchSum, PSDBall, Segment

Map = Callable[[np.ndarray], np.ndarray]


def search(distance: Callable[[np.ndarray], float], starts: list[np.ndarray], draws: int) -> float:
    """Largest distance found by random draws, the given starts, and Nelder-Mead from the best."""
    rng = np.random.default_rng(11)
    size = starts[0].size
    scales = 10.0 ** rng.uniform(-1, 2, size=(draws, 1))
    points = list(starts) + list(scales * rng.normal(size=(draws, size)))
    values = [distance(point) for point in points]
    best = max(values)
    for index in np.argsort(values)[-3:]:
        optimum = minimize(
            lambda p: -distance(p),
            points[index],
            method="Nelder-Mead",
            options={"maxfev": 600, "adaptive": True},
        )
        best = max(best, -float(optimum.fun))
    return best


def batch_sum(clip: object, **kwargs: int) -> BatchSum:
    return batch(clip=clip, sigma=1e-200, replicates=1, **kwargs)


def test_ball() -> None:
    releaser = batch_sum(Ball(0.8), width=3)

    def distance(pair: np.ndarray) -> float:
        out = []
        for half in (pair[:3], pair[3:]):
            releaser.add(half[None])
            out.append(releaser.release()[0])
        return float(np.linalg.norm(out[0] - out[1]))

    best = search(distance, [np.array([1.0, 0, 0, -1.0, 0, 0])], 300)
    assert 0.95 * releaser.sensitivity <= best <= releaser.sensitivity * (1 + 1e-9)


def test_segment() -> None:
    """Neighbours differ in the value only; the direction is public."""
    releaser = batch_sum(Segment(-0.5, 0.5), width=3)

    def distance(point: np.ndarray) -> float:
        out = []
        for value in point[:2]:
            releaser.add([value], point[None, 2:])
            out.append(releaser.release()[0])
        return float(np.linalg.norm(out[0] - out[1]))

    best = search(distance, [np.array([1.0, -1.0, 3.0, 0.0, 0.0])], 300)
    assert 0.95 * releaser.sensitivity <= best <= releaser.sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("items", [1, 3])
def test_gram_matrices_of_slates(items: int) -> None:
    """K items in the unit ball: sqrt(2) K, not sqrt(2 K) (erratum A1)."""
    d = 3
    releaser = batch_sum(PSDBall(float(items)), symmetric=d)

    def gram(flat: np.ndarray) -> np.ndarray:
        x = flat.reshape(items, d)
        x = x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
        releaser.add((x.T @ x)[None])
        return releaser.release()[0]

    def distance(pair: np.ndarray) -> float:
        half = items * d
        return float(np.linalg.norm(gram(pair[:half]) - gram(pair[half:])))

    copies = np.concatenate([np.tile([1.0, 0, 0], items), np.tile([0, 1.0, 0], items)])
    best = search(distance, [copies], 200)
    assert releaser.sensitivity == pytest.approx(math.sqrt(2) * items)
    assert 0.95 * releaser.sensitivity <= best <= releaser.sensitivity * (1 + 1e-9)
    if items > 1:
        assert best > 1.2 * math.sqrt(2 * items)


def test_semidefinite_matrices_beyond_the_radius() -> None:
    releaser = batch_sum(PSDBall(1.0), symmetric=3)

    def one(flat: np.ndarray) -> np.ndarray:
        root = flat.reshape(3, 3)
        releaser.add((root @ root.T)[None])
        return releaser.release()[0]

    def distance(pair: np.ndarray) -> float:
        return float(np.linalg.norm(one(pair[:9]) - one(pair[9:])))

    extremal = np.zeros(18)
    extremal[0] = extremal[13] = 5.0
    best = search(distance, [extremal], 200)
    assert 0.95 * releaser.sensitivity <= best <= releaser.sensitivity * (1 + 1e-9)


@pytest.mark.parametrize("name", ["binary-tree", "blt", "sqrt-toeplitz"])
def test_whole_stream(name: str) -> None:
    """Distance of the release sequences, in units of their noise, for every round and pair."""
    horizon, dim, radius = 32, 2, 0.7
    weights, _ = factors(name, horizon)
    inverse = np.linalg.inv(weights @ weights.T)

    def releases(record: np.ndarray, t: int) -> np.ndarray:
        releaser = running(name, horizon, width=dim, clip=radius, sigma=1e-200)
        out = []
        for step in range(horizon):
            releaser.add([record if step == t else np.zeros(dim)])
            out.append(releaser.value[0])
        stated.append(releaser.gain * releaser.sensitivity)
        return np.array(out)

    stated: list[float] = []
    best = 0.0
    for t in range(horizon):
        for record in (np.array([50.0, 0.0]), np.array([0.3, -0.6])):
            gap = releases(record, t) - releases(-record, t)
            best = max(best, math.sqrt(float(np.einsum("tw,ts,sw->", gap, inverse, gap))))
    assert 0.95 * stated[0] <= best <= stated[0] * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mnl", "logistic"])
def test_gradients_and_hessians_of_the_losses(kind: str) -> None:
    """L and beta of the objective perturbation: none above, gradients attain 95%."""
    d, items, zeta = 2, 3, 1.7
    loss = mnl_loss if kind == "mnl" else logistic_loss
    bound, trace = (2.0, 1.0) if kind == "mnl" else (zeta, zeta**2 / 4)
    size = items * d if kind == "mnl" else d

    def evaluate(point: np.ndarray, outcome: int) -> tuple[np.ndarray, np.ndarray]:
        theta, raw = point[:d], point[d : d + size]
        x = raw.reshape(-1, d)
        x = x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
        _, gradient, hessian = loss(theta, [(x, outcome)], zeta)
        return gradient, hessian

    outcomes = range(-1, items) if kind == "mnl" else range(2)
    for a in outcomes:
        for b in outcomes:

            def distance(point: np.ndarray, a: int = a, b: int = b) -> float:
                first = evaluate(point[: d + size], a)[0]
                second = evaluate(np.concatenate([point[:d], point[d + size :]]), b)[0]
                return float(np.linalg.norm(first - second))

            start = np.zeros(d + 2 * size)
            start[0] = 80.0
            start[d::d] = 1.0
            start[d + size :: d] = -1.0 if kind == "logistic" else 1.0
            if kind == "mnl" and a >= 0:
                start[d + a * d] = -1.0
            best = search(distance, [start], 100)
            assert best <= 2 * bound * (1 + 1e-9)
    starts = [np.concatenate([[80.0, 0.0], np.tile([1.0, 0.0], size // d)])]
    if kind == "mnl":
        starts[0][d] = -1.0
    largest = search(lambda p: float(np.linalg.norm(evaluate(p, 0)[0])), starts, 200)
    assert 0.95 * bound <= largest <= bound * (1 + 1e-9)
    flat = [
        np.concatenate([[0.0, 0.0], np.array([[1.0, 0.0], [-1.0, 0.0], [0, 1.0]]).ravel()[:size]])
    ]
    steepest = search(lambda p: float(np.trace(evaluate(p, 0)[1])), flat, 200)
    assert steepest <= trace * (1 + 1e-9)
    if kind == "logistic":
        assert steepest >= 0.95 * trace
