"""Small fully connected networks in single precision, each a flat vector of weights.

A network of widths ``(w[0], ..., w[L])`` has, layer by layer, a matrix ``(w[l], w[l + 1])`` and a
bias. Kernels work on a packed copy of the weights and on tapes. A tape contains the inputs, one per
row, and the outputs of all layers. Columns are split into blocks of `WIDE`, padded with zeros; rows
are padded to multiples of 4. Inner loops run along the columns of a block and are vectorised. Every
sum has a fixed order, without fast-math, so bits depend on neither processor nor batch.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import inline, vectorised
from dpb_gym.kernels.elementary import power

ZERO, ONE, FLAT = np.float32(0.0), np.float32(1.0), np.float32(7.9)
# tanh(x) / x as a rational function of x^2 up to |x| = 7.9, where tanh rounds to 1; coefficients
# from benchmarks/fit_elementary.py.
TANH_TOP = tuple(np.float32(x) for x in (
    0.9999999999389004, 0.13513215132946377, 0.0036546989177805318, 2.334457962587079e-05,
    1.7464192718864605e-08,
))  # fmt: skip
TANH_BOTTOM = tuple(np.float32(x) for x in (
    1.0, 0.46846548331017546, 0.026476530848326824, 0.0003550397396980005, 9.38463500534329e-07,
))  # fmt: skip
WIDE = 32
NARROW = 4  # layers with at most so many outputs are computed as scalar products
BETA1, BETA2 = np.float32(0.9), np.float32(0.999)


@inline
def _tanh(x):
    """Return tanh(x), to 4e-7; without branches, so that loops are vectorised."""
    y = min(max(x, -FLAT), FLAT)
    square = y * y
    top, bottom = TANH_TOP[4], TANH_BOTTOM[4]
    for k in range(3, -1, -1):
        top, bottom = top * square + TANH_TOP[k], bottom * square + TANH_BOTTOM[k]
    return y * top / bottom


@inline
def _up(n):
    return (n + 3) // 4 * 4


@inline
def _blocks(width):
    return (width + WIDE - 1) // WIDE


@vectorised
def count(widths):
    """Return the numbers of weights, of entries of the packed copy, and of blocks of the tape."""
    flat, packed, blocks = 0, 0, _blocks(widths[0])
    for layer in range(widths.shape[0] - 1):
        fan, out = widths[layer], widths[layer + 1]
        flat += (fan + 1) * out
        packed += (_blocks(out) * (_up(fan) + 1) + _blocks(fan) * _up(out)) * WIDE
        blocks += _blocks(out)
    return flat, packed, blocks


@vectorised
def new_tape(widths, n):
    """Return a tape of zeros for up to n inputs, ``(blocks, rows * WIDE)``."""
    return np.zeros((count(widths)[2], _up(n) * WIDE), np.float32)


@inline
def load(rows, tape, first):
    """Write rows ``(m, d)`` into the inputs of a tape, from row `first` on."""
    for c in range(_blocks(rows.shape[1])):
        for r in range(rows.shape[0]):
            for j in range(min(WIDE, rows.shape[1] - c * WIDE)):
                tape[c, (first + r) * WIDE + j] = rows[r, c * WIDE + j]


@inline
def _move(weights, widths, packed, back, through):
    """Copy weights to the packed layout, or `back`; see `pack` and `unpack`."""
    at, to = 0, 0
    for layer in range(widths.shape[0] - 1):
        fan, out = widths[layer], widths[layer + 1]
        bias = to + _blocks(out) * _up(fan) * WIDE
        turned, narrow = bias + _blocks(out) * WIDE, out <= NARROW
        for i in range(fan + 1):
            for c in range(0 if back and narrow and i < fan else _blocks(out)):
                wide, first = min(WIDE, out - c * WIDE), at + i * out + c * WIDE
                k = bias + c * WIDE if i == fan else to + (c * _up(fan) + i) * WIDE
                if back:
                    _copy(packed[k : k + wide], weights[first : first + wide])
                else:
                    _copy(weights[first : first + wide], packed[k : k + wide])
        for k in range(_blocks(fan) if narrow or (not back and (layer or through)) else 0):
            for o in range(out):
                first = turned + (k * _up(out) + o) * WIDE
                row = packed[first : first + min(WIDE, fan - k * WIDE)]
                column = weights[at + k * WIDE * out + o :]
                for i in range(row.shape[0]):
                    if back:
                        column[i * out] = row[i]
                    else:
                        row[i] = column[i * out]
        at, to = at + (fan + 1) * out, turned + _blocks(fan) * _up(out) * WIDE


@vectorised
def pack(weights, widths, packed, through):
    """Pack a network's weights.

    Per layer: the matrix and the bias, in blocks of outputs, then the transposed matrix, in blocks
    of inputs. The first layer's transposed matrix is written only if gradients go `through` it.
    Padding is not written and stays 0.
    """
    _move(weights, widths, packed, False, through)


@vectorised
def unpack(packed, widths, gradient):
    """Write a packed gradient (see `backward`) to a flat one and set the packed one to 0."""
    _move(gradient, widths, packed, True, False)
    packed[:] = ZERO


@inline
def _copy(source, target):
    for k in range(target.shape[0]):
        target[k] = source[k]


@vectorised
def _multiply(left, across, along, rows, terms, right, out):
    """out[i WIDE + o] += sum over k < terms of left[i across + k along] right[k WIDE + o].

    For i < rows and o < WIDE; rows and terms are multiples of 4.
    """
    one, two = np.uint64(along), np.uint64(2 * along)
    three, four = np.uint64(3 * along), np.uint64(4 * along)
    for i in range(0, rows, 4):
        a, b = np.uint64(i * across), np.uint64((i + 1) * across)
        c, d = np.uint64((i + 2) * across), np.uint64((i + 3) * across)
        y = out[i * WIDE : (i + 4) * WIDE]
        for k in range(0, terms, 4):
            a0, a1, a2, a3 = left[a], left[a + one], left[a + two], left[a + three]
            b0, b1, b2, b3 = left[b], left[b + one], left[b + two], left[b + three]
            c0, c1, c2, c3 = left[c], left[c + one], left[c + two], left[c + three]
            d0, d1, d2, d3 = left[d], left[d + one], left[d + two], left[d + three]
            a, b, c, d = a + four, b + four, c + four, d + four
            x = right[k * WIDE : (k + 4) * WIDE]
            for o in range(WIDE):
                x0, x1, x2, x3 = x[o], x[WIDE + o], x[2 * WIDE + o], x[3 * WIDE + o]
                y[o] += (a0 * x0 + a1 * x1) + (a2 * x2 + a3 * x3)
                y[WIDE + o] += (b0 * x0 + b1 * x1) + (b2 * x2 + b3 * x3)
                y[2 * WIDE + o] += (c0 * x0 + c1 * x1) + (c2 * x2 + c3 * x3)
                y[3 * WIDE + o] += (d0 * x0 + d1 * x1) + (d2 * x2 + d3 * x3)


@vectorised
def _project(left, rows, right, out):
    """out[r WIDE] += left[r WIDE + k] right[k] summed over k < WIDE, for r < rows."""
    half = WIDE // 2
    part = np.empty(4 * half, np.float32)
    for r in range(0, rows, 4):
        x = left[r * WIDE : (r + 4) * WIDE]
        for k in range(half):
            a, b = right[k], right[half + k]
            part[k] = x[k] * a + x[half + k] * b
            part[half + k] = x[2 * half + k] * a + x[3 * half + k] * b
            part[2 * half + k] = x[4 * half + k] * a + x[5 * half + k] * b
            part[3 * half + k] = x[6 * half + k] * a + x[7 * half + k] * b
        for i in range(4):
            y = part[i * half : (i + 1) * half]
            even = ((y[0] + y[4]) + (y[8] + y[12])) + ((y[2] + y[6]) + (y[10] + y[14]))
            odd = ((y[1] + y[5]) + (y[9] + y[13])) + ((y[3] + y[7]) + (y[11] + y[15]))
            out[(r + i) * WIDE] += even + odd


@inline
def _add_to_all(rows, out, shift):
    """out[r WIDE + o] += shift[o], for r < rows and o < WIDE."""
    for r in range(0, rows, 4):
        y = out[r * WIDE : (r + 4) * WIDE]
        for o in range(WIDE):
            b = shift[o]
            y[o] += b
            y[WIDE + o] += b
            y[2 * WIDE + o] += b
            y[3 * WIDE + o] += b


@inline
def _add_all(rows, left, sums):
    """sums[o] += left[r WIDE + o] over all r < rows, for o < WIDE."""
    for r in range(0, rows, 4):
        x = left[r * WIDE : (r + 4) * WIDE]
        for o in range(WIDE):
            sums[o] += (x[o] + x[WIDE + o]) + (x[2 * WIDE + o] + x[3 * WIDE + o])


@vectorised
def forward(packed, widths, relu, tape, n):
    """Run a network on the inputs of the tape's first n rows.

    Args:
        packed: See `pack`.
        widths: ``(L + 1,)``.
        relu: Whether the hidden activation is ReLU, else tanh. The last layer is linear.
        tape: See `new_tape`; in place.
        n: Number of inputs.
    """
    at, left, last, rows = 0, 0, widths.shape[0] - 2, _up(n)
    for layer in range(last + 1):
        fan, out = widths[layer], widths[layer + 1]
        right, bias = left + _blocks(fan), at + _blocks(out) * _up(fan) * WIDE
        turned = bias + _blocks(out) * WIDE
        for c in range(_blocks(out)):
            made = tape[right + c, : rows * WIDE]
            made[:] = ZERO
            _add_to_all(rows, made, packed[bias + c * WIDE : bias + (c + 1) * WIDE])
            for k in range(_blocks(fan)):
                seen, terms = tape[left + k], min(WIDE, _up(fan) - k * WIDE)
                if out > NARROW:
                    matrix = packed[at + (c * _up(fan) + k * WIDE) * WIDE :]
                    _multiply(seen, WIDE, 1, rows, terms, matrix, made)
                for o in range(out if out <= NARROW else 0):
                    row = turned + (k * _up(out) + o) * WIDE
                    _project(seen, rows, packed[row : row + WIDE], made[o:])
            if layer < last and relu:
                for i in range(made.shape[0]):
                    made[i] = max(made[i], ZERO)
            elif layer < last:
                for i in range(made.shape[0]):
                    made[i] = _tanh(made[i])
        at, left = turned + _blocks(fan) * _up(out) * WIDE, right


@vectorised
def backward(packed, widths, relu, tape, slopes, n, gradient, through):
    """Add the gradient of a loss by the weights to a packed gradient.

    Args:
        packed: As for `forward`, which filled the tape.
        widths: See `forward`.
        relu: See `forward`.
        tape: See `forward`.
        slopes: Shaped like the tape. Input: derivatives of the loss by the outputs. Output:
            derivatives by the hidden layers.
        n: Number of inputs.
        gradient: Packed (transposed for narrow layers), in place; ``(0,)``: not computed.
        through: Whether to compute derivatives by the inputs as well.
    """
    at, right, rows = packed.shape[0], tape.shape[0] - _blocks(widths[-1]), _up(n)
    slopes[right:, n * WIDE : rows * WIDE] = ZERO
    for layer in range(widths.shape[0] - 2, -1, -1):
        fan, out = widths[layer], widths[layer + 1]
        left, turned = right - _blocks(fan), at - _blocks(fan) * _up(out) * WIDE
        bias = turned - _blocks(out) * WIDE
        at = bias - _blocks(out) * _up(fan) * WIDE
        for c in range(_blocks(out) if gradient.shape[0] else 0):
            pull = slopes[right + c]
            for k in range(_blocks(fan)):
                if out <= NARROW:
                    sums = gradient[turned + k * _up(out) * WIDE :]
                    _multiply(pull, 1, WIDE, _up(out), rows, tape[left + k], sums)
                else:
                    sums, terms = gradient[at + (c * _up(fan) + k * WIDE) * WIDE :], _up(fan)
                    terms = min(WIDE, terms - k * WIDE)
                    _multiply(tape[left + k], 1, WIDE, terms, rows, pull, sums)
            _add_all(rows, pull, gradient[bias + c * WIDE : bias + (c + 1) * WIDE])
        for k in range(_blocks(fan) if layer or through else 0):
            seen, pulled = tape[left + k, : rows * WIDE], slopes[left + k, : rows * WIDE]
            pulled[:] = ZERO
            for c in range(_blocks(out)):
                matrix = packed[turned + (k * _up(out) + c * WIDE) * WIDE :]
                terms = min(WIDE, _up(out) - c * WIDE)
                _multiply(slopes[right + c], WIDE, 1, rows, terms, matrix, pulled)
            if layer and relu:
                for i in range(pulled.shape[0]):
                    pulled[i] = pulled[i] if seen[i] > ZERO else ZERO
            elif layer:
                for i in range(pulled.shape[0]):
                    pulled[i] *= ONE - seen[i] * seen[i]
        right = left


@vectorised
def run(weights, widths, relu, inputs, out):
    """Compute the outputs of every replicate's network on each of its inputs.

    Args:
        weights: ``(B, >= P)``; the network's weights are the first P.
        widths: See `forward`.
        relu: See `forward`.
        inputs: ``(B, m, widths[0])`` float32.
        out: Output ``(B, m, widths[-1])`` float32.
    """
    B, m, _ = inputs.shape
    tape, packed = new_tape(widths, m), np.zeros(count(widths)[1], np.float32)
    last = tape.shape[0] - _blocks(widths[-1])
    for b in range(B):
        load(inputs[b], tape, 0)
        pack(weights[b], widths, packed, False)
        forward(packed, widths, relu, tape, m)
        for r in range(m):
            for o in range(out.shape[2]):
                out[b, r, o] = tape[last + o // WIDE, r * WIDE + o % WIDE]


@vectorised
def shorten(gradient, longest):
    """Clip the norm of a gradient at `longest`."""
    sums, full = np.zeros(8), gradient.shape[0] // 8 * 8
    for first in range(0, full, 8):
        part = gradient[first : first + 8]
        for k in range(8):
            sums[k] += np.float64(part[k]) * np.float64(part[k])
    for k in range(full, gradient.shape[0]):
        sums[k - full] += np.float64(gradient[k]) * np.float64(gradient[k])
    total = ((sums[0] + sums[4]) + (sums[2] + sums[6])) + (
        (sums[1] + sums[5]) + (sums[3] + sums[7])
    )
    scale = np.float32(min(1.0, longest / (np.sqrt(total) + 1e-6)))
    for k in range(gradient.shape[0]):
        gradient[k] *= scale


@vectorised
def adam(weights, gradient, mean, square, step, rate, eps):
    """One step of Adam (Kingma & Ba 2015), in place.

    Args:
        weights: ``(P,)`` float32.
        gradient: ``(P,)`` float32; zeros afterwards.
        mean: ``(P,)`` float32: running mean of the gradient.
        square: ``(P,)`` float32: running mean of its square.
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
        mean[k] = BETA1 * mean[k] + (ONE - BETA1) * g
        square[k] = BETA2 * square[k] + (ONE - BETA2) * (g * g)
        weights[k] -= scale * mean[k] / (np.sqrt(square[k]) * lift + least)
