"""Proximal policy optimisation of slates (Plackett-Luce) and of prices (Gaussian).

A replicate's weights are those of the actor, those of the critic, which has the same widths, and
the logarithm of the prices' standard deviation. The actor returns a score for every item, or the
mean of the price. The critic's input is the mean of a round's item features.
"""

from __future__ import annotations

import math

import numpy as np

from dpb_agents.kernels.networks import (
    WIDE,
    adam,
    backward,
    count,
    forward,
    load,
    new_tape,
    pack,
    shorten,
    unpack,
)
from dpb_gym.kernels._jit import inline, vectorised
from dpb_gym.kernels.elementary import exp, log, log_of_sum
from dpb_gym.kernels.linalg import copy_one

CLIP, LONGEST, EPS, VALUE_WEIGHT = 0.2, 0.5, 1e-5, 0.5
SMALLEST = 1e-300
TOGETHER = 64  # inputs of the actor at a time, so that their tape stays in cache
LOG2_E, LN2 = np.float32(1.4426950408889634), np.float32(0.6931471805599453)
TERMS = tuple(np.float32(1.0 / math.factorial(k)) for k in range(8))
LEAST, HALF = np.float32(-87.0), np.float32(0.5)


@inline
def _exponential(x):
    """Return e^x, to 1e-7 for -87 <= x <= 0; without branches, so that loops are vectorised."""
    n = np.floor(x * LOG2_E + HALF)
    r = x - n * LN2
    p = TERMS[-1]
    for k in range(len(TERMS) - 2, -1, -1):
        p = p * r + TERMS[k]
    return p * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@vectorised
def draw(scores, offered, uniforms, slates):
    """Draw slates item by item without replacement, by the softmax over the remaining items.

    Args:
        scores: ``(B, N)``.
        offered: ``(B, N)`` bool.
        uniforms: ``(B, N)``.
        slates: Output ``(B, K)``; -1 where no item remains.
    """
    B, N = scores.shape
    K, keys, held = slates.shape[1], np.empty(N), np.empty(slates.shape[1])
    for b in range(B):
        for j in range(N):  # the largest sums of score and Gumbel variable
            exponential = -log_of_sum(max(uniforms[b, j], SMALLEST), 0.0)
            keys[j] = scores[b, j] - log_of_sum(exponential, 0.0)
        slates[b] = -1
        held[:] = -np.inf
        for j in range(N):
            if not (offered[b, j] and keys[j] > held[K - 1]):
                continue
            place = K - 1
            while place > 0 and keys[j] > held[place - 1]:
                held[place], slates[b, place] = held[place - 1], slates[b, place - 1]
                place -= 1
            held[place], slates[b, place] = keys[j], j


@vectorised
def slate_log_probability(scores, offered, slate, slopes):
    """Return the log-probability of a slate, and write its gradient by the scores.

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
        power = _exponential(max(scores[j] - top, LEAST))
        slopes[j] = power if offered[j] else 0.0
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
    """Compute the critic's input of every round: the mean of its items' features."""
    n, N, d = contexts.shape
    for t in range(n):
        for j in range(d):
            total = 0.0
            for i in range(N):
                total += contexts[t, i, j]
            means[t, j] = total / N


@vectorised
def _value(packed, widths, means, order, tape, values):
    """Compute the critic's values of rounds."""
    m = order.shape[0]
    for s in range(m):
        load(means[order[s] : order[s] + 1], tape, s)
    forward(packed, widths, False, tape, m)
    for s in range(m):
        values[s] = tape[-1, s * WIDE]


@vectorised
def _evaluate(packed, widths, spread, rounds, order, tape, found):
    """Compute log-probabilities of rounds and their gradients by scores and log-spread."""
    contexts, offered, slates, bids, _ = rounds
    N = contexts.shape[1]
    logs, slopes, deviations, scores = found
    for s in range(order.shape[0]):
        load(contexts[order[s]], tape, s * N)
    forward(packed, widths, False, tape, order.shape[0] * N)
    for s in range(order.shape[0]):
        t = order[s]
        for j in range(N):
            scores[j] = tape[-1, (s * N + j) * WIDE]
        if slates.shape[1]:
            logs[s] = slate_log_probability(scores, offered[t], slates[t], slopes[s])
        else:
            z = (bids[t] - scores[0]) / spread
            logs[s] = -0.5 * z * z - log(spread)
            slopes[s, 0] = z / spread
            deviations[s] = z * z - 1.0


@vectorised
def _advantages(rewards, values, order, advantages):
    """Compute advantages: rewards minus values, normalised over a mini-batch."""
    m, mean, square = order.shape[0], 0.0, 0.0
    for s in range(m):
        advantages[s] = rewards[order[s]] - values[order[s]]
        mean += advantages[s] / m
    for s in range(m):
        square += (advantages[s] - mean) * (advantages[s] - mean)
    for s in range(m if m > 1 else 0):
        advantages[s] = (advantages[s] - mean) / (np.sqrt(square / (m - 1)) + 1e-8)


@vectorised
def _critic_gradient(packed, widths, means, rewards, order, tape, scratch):
    """Add the gradient of the critic's loss of a mini-batch to its packed gradient."""
    m, (slopes, values, gradient) = order.shape[0], scratch
    _value(packed, widths, means, order, tape, values)
    for s in range(m):
        slopes[-1, s * WIDE] = VALUE_WEIGHT * 2.0 * (values[s] - rewards[order[s]]) / m
    backward(packed, widths, False, tape, slopes, m, gradient, False)


@vectorised
def _actor_gradient(packed, widths, spread, rounds, before, order, scratch):
    """Add the gradient of the actor's loss of a mini-batch; return that by log(spread).

    The gradient is 0 where all ratios are clipped.
    """
    tape, pulls, advantages, found, gradient = scratch
    logs, slopes, deviations, _ = found
    m, N = order.shape[0], rounds[0].shape[1]
    share, moved = max(1, TOGETHER // N), 0.0
    _advantages(rounds[4], before[1], order, advantages)
    for start in range(0, m, share):
        part = order[start : start + share]
        _evaluate(packed, widths, spread, rounds, part, tape, found)
        moving = False
        for s in range(part.shape[0]):
            advantage, ratio = advantages[start + s], exp(logs[s] - before[0, part[s]])
            bounded = min(max(ratio, 1.0 - CLIP), 1.0 + CLIP)
            push = -advantage * ratio / m if advantage * ratio <= advantage * bounded else 0.0
            moving = moving or push != 0.0
            moved += push * deviations[s]
            for j in range(N):
                pulls[-1, (s * N + j) * WIDE] = push * slopes[s, j]
        if moving:
            backward(packed, widths, False, tape, pulls, part.shape[0] * N, gradient, False)
    return moved


@inline
def _unfold(weights, widths, packed):
    """Pack actor and critic; return the standard deviation of prices."""
    P = (weights.shape[0] - 1) // 2
    pack(weights[:P], widths, packed[0], False)
    pack(weights[P : 2 * P], widths, packed[1], False)
    return exp(np.float64(weights[2 * P]))


@vectorised
def train(weights, moments, steps, widths, rounds, due, orders, batch, rate):
    """Train the replicates that are due on their rounds.

    Args:
        weights: ``(B, 2 P + 1)`` float32, in place.
        moments: ``(B, 2, 2 P + 1)`` float32, in place: mean and square of `networks.adam`.
        steps: Steps taken so far, ``(B,)``, in place.
        widths: Of actor and critic, see `networks.forward`.
        rounds: Contexts ``(B, n, N, d)`` float32, availability ``(B, n, N)`` bool, slates
            ``(B, n, K)`` (K = 0: prices), unclipped prices ``(B, n)`` and rewards ``(B, n)``.
        due: Mask ``(B,)`` of the replicates to train.
        orders: Permutations of the rounds, one per pass, ``(B, passes, n)``.
        batch: Size of a mini-batch.
        rate: Learning rate.
    """
    n, N, d = rounds[0].shape[1:]
    P, size, _ = count(widths)
    share = max(1, TOGETHER // N)
    gradient, packed = np.zeros(2 * P + 1, np.float32), np.zeros((2, size), np.float32)
    sums, tapes = np.zeros_like(packed), (new_tape(widths, share * N), new_tape(widths, batch))
    pulls = np.zeros_like(tapes[0]), np.zeros_like(tapes[1])
    found = np.empty(share), np.empty((share, N)), np.zeros(share), np.empty(N, np.float32)
    before, own, means = np.empty((2, n)), np.arange(n), np.empty((n, d), np.float32)
    values, advantages = np.empty(batch), np.empty(batch)
    for b in range(weights.shape[0]):
        if not due[b]:
            continue
        mine = rounds[0][b], rounds[1][b], rounds[2][b], rounds[3][b], rounds[4][b]
        _mean(mine[0], means)
        spread = _unfold(weights[b], widths, packed)
        for start in range(0, n, share):
            part = own[start : start + share]
            _evaluate(packed[0], widths, spread, mine, part, tapes[0], found)
            copy_one(found[0][: part.shape[0]], before[0, start:])
        for start in range(0, n, batch):
            part = own[start : start + batch]
            _value(packed[1], widths, means, part, tapes[1], before[1, start:])
        for order in orders[b]:
            for start in range(0, n, batch):
                part = order[start : start + batch]
                spread = _unfold(weights[b], widths, packed)
                scratch = pulls[1], values, sums[1]
                _critic_gradient(packed[1], widths, means, mine[4], part, tapes[1], scratch)
                actor = tapes[0], pulls[0], advantages, found, sums[0]
                slope = _actor_gradient(packed[0], widths, spread, mine, before, part, actor)
                gradient[2 * P] = slope
                unpack(sums[0], widths, gradient[:P])
                unpack(sums[1], widths, gradient[P : 2 * P])
                shorten(gradient, LONGEST)
                steps[b] += 1
                adam(weights[b], gradient, moments[b, 0], moments[b, 1], steps[b], rate, EPS)
