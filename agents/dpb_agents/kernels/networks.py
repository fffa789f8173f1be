"""Small fully connected networks in single precision, a flat vector of weights for each.

A network of widths ``(w[0], ..., w[L])`` holds, layer by layer, a matrix ``(w[l], w[l + 1])`` and a
bias. A tape ``(sum w, n)`` has a column for each of n inputs and below each other what the layers
make of them: w[0] rows of inputs, then every layer's outputs. Loops run along the tape, which
vector registers hold side by side, and every sum has one order, without fast-math: bits depend on
neither processor nor batch.
"""

from __future__ import annotations

import math

import numpy as np

from dpb_gym.kernels._jit import inline, vectorised
from dpb_gym.kernels.elementary import power

ZERO, HALF, ONE, TWO = (np.float32(x) for x in (0.0, 0.5, 1.0, 2.0))
LOG2_E, LN2 = np.float32(1.4426950408889634), np.float32(0.6931471805599453)
TERMS = tuple(np.float32(1.0 / math.factorial(k)) for k in range(8))
FLAT = np.float32(10.0)  # beyond it tanh rounds to 1
WIDE = 32
BETA1, BETA2 = np.float32(0.9), np.float32(0.999)


@inline
def _tanh(x):
    """1 - 2 / (1 + e^2x), to 1e-7; without branches, so that a loop of it runs in registers."""
    y = TWO * min(max(x, -FLAT), FLAT)
    n = np.floor(y * LOG2_E + HALF)
    r = y - n * LN2
    p = TERMS[-1]
    for k in range(len(TERMS) - 2, -1, -1):
        p = p * r + TERMS[k]
    power_of_two = np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)
    return ONE - TWO / (ONE + p * power_of_two)


@vectorised
def _turn(source, top, count, n, turned):
    """turned[i // WIDE, r, i % WIDE] = source[top + i, r] for n columns r of `count` rows i."""
    for c in range((count + WIDE - 1) // WIDE):
        first, full = top + c * WIDE, count - c * WIDE
        for r in range(n):
            if full >= WIDE:
                for o in range(WIDE):
                    turned[c, r, o] = source[first + o, r]
            else:
                for o in range(full):
                    turned[c, r, o] = source[first + o, r]


@vectorised
def _outer(left, top, count, turned, width, n, gradient, at):
    """gradient[at + i width + o] += sum over n columns r of left[top + i, r] times entry o of r.

    Entry o is turned[o // WIDE, r, o % WIDE]. The inner loop's length is known when it is compiled.
    """
    sums, q = np.empty((count, WIDE), np.float32), n - n % 4
    for c in range((width + WIDE - 1) // WIDE):
        sums[:] = ZERO
        for r in range(0, q, 4):
            for i in range(count):
                row = top + i
                x0, x1, x2, x3 = left[row, r], left[row, r + 1], left[row, r + 2], left[row, r + 3]
                for o in range(WIDE):
                    sums[i, o] += (x0 * turned[c, r, o] + x1 * turned[c, r + 1, o]) + (
                        x2 * turned[c, r + 2, o] + x3 * turned[c, r + 3, o]
                    )
        for r in range(q, n):
            for i in range(count):
                for o in range(WIDE):
                    sums[i, o] += left[top + i, r] * turned[c, r, o]
        for i in range(count):
            for o in range(min(WIDE, width - c * WIDE)):
                gradient[at + i * width + c * WIDE + o] += sums[i, o]


@vectorised
def _combine(weights, first, stride, source, top, count, out, row, n):
    """out[row] += sum of weights[first + k stride] source[top + k] over k < count."""
    q = count - count % 4
    for k in range(0, q, 4):
        at = first + k * stride
        w0, w1 = weights[at], weights[at + stride]
        w2, w3 = weights[at + 2 * stride], weights[at + 3 * stride]
        for r in range(n):
            out[row, r] += (w0 * source[top + k, r] + w1 * source[top + k + 1, r]) + (
                w2 * source[top + k + 2, r] + w3 * source[top + k + 3, r]
            )
    for k in range(q, count):
        w = weights[first + k * stride]
        for r in range(n):
            out[row, r] += w * source[top + k, r]


@vectorised
def forward(weights, widths, relu, tape, n):
    """Runs a network on the inputs of the tape's first n columns.

    Args:
        weights: ``(P,)`` float32.
        widths: ``(L + 1,)``.
        relu: Whether hidden layers end in max(0, x); else in tanh. The last is linear.
        tape: ``(sum widths, >= n)`` float32, in place.
        n: Columns.
    """
    at, left, last = 0, 0, widths.shape[0] - 2
    for layer in range(last + 1):
        fan, out = widths[layer], widths[layer + 1]
        right, bias = left + fan, at + fan * out
        for o in range(out):
            row = right + o
            for r in range(n):
                tape[row, r] = weights[bias + o]
            _combine(weights, at + o, out, tape, left, fan, tape, row, n)
            if layer == last:
                continue
            if relu:
                for r in range(n):
                    tape[row, r] = max(tape[row, r], ZERO)
            else:
                for r in range(n):
                    tape[row, r] = _tanh(tape[row, r])
        at, left = bias + out, right


@vectorised
def backward(weights, widths, relu, tape, slopes, n, gradient, through):
    """Adds a loss's slopes by the weights to `gradient`.

    Args:
        weights: As for `forward`, which filled the tape.
        widths: See `forward`.
        relu: See `forward`.
        tape: See `forward`.
        slopes: Like the tape; the rows of the outputs hold the loss's slopes, those of hidden
            layers are overwritten with theirs.
        n: Columns.
        gradient: ``(P,)`` float32, in place; ``(0,)``: not wanted.
        through: Whether the inputs' slopes are wanted as well.
    """
    turned = np.zeros(((widths.max() + WIDE - 1) // WIDE, n, WIDE), np.float32)
    ones = np.ones((1, n), np.float32)
    at, right = weights.shape[0], tape.shape[0] - widths[-1]
    for layer in range(widths.shape[0] - 2, -1, -1):
        fan, out = widths[layer], widths[layer + 1]
        left, bias = right - fan, at - out
        at = bias - fan * out
        if not gradient.shape[0]:
            pass
        elif out == 1:
            _turn(tape, left, fan, n, turned)
            _outer(slopes, right, 1, turned, fan, n, gradient, at)
            for r in range(n):
                gradient[bias] += slopes[right, r]
        else:
            _turn(slopes, right, out, n, turned)
            _outer(tape, left, fan, turned, out, n, gradient, at)
            _outer(ones, 0, 1, turned, out, n, gradient, bias)
        for i in range(fan if layer or through else 0):
            row = left + i
            for r in range(n):
                slopes[row, r] = ZERO
            _combine(weights, at + i * out, 1, slopes, right, out, slopes, row, n)
            if layer and relu:
                for r in range(n):
                    slopes[row, r] = slopes[row, r] if tape[row, r] > ZERO else ZERO
            elif layer:
                for r in range(n):
                    slopes[row, r] *= ONE - tape[row, r] * tape[row, r]
        right = left


@vectorised
def run(weights, widths, relu, inputs, out):
    """Outputs of every replicate's network on each of its inputs.

    Args:
        weights: ``(B, >= P)``; the network's are the first.
        widths: See `forward`.
        relu: See `forward`.
        inputs: ``(B, m, widths[0])`` float32.
        out: Output ``(B, m, widths[-1])`` float32.
    """
    B, m, _ = inputs.shape
    tape = np.empty((widths.sum(), m), np.float32)
    last = tape.shape[0] - widths[-1]
    for b in range(B):
        load(inputs[b], tape, 0)
        forward(weights[b], widths, relu, tape, m)
        for r in range(m):
            for o in range(out.shape[2]):
                out[b, r, o] = tape[last + o, r]


@inline
def load(rows, tape, first):
    """Writes rows ``(m, d)`` into the inputs of a tape, from column `first` on."""
    for r in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            tape[j, first + r] = rows[r, j]


@vectorised
def shorten(gradient, longest):
    """Scales a gradient to the length `longest` if it is longer."""
    total = 0.0
    for k in range(gradient.shape[0]):
        total += np.float64(gradient[k]) * np.float64(gradient[k])
    scale = np.float32(min(1.0, longest / (np.sqrt(total) + 1e-6)))
    for k in range(gradient.shape[0]):
        gradient[k] *= scale


@vectorised
def adam(weights, gradient, moments, step, rate, eps):
    """One step of Adam (Kingma & Ba 2015), in place.

    Args:
        weights: ``(P,)`` float32.
        gradient: ``(P,)`` float32; zeros afterwards.
        moments: ``(2, P)`` float32: running means of the gradient and of its square.
        step: Number of the step, from 1.
        rate: Learning rate.
        eps: Added to the root of the second moment.
    """
    scale = np.float32(rate / (1.0 - power(0.9, np.float64(step))))
    lift = np.float32(1.0 / np.sqrt(1.0 - power(0.999, np.float64(step))))
    least = np.float32(eps)
    for k in range(weights.shape[0]):
        g = gradient[k]
        gradient[k] = ZERO
        moments[0, k] = BETA1 * moments[0, k] + (ONE - BETA1) * g
        moments[1, k] = BETA2 * moments[1, k] + (ONE - BETA2) * (g * g)
        weights[k] -= scale * moments[0, k] / (np.sqrt(moments[1, k]) * lift + least)
