"""Conditions: what they change, that oracle and regret stay exact, and what is refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from dpb_gym import make_problem
from dpb_gym.errors import ParameterError

SMALL = {
    "DPB/Assortment-v0": {"horizon": 40, "n_items": 6, "capacity": 3, "dim": 3},
    "DPB/Pricing-v0": {"horizon": 40, "dim": 3},
    "DPB/Recommendation-v0": {"horizon": 40, "dim": 4, "n_arms": 12},
}
DRIFTS = ["walk", {"kind": "abrupt", "changes": 4, "angle": 0.7}, {"kind": "seasonal", "period": 9}]


def small(env_id, **conditions):
    return make_problem(env_id, **SMALL[env_id], **conditions)


def thetas(problem, seed=0):
    instance, found = problem.instance([seed]), []
    for t in range(problem.horizon):
        if t:
            instance.advance()
        found.append(instance.round().secret["theta"][0])
    return np.array(found)


def rounds(instance, lane, act):
    """What one lane sees, with the action that `act` makes of the first round's uniforms."""
    seen = []
    for t in range(instance.problem.horizon):
        if t:
            instance.advance()
        context = instance.context()
        best, value = instance.oracle()
        outcome = instance.respond(act(t, instance.replicates))
        parts = (*context[1:], best, value, *outcome.feedback, outcome.expected, outcome.regret)
        seen.append([p[lane].copy() for p in parts if p is not None])
    return seen


def actions(problem):
    """The same action for all lanes, another one each round."""
    rng = np.random.default_rng(0)
    if problem.kind == "assortment":
        drawn = [rng.permutation(problem.info.n_items)[: problem.info.capacity] for _ in range(99)]
    elif problem.kind == "pricing":
        drawn = list(rng.random(99))
    else:
        drawn = list(rng.integers(0, problem.info.n_candidates, 99))
    return lambda t, lanes: np.array([drawn[t]] * lanes)


@pytest.mark.parametrize("env_id", SMALL)
@pytest.mark.parametrize("conditions", [{"drift": d} for d in DRIFTS], ids=str)
def test_a_lane_of_a_batch_equals_a_replicate_alone(env_id, conditions):
    problem = small(env_id, **conditions)
    batch, alone = problem.instance([3, 4, 5]), problem.instance([4])
    for together, single in zip(
        rounds(batch, 1, actions(problem)), rounds(alone, 0, actions(problem))
    ):
        for left, right in zip(together, single, strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("env_id", SMALL)
def test_a_condition_that_is_off_leaves_the_problem(env_id):
    problem = small(env_id, drift=None)
    assert type(problem) is type(small(env_id))


@pytest.mark.parametrize("env_id", SMALL)
def test_the_first_theta_and_all_contexts_are_those_without_drift(env_id):
    plain, moved = small(env_id).instance([7]), small(env_id, drift="walk").instance([7])
    np.testing.assert_array_equal(plain.hidden["theta"], moved.round().secret["theta"])
    for _ in range(39):
        plain.advance()
        moved.advance()
        np.testing.assert_array_equal(plain.context().features, moved.context().features)


def test_theta_keeps_its_norm_and_moves_as_the_kind_says():
    env_id = "DPB/Recommendation-v0"
    walk = thetas(small(env_id, drift={"kind": "walk", "rate": 0.05}))
    np.testing.assert_allclose(np.linalg.norm(walk, axis=1), 2.0, rtol=1e-12)
    steps = np.linalg.norm(np.diff(walk, axis=0), axis=1)
    assert steps.min() > 0.0 and steps.max() < 4 * 0.05 * 2.0
    abrupt = thetas(small(env_id, drift={"kind": "abrupt", "changes": 3, "angle": 0.5}))
    moved = np.flatnonzero(np.abs(np.diff(abrupt, axis=0)).max(axis=1)) + 1
    assert moved.tolist() == [10, 20, 30]
    for t in moved:
        assert abrupt[t] @ abrupt[t - 1] == pytest.approx(4 * np.cos(0.5))
    season = thetas(small(env_id, drift={"kind": "seasonal", "period": 20, "angle": 0.8}))
    np.testing.assert_allclose(season[9], season[19], atol=1e-9)
    assert season[4] @ season[9] == pytest.approx(4 * np.cos(0.8))


def test_the_walk_turns_by_rate_times_root_of_rounds():
    wide = {"horizon": 400, "dim": 50, "drift": {"kind": "walk", "rate": 0.02}}
    walks = [thetas(make_problem("DPB/Recommendation-v0", **wide), s) for s in range(40)]
    angles = [np.arccos(np.clip(w[0] @ w[100] / 4, -1, 1)) for w in walks]
    assert np.mean(angles) == pytest.approx(0.02 * np.sqrt(100), rel=0.1)


@pytest.mark.parametrize("env_id", SMALL)
def test_regret_is_against_the_best_action_of_the_moving_theta(env_id):
    problem = small(env_id, drift={"kind": "walk", "rate": 0.3})
    fixed = small(env_id)
    instance, act = problem.instance([2]), actions(problem)
    differs = 0
    for t in range(problem.horizon):
        if t:
            instance.advance()
        round_ = instance.round()
        now = {**instance.hidden, "theta": round_.secret["theta"]}
        best, value = fixed.best_action(now, round_)
        outcome = instance.respond(act(t, 1))
        expected = fixed.respond(now, round_, act(t, 1))[1]
        assert outcome.regret == value - expected
        assert instance.respond(best).regret == 0.0
        differs += fixed.best_action(instance.hidden, round_)[1][0] != value[0]
    assert differs > 30


@pytest.mark.parametrize(
    ("env_id", "conditions", "message"),
    [
        ("DPB/Pricing-v0", {"drift": "slow"}, "drift must be one of 'walk', 'abrupt', 'seasonal'"),
        ("DPB/Pricing-v0", {"drift": 0.1}, "a mapping with the key 'kind', got 0.1"),
        ("DPB/Pricing-v0", {"drift": {"kind": "walk", "pace": 1}}, "takes rate, got 'pace'"),
        ("DPB/Pricing-v0", {"drift": {"kind": "walk", "rate": -1}}, "drift: rate must be"),
        ("DPB/Pricing-v0", {"drift": {"kind": "abrupt", "changes": 0}}, "an integer in 1..39"),
        ("DPB/Assortment-v0", {"drift": "walk", "dim": 1}, "needs dim >= 2"),
        ("DPB/Assortment-v0", {"drifting": "walk"}, "has no parameter 'drifting'"),
        ("DPB/JesterReplay-v0", {"drift": "walk"}, "needs a problem with a parameter theta"),
    ],
)
def test_nonsense_is_refused(env_id, conditions, message):
    with pytest.raises(ParameterError, match=re.escape(message)):
        make_problem(env_id, **{**SMALL.get(env_id, {}), **conditions})
