"""Independent reference implementations for the tests of this folder."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular, toeplitz
from scipy.special import expit

from dpb_gym.privacy.releasers.correlated_noise import blt_parameters, square_root_coefficients


def lower(first_column: np.ndarray) -> np.ndarray:
    return np.tril(toeplitz(first_column))


def running_sum(steps: int) -> np.ndarray:
    return np.tril(np.ones((steps, steps)))


def blt_arrays(steps: int) -> tuple[np.ndarray, np.ndarray]:
    theta, omega = blt_parameters(steps)
    return np.array(theta), np.array(omega)


def factors(name: str, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Matrices (noise, strategy) with noise @ strategy = running sum, written out."""
    sums = running_sum(steps)
    if name == "binary-tree":
        levels = steps.bit_length()
        nodes = [(level, i) for level in range(levels) for i in range(steps >> level)]
        strategy = np.zeros((len(nodes), steps))
        for row, (level, i) in enumerate(nodes):
            strategy[row, i << level : (i + 1) << level] = 1.0
        noise = np.zeros((steps, len(nodes)))
        for t in range(1, steps + 1):
            start = 0
            for level in reversed(range(levels)):
                if t >> level & 1:
                    noise[t - 1, nodes.index((level, start >> level))] = 1.0
                    start += 1 << level
        return noise, strategy
    if name == "blt":
        strategy = lower(blt_coefficients(*blt_arrays(steps), steps))
    else:
        strategy = lower(square_root_coefficients(steps))
    noise = solve_triangular(strategy.T, sums.T, lower=False).T
    return noise, strategy


def mnl_loss(
    theta: np.ndarray, records: list[tuple[np.ndarray, int]], zeta: float = 1.0
) -> tuple[float, np.ndarray, np.ndarray]:
    """Negative log-likelihood of multinomial logit with an outside option.

    A record is (contexts (K, d), chosen item or -1); returns value, gradient, Hessian, summed.
    """
    d = theta.size
    value, gradient, hessian = 0.0, np.zeros(d), np.zeros((d, d))
    for x, choice in records:
        z = x @ theta
        top = max(0.0, float(z.max()))
        weights = np.exp(z - top)
        total = np.exp(-top) + weights.sum()
        p = weights / total
        mean = p @ x
        value += top + np.log(total) - (z[choice] if choice >= 0 else 0.0)
        gradient = gradient + mean - (x[choice] if choice >= 0 else 0.0)
        hessian = hessian + (x * p[:, None]).T @ x - np.outer(mean, mean)
    return value, gradient, hessian


def logistic_loss(
    theta: np.ndarray, records: list[tuple[np.ndarray, int]], zeta: float = 1.0
) -> tuple[float, np.ndarray, np.ndarray]:
    """Negative log-likelihood of y ~ Bernoulli(sigmoid(zeta x.theta)); records (x, y)."""
    d = theta.size
    value, gradient, hessian = 0.0, np.zeros(d), np.zeros((d, d))
    for x, y in records:
        x = x.reshape(d)
        z = zeta * float(x @ theta)
        f = float(expit(z))
        value += np.logaddexp(0.0, z) - y * z
        gradient = gradient + zeta * (f - y) * x
        hessian = hessian + zeta**2 * f * (1 - f) * np.outer(x, x)
    return value, gradient, hessian


Record = tuple[np.ndarray, int]


def mnl_on_grid(theta: np.ndarray, records: list[Record]) -> tuple[np.ndarray, np.ndarray]:
    """Summed gradients (m, d) and Hessians (m, d, d) at each of m parameters."""
    m, d = theta.shape
    gradient, hessian = np.zeros((m, d)), np.zeros((m, d, d))
    for x, choice in records:
        z = theta @ x.T
        top = np.maximum(0.0, z.max(axis=1))
        weights = np.exp(z - top[:, None])
        p = weights / (np.exp(-top) + weights.sum(axis=1))[:, None]
        mean = p @ x
        gradient += mean - (x[choice] if choice >= 0 else 0.0)
        hessian += np.einsum("mk,ki,kj->mij", p, x, x) - mean[:, :, None] * mean[:, None, :]
    return gradient, hessian


def logistic_on_grid(
    theta: np.ndarray, records: list[Record], zeta: float
) -> tuple[np.ndarray, np.ndarray]:
    """As `mnl_on_grid`, for logistic records."""
    m, d = theta.shape
    gradient, hessian = np.zeros((m, d)), np.zeros((m, d, d))
    for x, y in records:
        f = expit(zeta * (theta @ x))
        gradient += zeta * (f - y)[:, None] * x
        hessian += zeta**2 * (f * (1 - f))[:, None, None] * np.outer(x, x)
    return gradient, hessian


def renyi_of_perturbed_minimisers(
    derivatives: object,
    common: list[Record],
    pair: tuple[Record, Record],
    ridge: float,
    sigma: float,
    orders: np.ndarray,
    points: int,
    shrink: float = 0.0,
) -> np.ndarray:
    """Renyi divergence at each order between the two minimisers' densities, by quadrature.

    The minimiser's density at theta is that of N(0, sigma^2 I) at the regularised gradient
    there, times the determinant of the regularised Hessian. With `shrink` > 0 the grid is
    narrowed by that share of the common Hessian at the centre.
    """
    d = pair[0][0].shape[-1]
    centre = np.zeros((1, d))
    for _ in range(200):  # damped Newton, only to place the grid
        g, h = derivatives(centre, common)  # type: ignore[operator]
        step = np.linalg.solve(h[0] + ridge * np.eye(d), g[0] + ridge * centre[0])
        centre = centre - min(1.0, 1.0 / max(1e-9, np.linalg.norm(step))) * step
    # the grid reaches nine standard deviations, and where the exponent moves with the order
    _, h = derivatives(centre, common)  # type: ignore[operator]
    slowest = ridge + shrink * np.diagonal(h[0])
    reach = (9 * sigma + 5 * float(orders.max())) / slowest
    axes = [np.linspace(-r, r, points) for r in reach]
    mesh = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, d)
    theta = centre + mesh
    base_g, base_h = derivatives(theta, common)  # type: ignore[operator]
    base_g = base_g + ridge * theta
    base_h = base_h + ridge * np.eye(d)
    logs = []
    for record in pair:
        g, h = derivatives(theta, [record])  # type: ignore[operator]
        sign, logdet = np.linalg.slogdet(base_h + h)
        assert (sign > 0).all()
        square = ((base_g + g) ** 2).sum(axis=1)
        logs.append(logdet - square / (2 * sigma**2) - d * np.log(sigma * np.sqrt(2 * np.pi)))
    cell = float(np.prod([axis[1] - axis[0] for axis in axes]))
    for density in logs:
        assert abs(np.exp(density).sum() * cell - 1) < 1e-6
    values = []
    for order in orders:
        exponent = order * logs[0] + (1 - order) * logs[1]
        top = exponent.max()
        values.append((top + np.log(np.exp(exponent - top).sum() * cell)) / (order - 1))
    return np.array(values)


def blt_coefficients(theta: np.ndarray, omega: np.ndarray, steps: int) -> np.ndarray:
    """c_0..c_{steps-1}: first column of the BLT strategy matrix."""
    powers = theta[None, :] ** np.arange(max(steps - 1, 0))[:, None]
    return np.concatenate([[1.0], (powers * omega).sum(axis=1)])
