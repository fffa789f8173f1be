"""Proximal policy optimisation of slates (Plackett-Luce) and of prices (Gaussian).

A replicate's weights are those of the actor, of the critic, which has the same widths, and the
logarithm of the prices' standard deviation. The actor scores every item, or gives the mean of the
price; the critic values a round by the mean of its items' features.
"""

from __future__ import annotations

import numpy as np

from dpb_agents.kernels.networks import adam, backward, forward, shorten
from dpb_gym.kernels._jit import jit, vectorised
from dpb_gym.kernels.elementary import exp, log

CLIP, LONGEST, EPS, WORTH = 0.2, 0.5, 1e-5, 0.5
SMALLEST = 1e-300


@jit
def draw(scores, offered, uniforms, slates):
    """Slates drawn one by one without replacement, by the softmax of what is left.

    Args:
        scores: ``(B, N)``.
        offered: ``(B, N)`` bool.
        uniforms: ``(B, N)``.
        slates: Output ``(B, K)``; -1 where nothing is left.
    """
    B, N = scores.shape
    keys = np.empty(N)
    for b in range(B):
        for j in range(N):  # the largest sums of score and Gumbel variable
            gumbel = -log(-log(max(uniforms[b, j], SMALLEST)))
            keys[j] = scores[b, j] + gumbel if offered[b, j] else -np.inf
        for place in range(slates.shape[1]):
            best = np.argmax(keys)
            slates[b, place] = best if keys[best] > -np.inf else -1
            keys[best] = -np.inf


@jit
def slate_log_probability(scores, offered, slate, slopes):
    """Log-probability of a slate, and its slopes by the scores.

    Args:
        scores: ``(N,)``.
        offered: ``(N,)`` bool.
        slate: ``(K,)``; -1 leaves a place empty.
        slopes: Output ``(N,)``.
    """
    N, K = scores.shape[0], slate.shape[0]
    held, left = np.zeros(K), np.empty(K + 1)
    top = -np.inf
    for j in range(N):
        if offered[j]:
            top = max(top, np.float64(scores[j]))
    for j in range(N):
        slopes[j] = exp(scores[j] - top) if offered[j] else 0.0
    for place in range(K):
        if slate[place] >= 0:
            held[place] = slopes[slate[place]]
            slopes[slate[place]] = 0.0
    left[K] = SMALLEST
    for j in range(N):
        left[K] += slopes[j]
    for place in range(K - 1, -1, -1):
        left[place] = left[place + 1] + held[place]
    total, shares = 0.0, 0.0
    for place in range(K):
        if slate[place] >= 0:
            total += (scores[slate[place]] - top) - log(left[place])
            shares += 1.0 / left[place]
            held[place] = 1.0 - held[place] * shares
    for j in range(N):
        slopes[j] *= -shares
    for place in range(K):
        if slate[place] >= 0:
            slopes[slate[place]] = held[place]
    return total


@vectorised
def _mean(contexts, means):
    """What the critic sees of every round: the mean of its items' features."""
    n, d, N = contexts.shape
    for t in range(n):
        for j in range(d):
            total = 0.0
            for i in range(N):
                total += contexts[t, j, i]
            means[t, j] = total / N


@vectorised
def _evaluate(weights, widths, rounds, means, order, start, m, tapes, found):
    """Values, log-probabilities and their slopes of m rounds, ``order[start:start + m]``."""
    contexts, offered, slates, bids, _ = rounds
    _, d, N = contexts.shape
    values, logs, slopes, deviations = found
    acting, judging = tapes
    P, last = (weights.shape[0] - 1) // 2, acting.shape[0] - 1
    for s in range(m):
        t, at = order[start + s], s * N
        for j in range(d):
            for i in range(N):
                acting[j, at + i] = contexts[t, j, i]
            judging[j, s] = means[t, j]
    forward(weights[:P], widths, False, acting, m * N)
    forward(weights[P : 2 * P], widths, False, judging, m)
    spread = exp(np.float64(weights[2 * P]))
    for s in range(m):
        t, at = order[start + s], s * N
        values[s] = judging[last, s]
        if slates.shape[1]:
            scores = acting[last, at : at + N]
            logs[s] = slate_log_probability(scores, offered[t], slates[t], slopes[s])
        else:
            z = (bids[t] - acting[last, at]) / spread
            logs[s] = -0.5 * z * z - weights[2 * P]
            slopes[s, 0] = z / spread
            deviations[s] = z * z - 1.0


@vectorised
def _step(weights, widths, rounds, order, start, m, made, gradient):
    """Adds the slopes of the loss of a mini-batch to `gradient`.

    Rounds whose ratio is clipped move the actor nowhere: the others' columns close up.
    """
    N = rounds[0].shape[2]
    before, tapes, slants, (values, logs, slopes, deviations) = made
    P, last = (weights.shape[0] - 1) // 2, tapes[0].shape[0] - 1
    rewards = rounds[4]
    mean, square, moving = 0.0, 0.0, 0
    for s in range(m):
        mean += (rewards[order[start + s]] - before[1, order[start + s]]) / m
    for s in range(m):
        off = rewards[order[start + s]] - before[1, order[start + s]] - mean
        square += off * off
    for s in range(m):
        t = order[start + s]
        advantage = rewards[t] - before[1, t]
        if m > 1:
            advantage = (advantage - mean) / (np.sqrt(square / (m - 1)) + 1e-8)
        ratio = exp(logs[s] - before[0, t])
        bounded = min(max(ratio, 1.0 - CLIP), 1.0 + CLIP)
        push = -advantage * ratio / m if advantage * ratio <= advantage * bounded else 0.0
        slants[1][last, s] = WORTH * 2.0 * (values[s] - rewards[t]) / m
        if push == 0.0:
            continue
        gradient[2 * P] += push * deviations[s]
        for row in range(tapes[0].shape[0] if moving < s * N else 0):
            for j in range(N):
                tapes[0][row, moving + j] = tapes[0][row, s * N + j]
        for j in range(N):
            slants[0][last, moving + j] = push * slopes[s, j]
        moving += N
    actor, critic = slice(0, P), slice(P, 2 * P)
    backward(weights[actor], widths, False, tapes[0], slants[0], moving, gradient[actor], False)
    backward(weights[critic], widths, False, tapes[1], slants[1], m, gradient[critic], False)


@vectorised
def train(weights, moments, steps, widths, rounds, due, orders, batch, rate):
    """Trains the replicates that are due on their rounds.

    Args:
        weights: ``(B, 2 P + 1)`` float32, in place.
        moments: ``(B, 2, 2 P + 1)`` float32, in place: see `networks.adam`.
        steps: Steps taken so far, ``(B,)``, in place.
        widths: Of actor and critic, see `networks.forward`.
        rounds: Contexts ``(B, n, d, N)`` float32, what was offered ``(B, n, N)`` bool, slates
            ``(B, n, K)`` (K = 0: prices), prices as drawn ``(B, n)`` and rewards ``(B, n)``.
        due: ``(B,)`` bool.
        orders: Orders of the rounds, one for every pass, ``(B, passes, n)``.
        batch: Rounds of a mini-batch.
        rate: Learning rate.
    """
    B, n, d, N = rounds[0].shape
    gradient = np.zeros(weights.shape[1], np.float32)
    tall = widths.sum()
    tapes = np.empty((tall, batch * N), np.float32), np.empty((tall, batch), np.float32)
    slants = np.empty_like(tapes[0]), np.empty_like(tapes[1])
    before, own, means = np.empty((2, n)), np.arange(n), np.empty((n, d), np.float32)
    found = np.empty(batch), np.empty(batch), np.empty((batch, N)), np.zeros(batch)
    for b in range(B):
        if not due[b]:
            continue
        mine = rounds[0][b], rounds[1][b], rounds[2][b], rounds[3][b], rounds[4][b]
        _mean(mine[0], means)
        for start in range(0, n, batch):
            m = min(batch, n - start)
            _evaluate(weights[b], widths, mine, means, own, start, m, tapes, found)
            before[0, start : start + m] = found[1][:m]
            before[1, start : start + m] = found[0][:m]
        for order in orders[b]:
            for start in range(0, n, batch):
                m = min(batch, n - start)
                _evaluate(weights[b], widths, mine, means, order, start, m, tapes, found)
                made = before, tapes, slants, found
                _step(weights[b], widths, mine, order, start, m, made, gradient)
                shorten(gradient, LONGEST)
                steps[b] += 1
                adam(weights[b], gradient, moments[b], steps[b], rate, EPS)
