"""After a fork the parent's curators go on, and the child's are handed over."""

from __future__ import annotations

import copy
import os

import numpy as np
import pytest

from dpb_gym.privacy import Curator, NoiseSource
from dpb_gym.privacy.forks import fork_simulation
from tests.children import error_of, in_child

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")


def curator(**options):
    """Return a curator of one replicate with seeded noise."""
    return Curator("rho=1", noise=NoiseSource.from_seed(0, 1), horizon=100, **options)


MAKERS = {
    "running": (lambda c: c.running_sum(2, clip=1.0), ()),
    "batch": (lambda c: c.batch_sum(2, clip=1.0), ()),
    "user": (lambda c: c.user_sum(2, radius=1.0, reward=(0.0, 1.0)), ([[1.0, 0.0]], [5])),
}


@pytest.mark.parametrize("kind", MAKERS)
def test_every_use_of_a_releaser_in_the_child_is_refused(kind):
    make, more = MAKERS[kind]
    own = curator(protects=("central", "user-rewards" if kind == "user" else "reward"))
    sums = make(own)
    record = ([1.0], *more) if more else (np.ones((1, 2)),)
    sums.add(*record)
    copied = copy.deepcopy(own)
    messages = in_child(
        lambda: [
            error_of(lambda: sums.add(*record)),
            error_of(lambda: sums.value if kind == "running" else sums.release()),
            error_of(lambda: copied.releasers[0].add(*record)),
            error_of(lambda: make(own)),
            error_of(own.seal),
            error_of(lambda: own.charge(own.ledger.entries[0].event, what="more")),
        ]
    )
    assert all("forked" in text and "parent process goes on" in text for text in messages), messages
    sums.add(*record)
    assert own.handed_over is None and "rho=1" in str(own.guarantee)


def test_a_curator_that_has_no_releaser_yet_is_handed_over_too():
    own = curator()
    single = curator()
    messages = in_child(
        lambda: [
            error_of(lambda: own.running_sum(1, clip=1.0)),
            error_of(lambda: single.single(0)),
        ]
    )
    assert all("forked" in text for text in messages), messages
    own.running_sum(1, clip=1.0).add([[0.5]])


def test_curators_of_single_replicates_are_handed_over():
    whole = curator()
    sums = whole.single(0).running_sum(1, clip=1.0)
    sums.add([0.5])
    assert "forked" in in_child(lambda: error_of(lambda: sums.add([0.5])))
    sums.add([0.5])


def test_curators_made_in_the_child_and_those_without_a_budget_work():
    exact = Curator(None, replicates=1, horizon=100)
    totals = exact.running_sum(1, clip=1.0)

    def child():
        own = curator()
        sums = own.running_sum(1, clip=1.0)
        sums.add([[0.5]])
        totals.add([[0.5]])
        return [str(own.guarantee)[:13], float(totals.value[0, 0])]

    assert in_child(child) == ["central zCDP ", 0.5]


def test_a_child_of_the_child_is_handed_over_too():
    def child():
        own = curator()
        sums = own.running_sum(1, clip=1.0)
        inner = in_child(lambda: error_of(lambda: sums.add([[0.5]])))
        sums.add([[0.5]])
        return inner

    assert "forked" in in_child(child)


def test_a_simulation_that_the_library_forks_goes_on():
    own = curator()
    sums = own.running_sum(1, clip=1.0)
    sums.add([[0.5]])

    def child():
        sums.add([[0.5]])
        return sums.value.tolist()

    child_sums = in_child(child, fork=fork_simulation)
    sums.add([[0.5]])
    assert child_sums == sums.value.tolist(), "the child had the same seeded noise"
    assert "forked" in in_child(lambda: error_of(lambda: sums.add([[0.5]]))), "only that fork"
