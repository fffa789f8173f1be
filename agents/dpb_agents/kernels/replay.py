"""Deep Q-learning and soft actor-critic on remembered rounds, one gradient step after another.

The discount is 0, as an action does not change what follows: targets are rewards.
"""

from __future__ import annotations

import numpy as np

from dpb_agents.kernels.networks import adam, backward, forward, shorten
from dpb_gym.kernels._jit import jit, vectorised
from dpb_gym.kernels.elementary import exp, expm1, log

EPS, LONGEST = 1e-8, 10.0
LOW, HIGH, INSIDE = -20.0, 2.0, 1e-6


@jit
def tanh(x):
    """Hyperbolic tangent."""
    e = expm1(-2.0 * abs(x))
    return -e / (2.0 + e) if x >= 0.0 else e / (2.0 + e)


@jit
def squash(outputs, normals, actions):
    """Actions in [-1, 1] of an actor's means and logarithms of standard deviations.

    Args:
        outputs: ``(B, 2)``.
        normals: ``(B,)``.
        actions: Output ``(B,)``.
    """
    for b in range(normals.shape[0]):
        spread = exp(min(max(np.float64(outputs[b, 1]), LOW), HIGH))
        actions[b] = tanh(outputs[b, 0] + spread * normals[b])


@vectorised
def train_values(weights, moments, steps, widths, rounds, due, picks, rate):
    """Steps of deep Q-learning: Huber's loss of the value of what was played.

    Args:
        weights: ``(B, P)`` float32, in place.
        moments: ``(B, 2, P)`` float32, in place: see `networks.adam`.
        steps: Steps taken so far, ``(B,)``, in place.
        widths: See `networks.forward`.
        rounds: Inputs ``(B, n, d)`` float32, which of the outputs was played ``(B, n)`` and
            rewards ``(B, n)``.
        due: ``(B,)`` bool.
        picks: Rounds of every step's mini-batch, ``(B, steps, m)``.
        rate: Learning rate.
    """
    inputs, played, rewards = rounds
    m, first = picks.shape[2], widths.sum() - widths[-1]
    tape = np.empty((widths.sum(), m), np.float32)
    slopes, gradient = np.empty_like(tape), np.zeros(weights.shape[1], np.float32)
    for b in range(weights.shape[0]):
        if not due[b]:
            continue
        for pick in picks[b]:
            for s in range(m):
                for j in range(inputs.shape[2]):
                    tape[j, s] = inputs[b, pick[s], j]
            forward(weights[b], widths, True, tape, m)
            slopes[first:] = 0.0
            for s in range(m):
                row = first + int(played[b, pick[s]])
                error = tape[row, s] - rewards[b, pick[s]]
                slopes[row, s] = min(max(error, -1.0), 1.0) / m
            backward(weights[b], widths, True, tape, slopes, m, gradient, False)
            shorten(gradient, LONGEST)
            steps[b] += 1
            adam(weights[b], gradient, moments[b], steps[b], rate, EPS)


@jit
def _criticise(weights, widths, inputs, pick, actions, tapes):
    """Runs both critics on remembered contexts with actions ``(m,)``."""
    m, d, P = pick.shape[0], inputs.shape[1], weights.shape[0] // 2
    for k in range(2):
        for s in range(m):
            for j in range(d):
                tapes[k, j, s] = inputs[pick[s], j]
            tapes[k, d, s] = actions[s]
        forward(weights[k * P : (k + 1) * P], widths, True, tapes[k], m)


@jit
def _act(weights, widths, inputs, pick, normals, tape, drawn):
    """Fills the actor's tape, and action, deviation and log-probability of every draw."""
    m, d, last = pick.shape[0], inputs.shape[1], tape.shape[0] - 1
    for s in range(m):
        for j in range(d):
            tape[j, s] = inputs[pick[s], j]
    forward(weights, widths, True, tape, m)
    for s in range(m):
        width = min(max(np.float64(tape[last, s]), LOW), HIGH)
        deviation = exp(width) * normals[s]
        a = tanh(tape[last - 1, s] + deviation)
        drawn[0, s], drawn[1, s] = a, deviation
        gaussian = -0.5 * normals[s] * normals[s] - width - 0.9189385332046727
        drawn[2, s] = gaussian - log(1.0 - a * a + INSIDE)


@jit
def _act_slopes(tape, drawn, worth, value_slopes, slopes):
    """Slopes of mean(worth log-probability - value) by mean and log-deviation."""
    m, last = drawn.shape[1], tape.shape[0] - 1
    for s in range(m):
        a = drawn[0, s]
        bend = 1.0 - a * a
        slope = (worth * 2.0 * a / (bend + INSIDE) - value_slopes[s]) * bend / m
        slopes[last - 1, s] = slope
        inside = LOW <= tape[last, s] <= HIGH
        slopes[last, s] = slope * drawn[1, s] - worth / m if inside else 0.0


@vectorised
def train_actor(weights, moments, steps, widths, rounds, due, picks, normals, target, rate):
    """Steps of soft actor-critic, in Stable-Baselines3's order: entropy, critics, actor.

    Args:
        weights: ``(B, P)`` float32, in place: actor, two critics, logarithm of the entropy
            coefficient.
        moments: ``(B, 2, P)`` float32, in place: see `networks.adam`.
        steps: Steps taken so far, ``(B,)``, in place.
        widths: Of the actor, ``(d, ..., 2)``, see `networks.forward`; the critics' are those with
            the action as one more input and one output.
        rounds: Inputs ``(B, n, d)`` float32, actions ``(B, n)`` and rewards ``(B, n)``.
        due: ``(B,)`` bool.
        picks: Rounds of every step's mini-batch, ``(B, steps, m)``.
        normals: ``(B, steps, m)``, for the actions of the policy.
        target: Entropy to which the coefficient steers.
        rate: Learning rate.
    """
    m, total = picks.shape[2], weights.shape[1] - 1
    judging = widths.copy()
    judging[0], judging[-1] = widths[0] + 1, 1
    P = total - 2 * _count(judging)
    tape, tapes = (
        np.empty((widths.sum(), m), np.float32),
        np.empty((2, judging.sum(), m), np.float32),
    )
    slopes, slants = np.empty_like(tape), np.empty_like(tapes)
    gradient, drawn = np.zeros(total + 1, np.float32), np.empty((3, m))
    judged, last, size = np.empty(m), judging.sum() - 1, _count(judging)
    for b in range(weights.shape[0]):
        if not due[b]:
            continue
        own, inputs = weights[b], rounds[0][b]
        critics = own[P:total]
        for g in range(picks.shape[1]):
            pick = picks[b, g]
            _act(own[:P], widths, inputs, pick, normals[b, g], tape, drawn)
            worth = exp(np.float64(own[total]))
            entropy = 0.0
            for s in range(m):
                entropy -= drawn[2, s] / m
            gradient[total] = entropy - target
            _criticise(critics, judging, inputs, pick, rounds[1][b][pick], tapes)
            for k in range(2):
                part = slice(P + k * size, P + (k + 1) * size)
                for s in range(m):
                    slants[k, last, s] = (tapes[k, last, s] - rounds[2][b, pick[s]]) / m
                backward(own[part], judging, True, tapes[k], slants[k], m, gradient[part], False)
            steps[b] += 1
            adam(own[P:], gradient[P:], moments[b, :, P:], steps[b], rate, EPS)
            _criticise(critics, judging, inputs, pick, drawn[0], tapes)
            for k in range(2):
                for s in range(m):
                    lower = tapes[0, last, s] <= tapes[1, last, s]
                    slants[k, last, s] = 1.0 if lower == (k == 0) else 0.0
                part = slice(P + k * size, P + (k + 1) * size)
                backward(own[part], judging, True, tapes[k], slants[k], m, gradient[:0], True)
            for s in range(m):
                judged[s] = slants[0, widths[0], s] + slants[1, widths[0], s]
            _act_slopes(tape, drawn, worth, judged, slopes)
            backward(own[:P], widths, True, tape, slopes, m, gradient[:P], False)
            adam(own[:P], gradient[:P], moments[b, :, :P], steps[b], rate, EPS)


@jit
def _count(widths):
    """Weights of a network."""
    total = 0
    for layer in range(widths.shape[0] - 1):
        total += (widths[layer] + 1) * widths[layer + 1]
    return total
