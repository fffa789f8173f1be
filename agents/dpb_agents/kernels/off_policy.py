"""Replay buffer, deep Q-learning and soft actor-critic.

The discount is 0, because actions do not influence later rounds: targets are rewards.
"""

from __future__ import annotations

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
from dpb_gym.kernels._jit import inline, jit, vectorised
from dpb_gym.kernels.elementary import exp, expm1, log
from dpb_gym.kernels.linalg import copy_one

EPS, LONGEST = 1e-8, 10.0
LOW, HIGH, INSIDE = -20.0, 2.0, 1e-6


@jit
def tanh(x):
    """Return the hyperbolic tangent."""
    e = expm1(-2.0 * abs(x))
    return -e / (2.0 + e) if x >= 0.0 else e / (2.0 + e)


@jit
def squash(outputs, normals, actions):
    """Compute actions in [-1, 1] from an actor's means and log standard deviations.

    Args:
        outputs: ``(B, 2)``.
        normals: ``(B,)``.
        actions: Output ``(B,)``.
    """
    for b in range(normals.shape[0]):
        spread = exp(min(max(np.float64(outputs[b, 1]), LOW), HIGH))
        actions[b] = tanh(outputs[b, 0] + spread * normals[b])


@jit
def remember(inputs, played, rewards, seen, now, observed, starts, every, due):
    """Store a round of every replicate, replacing the oldest if the buffer is full.

    Args:
        inputs: ``(B, n, d)`` float32, in place.
        played: ``(B, n)``, in place.
        rewards: ``(B, n)``, in place.
        seen: Rounds observed so far, ``(B,)``, in place.
        now: The network's inputs ``(B, d)``, the actions ``(B,)`` and the rewards ``(B,)``.
        observed: Mask ``(B,)``; rounds that were not observed are overwritten by the next.
        starts: Observed rounds before the first training.
        every: Observed rounds between two trainings.
        due: Output ``(B,)`` bool: replicates to train.
    """
    some = False
    for b in range(seen.shape[0]):
        at = seen[b] % played.shape[1]
        for j in range(inputs.shape[2]):
            inputs[b, at, j] = now[0][b, j]
        played[b, at], rewards[b, at] = now[1][b], now[2][b]
        seen[b] += observed[b]
        due[b] = observed[b] and seen[b] >= starts and seen[b] % every == 0
        some = some or due[b]
    return some


@vectorised
def train_values(weights, moments, steps, widths, rounds, due, picks, rate):
    """Run steps of deep Q-learning, with the Huber loss of the values of played actions.

    Args:
        weights: ``(B, P)`` float32, in place.
        moments: ``(B, 2, P)`` float32, in place: mean and square of `networks.adam`.
        steps: Steps taken so far, ``(B,)``, in place.
        widths: See `networks.forward`.
        rounds: Inputs ``(B, n, d)`` float32, index of the played output ``(B, n)`` and rewards
            ``(B, n)``.
        due: Mask ``(B,)`` of the replicates to train.
        picks: Rounds of every step's mini-batch, ``(B, steps, m)``.
        rate: Learning rate.
    """
    inputs, played, rewards = rounds
    m, first = picks.shape[2], count(widths)[2] - count(widths[-1:])[2]
    tape, slopes = new_tape(widths, m), new_tape(widths, m)
    packed = np.zeros((2, count(widths)[1]), np.float32)
    gradient = np.zeros(weights.shape[1], np.float32)
    for b in range(weights.shape[0]):
        if not due[b]:
            continue
        for pick in picks[b]:
            _gather(inputs[b], pick, tape)
            pack(weights[b], widths, packed[0], False)
            forward(packed[0], widths, True, tape, m)
            slopes[first:] = 0.0
            for s in range(m):
                k = int(played[b, pick[s]])
                row, at = first + k // WIDE, s * WIDE + k % WIDE
                error = tape[row, at] - rewards[b, pick[s]]
                slopes[row, at] = min(max(error, -1.0), 1.0) / m
            backward(packed[0], widths, True, tape, slopes, m, packed[1], False)
            unpack(packed[1], widths, gradient)
            shorten(gradient, LONGEST)
            steps[b] += 1
            adam(weights[b], gradient, moments[b, 0], moments[b, 1], steps[b], rate, EPS)


@inline
def _gather(inputs, pick, tape):
    """Load stored rounds into a tape."""
    for s in range(pick.shape[0]):
        load(inputs[pick[s] : pick[s] + 1], tape, s)


@jit
def _run_critics(packed, widths, actions, tapes):
    """Run both critics on the contexts of their tapes with actions ``(m,)``."""
    m, d = actions.shape[0], widths[0] - 1
    for k in range(2):
        for s in range(m):
            tapes[k, d // WIDE, s * WIDE + d % WIDE] = actions[s]
        forward(packed[k], widths, True, tapes[k], m)


@jit
def _act(packed, widths, normals, tape, drawn):
    """Run the actor; write action, deviation and log-probability of every draw."""
    m = normals.shape[0]
    forward(packed, widths, True, tape, m)
    for s in range(m):
        mean, width = tape[-1, s * WIDE], min(max(np.float64(tape[-1, s * WIDE + 1]), LOW), HIGH)
        deviation = exp(width) * normals[s]
        a = tanh(mean + deviation)
        drawn[0, s], drawn[1, s] = a, deviation
        gaussian = -0.5 * normals[s] * normals[s] - width - 0.9189385332046727
        drawn[2, s] = gaussian - log(1.0 - a * a + INSIDE)


@jit
def _act_slopes(tape, drawn, coefficient, value_slopes, slopes):
    """Compute the gradient by the outputs of mean(coefficient * log-probability - value)."""
    m = drawn.shape[1]
    for s in range(m):
        a = drawn[0, s]
        bend = 1.0 - a * a
        slope = (coefficient * 2.0 * a / (bend + INSIDE) - value_slopes[s]) * bend / m
        slopes[-1, s * WIDE] = slope
        inside = LOW <= tape[-1, s * WIDE + 1] <= HIGH
        slopes[-1, s * WIDE + 1] = slope * drawn[1, s] - coefficient / m if inside else 0.0


@jit
def _fit_critics(packed, widths, targets, tapes, slants):
    """Add the gradients of both critics' mean squared errors to their packed gradients."""
    m = targets.shape[0]
    for k in range(2):
        for s in range(m):
            slants[k, -1, s * WIDE] = (tapes[k, -1, s * WIDE] - targets[s]) / m
        backward(packed[0, k], widths, True, tapes[k], slants[k], m, packed[1, k], False)


@jit
def _value_slopes(packed, widths, tapes, slants, value_slopes):
    """Compute derivatives by the action, the last input, of the lower of both critics' values."""
    m, last = value_slopes.shape[0], widths[0] - 1
    value_slopes[:] = 0.0
    for k in range(2):
        for s in range(m):
            lower = tapes[0, -1, s * WIDE] <= tapes[1, -1, s * WIDE]
            slants[k, -1, s * WIDE] = 1.0 if lower == (k == 0) else 0.0
        backward(packed[0, k], widths, True, tapes[k], slants[k], m, packed[1, k, :0], True)
        for s in range(m):
            value_slopes[s] += slants[k, last // WIDE, s * WIDE + last % WIDE]


@vectorised
def train_actor(weights, moments, steps, widths, rounds, due, picks, normals, target, rate):
    """Run steps of soft actor-critic, in Stable-Baselines3's order: entropy, critics, actor.

    Args:
        weights: ``(B, P)`` float32, in place: actor, two critics, logarithm of the entropy
            coefficient.
        moments: ``(B, 2, P)`` float32, in place: mean and square of `networks.adam`.
        steps: Steps taken so far, ``(B,)``, in place.
        widths: Of the actor, ``(d, ..., 2)``, see `networks.forward`; the critics' are those with
            the action as one more input and one output.
        rounds: Inputs ``(B, n, d)`` float32, actions ``(B, n)`` and rewards ``(B, n)``.
        due: Mask ``(B,)`` of the replicates to train.
        picks: Rounds of every step's mini-batch, ``(B, steps, m)``.
        normals: ``(B, steps, m)``, for the actions of the policy.
        target: Target entropy.
        rate: Learning rate.
    """
    m, total = picks.shape[2], weights.shape[1] - 1
    judging = widths.copy()
    judging[0], judging[-1] = widths[0] + 1, 1
    P, size, seen = count(widths)[0], count(judging)[0], count(widths[:1])[2]
    tape, slopes = new_tape(widths, m), new_tape(widths, m)
    tapes = np.zeros((2, *new_tape(judging, m).shape), np.float32)
    slants, gradient = np.zeros_like(tapes), np.zeros(total + 1, np.float32)
    actor = np.zeros((2, count(widths)[1]), np.float32)
    critics = np.zeros((2, 2, count(judging)[1]), np.float32)
    drawn, value_slopes = np.empty((3, m)), np.empty(m)
    for b in range(weights.shape[0]):
        if not due[b]:
            continue
        own, inputs = weights[b], rounds[0][b]
        mean, square = moments[b, 0], moments[b, 1]
        for g in range(picks.shape[1]):
            pick = picks[b, g]
            _gather(inputs, pick, tape)
            for k in range(2):
                for i in range(seen):
                    copy_one(tape[i], tapes[k, i])
            pack(own[:P], widths, actor[0], False)
            _act(actor[0], widths, normals[b, g], tape, drawn)
            coefficient, entropy = exp(np.float64(own[total])), 0.0
            for s in range(m):
                entropy -= drawn[2, s] / m
            gradient[total] = entropy - target
            _pack_critics(own[P:total], judging, critics[0], False)
            _run_critics(critics[0], judging, rounds[1][b][pick], tapes)
            _fit_critics(critics, judging, rounds[2][b][pick], tapes, slants)
            unpack(critics[1, 0], judging, gradient[P : P + size])
            unpack(critics[1, 1], judging, gradient[P + size : total])
            steps[b] += 1
            adam(own[P:], gradient[P:], mean[P:], square[P:], steps[b], rate, EPS)
            _pack_critics(own[P:total], judging, critics[0], True)
            _run_critics(critics[0], judging, drawn[0], tapes)
            _value_slopes(critics, judging, tapes, slants, value_slopes)
            _act_slopes(tape, drawn, coefficient, value_slopes, slopes)
            backward(actor[0], widths, True, tape, slopes, m, actor[1], False)
            unpack(actor[1], widths, gradient[:P])
            adam(own[:P], gradient[:P], mean[:P], square[:P], steps[b], rate, EPS)


@inline
def _pack_critics(weights, widths, packed, through):
    size = weights.shape[0] // 2
    for k in range(2):
        pack(weights[k * size : (k + 1) * size], widths, packed[k], through)
