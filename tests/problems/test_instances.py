"""Properties of every problem: replicates do not depend on the batch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_gym import streams
from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import HorizonExceeded, ParameterError
from dpb_gym.problems.base import Context

CASES = {
    "assortment": ("DPB/Assortment-v0", {"n_items": 12, "capacity": 3}),
    "assortment-random-revenues": (
        "DPB/Assortment-v0",
        {"n_items": 12, "capacity": 3, "revenues": "random", "design": "low-rank"},
    ),
    "pricing": ("DPB/Pricing-v0", {}),
    "pricing-gaussian": ("DPB/PricingTwoType-v0", {"demand": "gaussian"}),
    "recommendation": ("DPB/Recommendation-v0", {"reward": "gaussian"}),
    "recommendation-blocks": (
        "DPB/RecommendationRankDeficient-v0",
        {"block_rounds": 7, "interactions_per_user": 3, "user_order": "shuffled"},
    ),
    "multi-armed": ("DPB/MultiArmed-v0", {"n_arms": 4, "interactions_per_user": 3}),
    "movielens": ("DPB/MovieLensReplay-v0", {"dim": 8, "protocol": "replay"}),
}


def action_for(problem, rng):
    info = problem.info
    if info.kind == "assortment":
        return rng.integers(-1, info.n_items, info.capacity)
    if info.kind == "pricing":
        return rng.random()
    return rng.integers(info.n_candidates)


def play(problem, seeds, rounds):
    """Return all observable values of `rounds` rounds, with actions fixed by each seed."""
    instance = problem.instance(seeds)
    rngs = [np.random.default_rng(s + 1000) for s in seeds]
    log = []
    for t in range(rounds):
        context = instance.context()
        actions = np.array([action_for(problem, r) for r in rngs])
        outcome = instance.respond(actions)
        arrays = [v for v in (*context, *outcome.feedback) if isinstance(v, np.ndarray)]
        arrays += [outcome.expected, outcome.regret, instance.oracle()[1], instance.oracle()[0]]
        log.append([a.copy() for a in arrays])
        if t < rounds - 1:
            instance.advance()
    return log


@pytest.mark.parametrize("case", CASES)
@settings(max_examples=8, deadline=None)
@given(seeds=st.lists(st.integers(0, 10**6), min_size=1, max_size=9))
def test_a_replicate_is_the_same_in_any_batch(case, seeds):
    env_id, kwargs = CASES[case]
    problem = make_problem(env_id, horizon=25, **kwargs)
    together = play(problem, seeds, 25)
    for i in {0, len(seeds) - 1}:
        alone = play(problem, [seeds[i]], 25)
        for row, single in zip(together, alone):
            for a, b in zip(row, single):
                np.testing.assert_array_equal(a[i], b[0])


@pytest.mark.parametrize("case", CASES)
def test_block_length_changes_nothing(case, monkeypatch):
    env_id, kwargs = CASES[case]
    problem = make_problem(env_id, horizon=40, **kwargs)
    long = play(problem, [1, 2], 40)
    monkeypatch.setattr(streams, "MAX_BLOCK_ROUNDS", 7)
    short = play(problem, [1, 2], 40)
    for a, b in zip(long, short):
        for x, y in zip(a, b):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("case", CASES)
def test_replicates_restart_independently(case):
    """Replicates that restart equal separate instances."""
    env_id, kwargs = CASES[case]
    problem = make_problem(env_id, horizon=30, **kwargs)
    alone = play(problem, [7], 20)
    instance = problem.instance([3, 7])
    for _ in range(5):
        instance.advance(np.array([True, False]))
    instance.restart(0, 11, 0)
    rng = np.random.default_rng(1007)
    for t in range(20):
        mine = action_for(problem, rng)
        outcome = instance.respond(np.array([mine, mine]))
        np.testing.assert_array_equal(instance.context().features[1], alone[t][0][0])
        np.testing.assert_array_equal(outcome.regret[1], alone[t][-3][0])
        instance.advance(np.array([t % 2 == 0, True]))


@pytest.mark.parametrize("case", CASES)
def test_regret_is_never_negative_and_zero_for_the_oracle(case):
    env_id, kwargs = CASES[case]
    problem = make_problem(env_id, horizon=40, **kwargs)
    for row in play(problem, [0, 1, 2], 40):
        assert (row[-3] >= 0).all()
    instance = problem.instance([0, 1, 2])
    for _ in range(39):
        assert (instance.respond(instance.oracle()[0]).regret == 0).all()
        instance.advance()


def test_the_horizon_ends_the_instance():
    instance = make_problem("DPB/Pricing-v0", horizon=2).instance([0])
    instance.advance()
    with pytest.raises(HorizonExceeded):
        instance.advance()


def test_streams_of_a_replicate_are_different():
    drawn = {s: streams.generator(5, s).random() for s in streams.Stream}
    assert len(set(drawn.values())) == len(drawn)
    assert streams.generator(5, streams.Stream.AGENT, 1).random() != drawn[streams.Stream.AGENT]


@pytest.mark.parametrize("seeds", [[], [-1], [1.5], ["a"], [True]])
def test_bad_seeds(seeds):
    with pytest.raises(ParameterError):
        make_problem("DPB/Pricing-v0").instance(seeds)


def test_context_never_contains_hidden_state():
    for env_id, kwargs in CASES.values():
        problem = make_problem(env_id, horizon=10, **kwargs)
        context = problem.instance([0]).context()
        assert set(Context._fields) == {"t", "features", "revenues", "arms", "users", "available"}
        assert not any(hasattr(context, name) for name in ("theta", "rewards"))


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("DPB/Recommendation-v0", {"n_arms": 30_000, "dim": 20}),  # a pool beyond the block's size
        ("DPB/Recommendation-v0", {"users_per_horizon": 9, "user_order": "shuffled"}),
        ("DPB/RecommendationRankDeficient-v0", {"block_rounds": 7}),
        ("DPB/Assortment-v0", {"n_items": 9, "capacity": 3, "dim": 2, "revenues": "random"}),
        ("DPB/Pricing-v0", {"customers": "drifting", "demand": "gaussian"}),
        ("DPB/MovieLensReplay-v0", {"dim": 5, "protocol": "replay"}),
    ],
)
def test_rounds_prepared_ahead_are_the_rounds_of_a_batch(env_id, kwargs):
    """Rounds of a single replicate are computed in batches, with the same bits."""
    problem = make_problem(env_id, horizon=700, **kwargs)
    alone, batch = problem.instance([3]), problem.instance([2, 3])
    for t in range(1, 701):
        one, two = alone.context(), batch.context()
        assert one.t == two.t == t
        for a, b in zip(one[1:], two[1:]):
            assert a is None or np.array_equal(a[0], b[1])
        action = batch.oracle()[0]
        assert np.array_equal(alone.oracle()[0][0], action[1])
        if t % 50 == 1:
            action = np.zeros_like(action)
        ours, theirs = alone.respond(action[1:]), batch.respond(action)
        for a, b in zip((*ours.feedback, *ours[1:]), (*theirs.feedback, *theirs[1:])):
            assert a is None or a[0] == b[1]
        if t < 700:
            alone.advance(), batch.advance()
    with pytest.raises(HorizonExceeded):
        alone.advance()
