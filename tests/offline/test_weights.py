"""Changed and marginalised weights: formulas by hand, enumeration, chosen limits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from log_helpers import estimate, small_log, weights_of

from dpb_gym import offline
from dpb_gym.errors import ParameterError, UnknownNameError
from dpb_gym.offline import LoggedData, Terms

CHANGES = {
    "switch": ("threshold", lambda w, t: w if w <= t else 0.0),
    "clipped": ("clip", min),
    "shrunk": ("shrinkage", lambda w, t: t * w / (w * w + t)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("limit", [0.4, 1.3, 2.5])
def test_changed_weights_by_hand(change, limit):
    log, target, q = small_log()
    option, weigh = CHANGES[change]
    kept = [weigh(float(w), limit) for w in weights_of(log, target)]
    assert any(abs(a - b) > 1e-9 for a, b in zip(kept, weights_of(log, target)))
    shown = q[np.arange(len(log)), log.actions]
    ips = math.fsum(w * r for w, r in zip(kept, log.rewards)) / len(log)
    extra = math.fsum(w * (r - s) for w, r, s in zip(kept, log.rewards, shown)) / len(log)
    dm = float((target * q).sum(axis=1).mean())
    for name, expected in ((f"{change}-ips", ips), (f"{change}-dr", dm + extra)):
        estimated = estimate(name, log, target, q=q, **{option: limit})
        assert estimated == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("change", CHANGES)
def test_without_a_limit_nothing_is_changed(change):
    log, target, q = small_log()
    option, _ = CHANGES[change]
    for base in ("ips", "dr"):
        estimated = estimate(f"{change}-{base}", log, target, q=q, **{option: math.inf})
        assert estimated == estimate(base, log, target, q=q)
        if change != "clipped":
            nothing = estimate(f"{change}-{base}", log, target, q=q, **{option: 0.0})
            dm = estimate("dm", log, target, q=q) if base == "dr" else 0.0
            assert nothing == pytest.approx(dm, abs=1e-12)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("base", ["ips", "dr"])
def test_chosen_limits_have_the_smallest_estimated_error(change, base):
    log, target, q = small_log(n=300, m=4)
    name = f"{change}-{base}"
    evaluation = offline.evaluate_offline(target, log, estimators=name, q=q, resamples=0)
    chosen = evaluation.settings[name]
    w, n = weights_of(log, target), len(log)
    shown = q[np.arange(n), log.actions] if base == "dr" else np.zeros(n)
    offset = (target * q).sum(axis=1) if base == "dr" else np.zeros(n)
    weigh = CHANGES[change][1]

    def score(limit):
        kept = w if math.isinf(limit) else np.array([weigh(float(v), limit) for v in w])
        terms = offset + kept * (log.rewards - shown)
        return terms.var(ddof=1) / n + (w - kept).mean() ** 2  # rewards lie in [0, 1]

    grid = np.quantile(w, np.linspace(0, 1, 21), method="higher")
    grid = np.append(grid**2, math.inf) if change == "shrunk" else grid
    assert chosen in grid
    assert score(chosen) == pytest.approx(min(map(score, grid)))
    assert len({round(score(limit), 12) for limit in grid}) > 5, "the choice matters"


# ------------------------------------------------------------------ groups of candidates

BEHAVIOUR = np.array([[0.5, 0.2, 0.1, 0.2], [0.1, 0.4, 0.3, 0.2]])
TARGET = np.array([[0.1, 0.4, 0.5, 0.0], [0.3, 0.1, 0.2, 0.4]])
GROUPS = np.array([0, 0, 1, 1])


def expectation(name, mean, groups):
    """Over all logs of two rounds and Bernoulli rewards, and the estimate's variance."""
    total, first, second = 0.0, 0.0, 0.0
    for actions in itertools.product(range(4), repeat=2):
        for rewards in itertools.product((0.0, 1.0), repeat=2):
            chance = 1.0
            for i in range(2):
                p = mean[i, actions[i]]
                chance *= BEHAVIOUR[i, actions[i]] * (p if rewards[i] else 1.0 - p)
            log = LoggedData.from_arrays(
                np.zeros((2, 4, 1)), actions, None, rewards, (0, 1), behaviour=BEHAVIOUR
            )
            estimated = estimate(name, log, TARGET, **({"groups": groups} if groups is not None
                                                           else {}))  # fmt: skip
            total, first, second = (
                total + chance, first + chance * estimated, second + chance * estimated**2,
            )  # fmt: skip
    assert total == pytest.approx(1.0)
    return first, second - first**2


def test_marginalised_weights_by_enumeration():
    alike = np.array([[0.8, 0.8, 0.3, 0.3], [0.2, 0.2, 0.9, 0.9]])
    true = float((TARGET * alike).sum(axis=1).mean())
    mean, variance = expectation("mips", alike, GROUPS)
    plain, larger = expectation("ips", alike, None)
    assert mean == pytest.approx(true, abs=1e-12) and plain == pytest.approx(true, abs=1e-12)
    assert variance < 0.9 * larger
    apart = np.array([[0.9, 0.1, 0.3, 0.3], [0.2, 0.2, 0.9, 0.1]])
    assert abs(expectation("mips", apart, GROUPS)[0] - (TARGET * apart).sum(axis=1).mean()) > 0.05
    # every candidate a group of its own: plain IPS
    assert expectation("mips", apart, np.arange(4)) == pytest.approx(
        expectation("ips", apart, None)
    )


def test_groups_may_differ_between_rounds():
    log = LoggedData.from_arrays(
        np.zeros((2, 4, 1)), [0, 3], None, [1.0, 0.5], (0, 1), behaviour=BEHAVIOUR
    )
    estimated = estimate("mips", log, TARGET, groups=[[0, 1, 0, 1], [0, 0, 1, 1]])
    assert estimated == pytest.approx((0.6 / 0.6 * 1.0 + 0.6 / 0.5 * 0.5) / 2)


def test_marginalised_estimates_need_groups_and_a_behaviour():
    log, target, _ = small_log()
    for options in ({}, {"groups": [0, 0, 1]}):
        with pytest.raises(ParameterError, match="groups"):
            estimate("mips", log, target, **options)
    with pytest.raises(UnknownNameError, match="did you mean 'groups'"):
        offline.evaluate_offline(target, log, group=[0, 0, 1])


def test_self_normalised_doubly_robust_by_hand():
    log, target, q = small_log()
    w = weights_of(log, target)
    gap = log.rewards - q[np.arange(len(log)), log.actions]
    expected = (target * q).sum(axis=1).mean() + (w * gap).sum() / w.sum()
    sndr = offline.evaluate_offline(target, log, estimators="sndr", q=q, resamples=300)["sndr"]
    assert sndr.value == pytest.approx(expected, abs=1e-12)
    # linearised error against the jackknife
    n = len(log)
    left = [
        np.delete((target * q).sum(axis=1), i).mean()
        + np.delete(w * gap, i).sum() / np.delete(w, i).sum()
        for i in range(n)
    ]
    jackknife = math.sqrt((n - 1) / n * np.sum((np.array(left) - np.mean(left)) ** 2))
    assert sndr.std_error == pytest.approx(jackknife, rel=0.1)
    assert sndr.percentile[0] < expected < sndr.percentile[1]


def test_linearised_errors_of_sums_of_ratios_agree_with_the_jackknife():
    """Two ratios and a mean, denominators far from one."""
    rng = np.random.default_rng(2)
    n = 500
    bottom = np.array([3.0, 0.2]) * rng.gamma(2.0, size=(n, 2))
    top = bottom * rng.random((n, 2)) + 0.1 * rng.normal(size=(n, 2))
    base = rng.normal(size=n)
    terms = Terms.ratio(top, bottom, base)
    keep = ~np.eye(n, dtype=bool)
    left = np.array([
        base[k].mean() + (top[k].mean(axis=0) / bottom[k].mean(axis=0)).sum() for k in keep
    ])  # fmt: skip
    assert terms.value == pytest.approx(base.mean() + (top.mean(0) / bottom.mean(0)).sum())
    jackknife = math.sqrt((n - 1) / n * np.sum((left - left.mean()) ** 2))
    assert terms.std_error == pytest.approx(jackknife, rel=0.01)
