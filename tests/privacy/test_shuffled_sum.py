"""Shuffled sums: their bound against enumeration, their sensitivity against search, their noise."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from curated import curator
from test_sensitivity import search

from dpb_gym.audits import audit_sum
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.privacy import Composition, Guarantee, PSDBall, Segment, ShuffledBitsEvent, ShuffledSum
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.privacy.releasers.shuffled_bits import FLIP

ORDERS = 1.0 + np.geomspace(1e-2, 1e5, 150)


def counted(bits: list[float]) -> np.ndarray:
    """Return the distribution of the number of ones among independent bits."""
    return reduce(np.convolve, [np.array([1.0 - p, p]) for p in bits])


def worlds(epsilon: float, coins: int, differ: int, others: str) -> list[np.ndarray]:
    """Return the two distributions of the shuffled count; `differ` bits of one user differ."""
    flip = 1.0 / (1.0 + math.exp(epsilon))
    rest = [flip if bit == "0" else 1.0 - flip for bit in others] + [0.5] * coins
    return [counted(rest + [one] * differ) for one in (flip, 1.0 - flip)]


def renyi(p: np.ndarray, q: np.ndarray, orders: np.ndarray) -> np.ndarray:
    logs = orders[:, None] * np.log(p) + (1.0 - orders[:, None]) * np.log(q)
    top = logs.max(axis=1)
    return (top + np.log(np.exp(logs - top[:, None]).sum(axis=1))) / (orders - 1.0)


@pytest.mark.parametrize("epsilon", [0.3, math.log((1 - FLIP) / FLIP), 2.39])
@pytest.mark.parametrize("coins", [1, 2, 7, 40])
def test_the_bound_is_never_below_the_truth(epsilon, coins):
    """All Renyi orders and the hockey stick, with and without adversarial bits of others."""
    for differ, others in itertools.product((1, 2, 5), ("", "0", "000", "0101")):
        event = ShuffledBitsEvent(epsilon, coins, differ)
        claim = Guarantee("shuffle", "user-round", curve=Composition.of(event))
        pair = worlds(epsilon, coins, differ, others)
        for p, q in (pair, pair[::-1]):
            assert (renyi(p, q, ORDERS) <= event.rdp(ORDERS) * (1 + 1e-9)).all()
            for eps in (0.5, 2.0) if others == "0" and coins > 2 else ():
                stick = np.maximum(p - math.exp(eps) * q, 0.0).sum()
                assert stick <= claim.delta(eps) + 1e-12


def test_the_bound_is_not_loose_and_has_its_limits():
    """The constant is tight: randomised response alone and many coins attain it."""
    for coins, epsilon in ((400, 0.3), (1, 0.1)):
        p, q = worlds(epsilon, coins, 1, "")
        exact = (renyi(p, q, ORDERS) / ORDERS).max()
        # the bit itself adds to the coins
        assert exact > 0.97 * ShuffledBitsEvent(epsilon, coins + 1, 1.0).zcdp
    with pytest.raises(ParameterError, match="epsilon"):
        ShuffledBitsEvent(2.5, 10, 1.0)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({"width": 2, "clip": 0.7}, 2),
        ({"symmetric": 2, "clip": PSDBall(1.25)}, 2),
        ({"width": 2, "clip": Segment(-0.5, 0.5)}, 1),
    ],
)
def test_no_pair_of_records_differs_in_more_bits(options, size):
    """Return the largest number of steps between two customers' counts, by search."""
    own = curator("rho=1", horizon=None)
    sums = behind(own.shuffled_sum(**options, batch=1, levels=11))
    event = sums.cost(own.most_rho)
    sums.ready()
    along = np.array([[0.6, 0.8]]) if isinstance(options["clip"], Segment) else None

    def steps(flat: np.ndarray) -> np.ndarray:
        sums._total[:] = 0.0
        record = flat
        if "symmetric" in options:
            record = np.outer(flat, flat) / max(1.0, float(flat @ flat) / 4.0)
        sums._take(record[:1] if along is not None else record[None], along, sums._total)
        counts = sums._total[0] / sums.grid
        assert np.abs(counts).max() <= sums.levels * (1 + 1e-12), "a coordinate has so many bits"
        assert np.abs(counts - np.rint(counts)).max() < 1e-9
        return counts

    def distance(pair: np.ndarray) -> float:
        return float(np.linalg.norm(steps(pair[:size]) - steps(pair[size:])))

    ends = [np.array([5.0, 0, -5.0, 0]), np.array([9.0, 0, 0, 9.0])]
    starts = [np.array([5.0, -5.0])] if size == 1 else ends
    best = search(distance, starts, 200)
    assert 0.8 * event.sensitivity <= best <= event.sensitivity
    assert event.zcdp <= 1.0


@pytest.mark.parametrize("budget", ["rho=0.7", "eps=2,delta=1e-5", None])
def test_sums_are_unbiased_with_the_noise_that_is_stated(budget):
    B, batch = 4000, 5
    own = curator(budget, B, notion="shuffle")
    sums = own.shuffled_sum(2, clip=1.0, batch=batch)
    record = np.array([0.6, -0.8])
    for _ in range(batch):
        sums.add(np.tile(record, (B, 1)))
    error = sums.release() - batch * record
    if budget is None:
        assert sums.sigma == 0.0 and np.abs(error).max() < 1e-9
        return
    rounding = batch * sums.grid / 2
    assert np.abs(error.mean(axis=0)).max() < rounding + 5 * sums.sigma / math.sqrt(B)
    assert error.std(axis=0) == pytest.approx(sums.sigma, rel=0.06)
    assert own.ledger.spent == pytest.approx(own.budget.limit, rel=2e-3)
    assert own.guarantee.notion == "shuffle"
    assert str(own.guarantee).startswith("shuffle zCDP rho=")


def test_a_batch_needs_exactly_its_customers():
    for budget in ("rho=1", None):
        sums = curator(budget).shuffled_sum(1, clip=1.0, batch=3)
        for given in (2, 4):
            for _ in range(given - sums.rounds):
                sums.add([[0.5]])
            with pytest.raises(ParameterError, match="of 3 customers"):
                sums.release()


def test_the_notion_has_shuffled_sums_only():
    with pytest.raises(BudgetError, match="shuffled sums only"):
        curator(notion="shuffle").batch_sum(2, clip=1.0)
    curator(notion="central").shuffled_sum(2, clip=1.0, batch=4)


@pytest.mark.parametrize(
    ("change", "setting"),
    [
        ({"clip": None}, {}),
        ({"sigma": 1.0}, {}),
        ({"batch": 0}, {}),
        ({"levels": 0}, {}),
        ({"sampling": 0.5, "clip": Segment(0, 1)}, {}),
        ({}, {"relation": "add-remove"}),
    ],
)
def test_unsupported_options_are_rejected(change, setting):
    with pytest.raises(ParameterError):
        ShuffledSum(curator(**setting), 2, **{"clip": 1.0, "batch": 4, **change})


@pytest.mark.slow
def test_an_audit_detects_missing_coins():
    """As shipped it passes; a quarter of the coins, or records of twice the bits, do not."""

    def fewer(own):
        sums = own.shuffled_sum(2, clip=1.0, batch=1)
        own.seal()
        shipped = behind(sums)._bits_sent
        behind(sums)._bits_sent = replace(shipped, coins=shipped.coins // 4)
        return sums

    pair = [1.0, 0.0], [-1.0, 0.0]
    shipped = audit_sum(lambda own: own.shuffled_sum(2, clip=1.0, batch=1), *pair, runs=1000)
    assert shipped.verdict == "PASS" and shipped.rho > 0.1
    assert audit_sum(fewer, *pair, runs=1000).verdict == "FAIL"
    unclipped = audit_sum(
        lambda own: own.shuffled_sum(2, clip=1.0, sensitivity=1.0, batch=1), *pair, runs=1000
    )
    assert unclipped.verdict == "FAIL"
