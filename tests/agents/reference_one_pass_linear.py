"""docs/agents/one-pass-linear.md as NumPy: both agents as they are, one replicate, rewards 0..1."""

import numpy as np


def schedule(T, d, sigma, spread, prior):
    """Ends of the batches, weights b_j of their records, precisions a_i of the releases."""
    first = max(d, 0.07 * sigma * d / np.sqrt(prior))
    ends = [min(T, max(1, round(first)))]
    while ends[-1] < T:
        ends.append(min(T, max(ends[-1] + 1, round(ends[-1] * 1.1))))
    ends, i = np.array(ends[:-1] or ends), np.arange(1.0, d + 1)
    sizes, rounds = np.diff(ends, prepend=0), np.maximum(np.diff(ends, append=T), 1)
    a = ends[0] / ends
    d = (i**-0.5).sum() ** 2 / (1 / i).sum()  # directions that d features amount to
    for _ in range(100):
        b = 1 / np.sqrt(np.cumsum(a[::-1] ** 2)[::-1])
        q = a * np.cumsum(b * sizes)  # a release's signal
        P = np.cumsum(q**2)
        v = (sigma * d) ** 2 / P + spread * d / ends  # variance of a coordinate of theta
        rho = np.sqrt(prior / (prior + v))  # what the greedy policy earns
        worth = np.cumsum((rho / (prior + v) * (sigma * d / P) ** 2 * rounds)[::-1])[::-1]
        a = np.maximum(worth * q / (worth * q).max(), 1e-6)
    return ends, 1 / np.sqrt(np.cumsum(a[::-1] ** 2)[::-1]), a


def play(joint, contexts, answer, noise, sigma):
    """Actions ``(T,)`` and theta, slopes then level, on candidates ``(T, m, d)`` per round.

    answer(t, arm) is a reward in [0, 1], noise(k) release k's standard normals, sigma their factor.
    """
    T, _, d = contexts.shape
    n, (norm, intercept) = d + 1, (1.5, 0.35) if joint else (1, 0.15)
    prior, stretch, share = (norm / 2) ** 2 / d, 1 + intercept**2, joint
    joint = joint and (contexts != contexts[0]).any()  # arms that never change are public
    if joint:
        h = 0.2  # w_H^2 / w_u^2; the largest distance of two rows follows from both
        w_H, w_u = np.sqrt([h, 1]) / np.sqrt(2 * h + 0.5 + 1 / (32 * h))
        bent = (1 + 1 / n) / 2 * d * prior * stretch / w_H**2  # variance of the noise of H, times t
        weights = w_H, w_u, (row := np.sqrt(1 / w_u**2 + bent)), bent
    ends, b, a = schedule(T, d, sigma * (row * np.sqrt(stretch) if joint else 1), 0.25, prior)
    theta, excess, worth, k, running = np.zeros(n + d), np.eye(d), 0, 0, 0.0
    seen, batch, released, batches, actions = [], [], [], [], []
    for t, x in enumerate(contexts):
        score = x @ theta[:d] + worth * ((x @ excess) * x).sum(1).clip(0)
        arm = int((score if theta.any() else (x**2).sum(1).round(6)).argmax())
        kappa = 1 - (1 + 2 / d) * x.var(0, ddof=1).sum() / len(x) / (x.mean(0) ** 2).sum()
        z = x[arm] - share * np.clip(kappa, 0, 1 - 1 / len(x)) * x.mean(0)
        v = np.append(z / np.linalg.norm(z), intercept) / np.sqrt(stretch)
        actions.append(arm)
        seen.append(x)
        batch.append((v, np.concatenate([x[arm], [1], x.mean(0)]), answer(t, arm) - 0.5))
        if k == len(ends) or t + 1 < ends[k]:
            continue
        V, phi, r = (np.array(part) for part in zip(*batch))
        if joint:
            H, (i, j) = w_H * V.T @ V, np.triu_indices(n)
            record = np.append(H[i, j] * np.where(i == j, 1, np.sqrt(2)), w_u * V.T @ r)
        else:
            p = 1 / (1 + np.exp(-4 * phi @ theta))  # E r = p, linear about theta: of slope W
            W, rest = 4 * p * (1 - p), p - 0.5 - 4 * p * (1 - p) * (phi @ theta)
            batches.append((b[k] * (V.T * W) @ phi, b[k] ** 2 / 4 * (V.T * W) @ V))
            record = V.T @ (r - rest)
        released.append((running := running + b[k] * record) + sigma / a[k] * noise(k))
        if joint:
            theta = joint_posterior(released, ends, b, a, sigma, weights, intercept, prior)
        else:
            X, mean, t1 = np.array(seen), np.mean(seen, 1), t + 1
            square, centre = (X**2).sum(2).mean(), mean.mean(0)
            own = len(x) * ((mean**2).sum(1).mean() - centre @ centre)
            ratio = (10 + t1 * own / (square - centre @ centre)) / (9 + t1)
            if k == 0:
                own = prior / square * (4 * max(0, 1 - 1 / ratio)) ** 2
                sizes = np.repeat([prior / square, prior, own], [d, 1, d])
            theta, C = posterior(released, batches, a, sigma, sizes)
            doubt = C[:d, :d] - np.outer(C[d, :d], C[d, :d]) / C[d, d]
            known = np.linalg.inv(doubt) + square * (norm**2 - 1) / prior * np.eye(d)  # at norm 1
            excess = np.linalg.inv(known) - 2 * d / np.trace(known) * np.eye(d)
            worth = max(0, 1 - ratio) / 2 / prior * norm**2
        batch, k = [], k + 1
    return np.array(actions), theta[:n]


def posterior(released, batches, a, sigma, sizes):
    """Theta given all releases S_i + noise, S_i = sum_{j <= i} (G_j t + e_j); covariance of t."""
    G, K = (np.cumsum(part, axis=0) for part in zip(*batches))
    k, eye, cross = range(len(G)), np.eye(G.shape[1]), np.concatenate(G) * sizes
    own = np.block([[K[min(i, j)] + (i == j) * (sigma / a[i]) ** 2 * eye for j in k] for i in k])
    gain = np.linalg.solve(cross @ np.concatenate(G).T + own, cross).T
    return gain @ np.concatenate(released), np.diag(sizes) - gain @ cross


def joint_posterior(released, ends, b, a, sigma, weights, intercept, prior):
    """Mean of theta given the best combination of the releases, curvature shrunk by its noise."""
    w_H, w_u, row, bent = weights
    k, stretch, t = len(released), 1 + intercept**2, ends[len(released) - 1]
    exposure, sizes = np.tril(np.ones((k, k))) * b[:k], np.diff(ends[:k], prepend=0)
    d = int((np.sqrt(9 + 8 * len(released[0])) - 3) / 2) - 1  # a row: n (n + 1) / 2 + n numbers
    n = d + 1
    covariance = 0.25 / d * (exposure * sizes) @ exposure.T + np.diag((sigma * row / a[:k]) ** 2)
    alpha = np.linalg.solve(covariance, exposure @ sizes)
    alpha *= t / (alpha @ exposure @ sizes)
    sums, std = alpha @ np.array(released), sigma * np.linalg.norm(alpha / a[:k])
    uneven = (alpha @ exposure) ** 2 @ sizes / t
    H, (i, j), s = np.zeros((n, n)), np.triu_indices(n), std / w_H
    H[i, j] = H[j, i] = sums[:-n] / w_H / np.where(i == j, 1, np.sqrt(2))
    trace, level, c = t / stretch, t - t / stretch, H[d, :d]  # both known: |v| = 1
    keep = min(max(0, 1 - d * s**2 / 2 / (c @ c)), np.sqrt(level * trace / (c @ c)))
    common, c = 0.15 * d * keep**2 * np.outer(c, c) / (c @ c), keep * c
    cut = np.outer(c, c) / level
    D = H[:d, :d] - cut - np.trace(H[:d, :d] - cut) / d * np.eye(d)
    left = max(0, 1 - (d * (d + 1) / 2 - 1) * s**2 / (D**2).sum())
    values, vectors = np.linalg.eigh((trace - np.trace(cut)) / d * np.eye(d) + left * D)
    H = np.block([[vectors * values.clip(0) @ vectors.T + cut, c[:, None]], [c, level]])
    P = np.diag(np.append(np.ones(d), 1 / intercept**2)) * prior * stretch
    P[:d, :d] += common * prior * stretch
    e = 0.25 * uneven * H + (std**2 / w_u**2 + left * std**2 * bent) * np.eye(n)
    mean = P @ H @ np.linalg.solve(H @ P @ H + e, sums[-n:] / w_u)
    return mean / np.sqrt(stretch) * np.append(np.ones(d), intercept)
