"""Gradient boosting of histogram trees for responses of 0 and 1, as a check of other models.

The trees are those of scikit-learn's `HistGradientBoostingClassifier` with its default parameters
(Ke et al. 2017): features in at most 255 bins, logistic loss, leaves split best first.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.elementary import sigmoid

BINS = 255
TREES = 100
LEAVES = 31
FEWEST = 20  # rows of a leaf
RATE = 0.1
LEAST_HESSIAN = 1e-3
TINY = 1e-15
# places of the sums of a bin
GRADIENT = 0
HESSIAN = 1
COUNT = 2


@jit
def _add_rows(codes, rows, slopes, bends, sums):
    """Write the sums of the rows' gradients, Hessians and numbers by feature and bin."""
    sums[:] = 0.0
    for j in range(codes.shape[0]):
        own = sums[j]
        column = codes[j]
        for row in rows:
            at = column[row]
            own[at, GRADIENT] += slopes[row]
            own[at, HESSIAN] += bends[row]
            own[at, COUNT] += 1.0


@jit
def _value(slope, bend):
    """Return the value of a leaf: Newton's step."""
    return -slope / (bend + TINY)


@jit
def _best_split(sums, bins, slope, bend, count, value):
    """Return the gain of a node's best split, its feature and last bin on the left, and sums.

    The sums are those of gradients, Hessians and numbers on the left. The gain of no split is 0.
    """
    best = 0.0
    feature = -1
    last = -1
    left = (0.0, 0.0, 0.0)
    for j in range(sums.shape[0]):
        g = 0.0
        h = 0.0
        n = 0.0
        for i in range(bins[j] - 1):
            g += sums[j, i, GRADIENT]
            h += sums[j, i, HESSIAN]
            n += sums[j, i, COUNT]
            if n < FEWEST or h < LEAST_HESSIAN:
                continue
            if count - n < FEWEST or bend - h < LEAST_HESSIAN:
                break
            other = slope - g
            gain = value * slope - _value(g, h) * g - _value(other, bend - h) * other
            if gain > best:
                best = gain
                feature = j
                last = i
                left = (g, h, n)
    return best, feature, last, left


@jit
def _divide(column, last, rows, spare):
    """Move rows of bins up to `last` to the front, in order, and return their number."""
    front = 0
    back = 0
    for row in rows:
        if column[row] <= last:
            rows[front] = row
            front += 1
        else:
            spare[back] = row
            back += 1
    for i in range(back):
        rows[front + i] = spare[i]
    return front


@jit
def _grow(codes, bins, slopes, bends, rows, spare, sums, splits, ends, values):
    """Grow one tree, best first. Return its number of nodes.

    Args:
        codes: Bins of the rows ``(k, n)``.
        bins: Number of bins of each feature ``(k,)``.
        slopes: Gradients ``(n,)``.
        bends: Hessians ``(n,)``.
        rows: Scratch ``(n,)``: the rows, those of a node together.
        spare: Scratch ``(n,)``.
        sums: Scratch ``(nodes, k, BINS, 3)``.
        splits: Output: feature, last bin on the left and first of two children of each node,
            ``(nodes, 3)``; a feature of -1 is a leaf.
        ends: Output: first row of a node in `rows` and one more than its last, ``(nodes, 2)``.
        values: Output ``(nodes,)``.
    """
    n = rows.shape[0]
    for i in range(n):
        rows[i] = i
    totals = np.zeros((splits.shape[0], 3))
    gains = np.zeros(splits.shape[0])
    lefts = np.zeros((splits.shape[0], 3))
    splits[0] = -1
    ends[0, 0] = 0
    ends[0, 1] = n
    values[0] = 0.0
    _add_rows(codes, rows, slopes, bends, sums[0])
    for i in range(bins[0]):
        for part in range(3):
            totals[0, part] += sums[0, 0, i, part]
    nodes = 1
    fresh = 0
    for leaves in range(1, LEAVES):
        # nodes from `fresh` on have no split yet
        for node in range(fresh, nodes):
            gains[node] = 0.0
            if totals[node, COUNT] >= 2 * FEWEST:
                g, h, count = totals[node]
                gains[node], feature, last, left = _best_split(
                    sums[node], bins, g, h, count, values[node]
                )
                splits[node, 1] = last
                splits[node, 2] = feature
                lefts[node, GRADIENT], lefts[node, HESSIAN], lefts[node, COUNT] = left
        parent = 0
        for node in range(nodes):
            if gains[node] > gains[parent]:
                parent = node
        if gains[parent] <= 0.0:
            break
        gains[parent] = 0.0
        feature = splits[parent, 2]
        start = ends[parent, 0]
        stop = ends[parent, 1]
        middle = start + _divide(codes[feature], splits[parent, 1], rows[start:stop], spare)
        splits[parent, 0] = feature
        splits[parent, 2] = nodes
        for child in (nodes, nodes + 1):
            splits[child] = -1
            ends[child, 0] = start if child == nodes else middle
            ends[child, 1] = middle if child == nodes else stop
            for part in range(3):
                left = lefts[parent, part]
                totals[child, part] = left if child == nodes else totals[parent, part] - left
            values[child] = _value(totals[child, GRADIENT], totals[child, HESSIAN])
        if leaves == LEAVES - 1:
            nodes += 2
            break
        small = nodes if middle - start < stop - middle else nodes + 1
        large = 2 * nodes + 1 - small
        own = rows[ends[small, 0] : ends[small, 1]]
        _add_rows(codes, own, slopes, bends, sums[small])
        sums[large] = sums[parent] - sums[small]
        fresh = nodes
        nodes += 2
    return nodes


@jit
def boosted_scores(codes, hit, others, bins, scores):
    """Compute log-odds of other rows by trees that are fitted to rows with responses.

    Args:
        codes: Bins of the fitted rows, uint8 ``(k, n)``.
        hit: Their responses ``(n,)``.
        others: Bins of the other rows, uint8 ``(k, m)``.
        bins: Number of bins of each feature ``(k,)``.
        scores: Input: the log-odds to begin with; output ``(m,)``.
    """
    k, n = codes.shape
    nodes = 2 * LEAVES - 1
    own = np.full(n, scores[0])
    slopes = np.empty(n, np.float32)
    bends = np.empty(n, np.float32)
    rows = np.empty(n, np.int64)
    spare = np.empty(n, np.int64)
    sums = np.empty((nodes, k, BINS, 3))
    splits = np.empty((nodes, 3), np.int64)
    ends = np.empty((nodes, 2), np.int64)
    values = np.empty(nodes)
    for _ in range(TREES):
        for i in range(n):
            chance = sigmoid(own[i])
            slopes[i] = chance - (1.0 if hit[i] else 0.0)
            bends[i] = chance * (1.0 - chance)
        count = _grow(codes, bins, slopes, bends, rows, spare, sums, splits, ends, values)
        for node in range(count):
            if splits[node, 0] < 0:
                for row in rows[ends[node, 0] : ends[node, 1]]:
                    own[row] += RATE * values[node]
        for row in range(others.shape[1]):
            node = 0
            while splits[node, 0] >= 0:
                right = others[splits[node, 0], row] > splits[node, 1]
                node = splits[node, 2] + (1 if right else 0)
            scores[row] += RATE * values[node]
