"""The limit of local messages: regret that no message of a zCDP budget can go below.

Let a customer's data Y have the score u = grad log p(Y) at theta, with covariance S, and let Z be a
message about Y that is rho-zCDP. Its Fisher information I satisfies

    tr(S^-1 I) <= exp(2 rho) - 1.

For the entries of S^(-1/2) u are orthonormal, so by Bessel's inequality the left-hand side is at
most the mean chi-square divergence of the law of Z given Y from its mean over Y. The divergence is
convex in its second argument, thus at most that between two customers. That is at most
exp(D) - 1 for the Renyi divergence D of order 2, and D <= 2 rho.

A round loses e' L e for an error e of theta. After t messages the covariance of e is at least
(t I)^-1. So round t loses at least tr((S^(-1/2) L S^(-1/2))^(1/2))^2 / (t (exp(2 rho) - 1)), and
not more than random choice. Both matrices are taken at the true theta. Score and loss are those of
customers who get the best action. A prior is not used, which an agent may have.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

import dpb_gym
from dpb_gym.suites.suite import load_suite

Array = np.ndarray
RHOS = (0.02, 0.1, 0.5, 1.0)
TASKS = {task.name: task for task in load_suite("dpb-bench-v1").tasks}
INSTANCES, CONTEXTS, STEP = 8, 1_500, 0.05


def root(matrix: Array) -> Array:
    """Return the symmetric root ``(d, d)`` of a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def least_loss(loss: Array, score: Array) -> float:
    """Return the least tr(L J^-1) over information J with tr(S^-1 J) <= 1.

    Args:
        loss: L ``(d, d)``, positive semidefinite.
        score: S ``(d, d)``, positive definite.
    """
    scale = np.linalg.inv(root(score))
    return float(np.trace(root(scale @ loss @ scale)) ** 2)


def quadratic(regret: Callable[[Array], float], dim: int) -> Array:
    """Return L ``(d, d)`` such that e' L e is the regret of a small error e, by differences."""
    axes = STEP * np.eye(dim)

    def both(error: Array) -> float:
        return (regret(error) + regret(-error)) / (2.0 * STEP**2)

    single = [both(axis) for axis in axes]
    loss = np.diag(single)
    for i in range(dim):
        for j in range(i):
            pair = both(axes[i] + axes[j])
            loss[i, j] = loss[j, i] = (pair - single[i] - single[j]) / 2.0
    return loss


def contexts(name: str, seed: int, count: int = CONTEXTS) -> tuple[Array, Array]:
    """Return features of the first `count` customers of an instance of a task, and its theta."""
    task = TASKS[name]
    problem = dpb_gym.make_problem(task.env, horizon=count, **task.env_kwargs)
    instance = problem.instance([seed])
    capacity = problem.info.capacity
    # features do not depend on the action
    action: Any = np.array([0.5]) if capacity is None else np.arange(capacity)[None]
    features = []
    for t in range(count):
        features.append(instance.context().features[0].copy())
        instance.respond(action)
        if t < count - 1:
            instance.advance()
    return np.array(features, dtype=np.float64), np.asarray(instance.hidden["theta"][0], np.float64)


def pricing(seed: int) -> tuple[Array, Array]:
    """Return loss and score ``(d, d)`` of an instance of pricing-standard."""
    x, theta = contexts("pricing-standard", seed)
    zeta, dim = TASKS["pricing-standard"].env_kwargs["zeta"], len(theta)
    grid = np.linspace(0.0, 1.0, 2001)

    def demand(at: Array, prices: Array) -> Array:
        known = (x @ at[:-1])[:, None]
        return np.asarray(1.0 / (1.0 + np.exp(-zeta * (known - prices * at[-1]) / np.sqrt(dim))))

    def best(at: Array) -> Array:
        return np.asarray(grid[(grid * demand(at, grid)).argmax(axis=1)])

    def revenue(price: Array) -> Array:
        return np.asarray(price * demand(theta, price[:, None])[:, 0])

    price = best(theta)
    most = revenue(price)
    loss = quadratic(lambda e: float((most - revenue(best(theta + e))).mean()), dim)
    f = demand(theta, price[:, None])[:, 0]
    phi = np.column_stack([x, -price]) * zeta / np.sqrt(dim)
    return loss, (phi.T * (f * (1.0 - f))) @ phi / len(x)


def assortment(seed: int) -> tuple[Array, Array]:
    """Return loss and score ``(d, d)`` of an instance of assortment-standard, equal revenues."""
    x, theta = contexts("assortment-standard", seed)
    capacity = TASKS["assortment-standard"].env_kwargs["capacity"]

    def best(at: Array) -> Array:
        return np.argsort(-(x @ at), axis=1, kind="stable")[:, :capacity]

    def revenue(slates: Array) -> Array:
        weight = np.exp(np.take_along_axis(x @ theta, slates, 1)).sum(axis=1)
        return np.asarray(weight / (1.0 + weight))

    slates = best(theta)
    most = revenue(slates)
    loss = quadratic(lambda e: float((most - revenue(best(theta + e))).mean()), len(theta))
    shown = np.take_along_axis(x, slates[:, :, None], 1)
    weight = np.exp(shown @ theta)
    chances = weight / (1.0 + weight.sum(axis=1, keepdims=True))
    mean = np.einsum("tk,tkd->td", chances, shown)
    square = np.einsum("tk,tkd,tke->de", chances, shown, shown)
    return loss, (square - mean.T @ mean) / len(x)


CASES = {
    "pricing": ("pricing-standard", pricing),
    "assortment": ("assortment-standard", assortment),
}


@cache
def limits(problem: str) -> tuple[float, ...]:
    """Return the least regret of a task at its horizon, for every budget of `RHOS`.

    Args:
        problem: A name in `CASES`. Instances are averaged, whose seeds are used for nothing else.
    """
    name, matrices = CASES[problem]
    task = TASKS[name]
    loss = np.mean([least_loss(*matrices(3_100_000 + i)) for i in range(INSTANCES)])
    blind = (task.normalisation.oracle - task.normalisation.random) / task.horizon
    rounds = np.arange(1, task.horizon + 1)
    return tuple(float(np.minimum(loss / np.expm1(2 * r) / rounds, blind).sum()) for r in RHOS)
