"""Conditions: their effects, exact oracle and regret, and invalid values."""

from __future__ import annotations

import re
from itertools import combinations

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import dpb_gym
from dpb_gym import make_problem
from dpb_gym.envs.registration import environment
from dpb_gym.errors import ActionError, AgentError, ParameterError
from dpb_gym.problems.conditions import applicable
from dpb_gym.problems.kinds import kind_of
from dpb_gym.registry import agent_specs

SMALL = {
    "DPB/Assortment-v0": {"horizon": 40, "n_items": 6, "capacity": 3, "dim": 3},
    "DPB/Pricing-v0": {"horizon": 40, "dim": 3},
    "DPB/Recommendation-v0": {"horizon": 40, "dim": 4, "n_arms": 12},
}
TOGETHER: list[dict] = [
    {"drift": "walk"},
    {"drift": {"kind": "abrupt", "changes": 4, "angle": 0.7}},
    {"drift": {"kind": "seasonal", "period": 9}, "available": 0.5},
    {"types": {"count": 2, "spread": 0.5}, "contamination": 0.3, "features": "heavy-tailed"},
    {"types": 3, "available": 0.6, "drift": "walk", "intercept": -0.5, "features": "scaled"},
]


def small(env_id, **conditions):
    return make_problem(env_id, **{**SMALL[env_id], **conditions})


def thetas(problem, seed=0):
    instance, drawn = problem.instance([seed]), []
    for t in range(problem.horizon):
        if t:
            instance.advance()
        drawn.append(instance.round().secret["theta"][0])
    return np.array(drawn)


def of_use(env_id, conditions):
    kind = environment(env_id).kind
    return {k: v for k, v in conditions.items() if k in applicable(kind)}


def rounds(instance, act):
    """Return contexts, feedback and regret of every replicate."""
    seen = [[] for _ in range(instance.replicates)]
    for t in range(instance.problem.horizon):
        if t:
            instance.advance()
        context = instance.context()
        best, value = instance.oracle()
        outcome = instance.respond(act(context, instance.replicates))
        parts = (*context[1:], best, value, *outcome.feedback, outcome.expected, outcome.regret)
        for lane, history in enumerate(seen):
            history.append([p[lane].copy() for p in parts if p is not None])
    return seen


def actions(problem):
    """Return random actions from uniforms that are shared by replicates and differ by round."""
    kind = kind_of(problem.kind)
    drawn = np.random.default_rng(0).random((99, 1, *kind.action_shape(problem.info)))

    def act(context, lanes):
        uniforms = np.repeat(drawn[context.t], lanes, axis=0)
        return kind.random(problem.info, uniforms, context.available)

    return act


@pytest.mark.parametrize("env_id", SMALL)
@pytest.mark.parametrize("conditions", TOGETHER, ids=str)
def test_replicates_do_not_depend_on_the_batch(env_id, conditions):
    problem = small(env_id, **of_use(env_id, conditions))
    batch, alone = problem.instance([3, 4, 5]), problem.instance([4])
    act = actions(problem)
    for together, single in zip(rounds(batch, act)[1], rounds(alone, act)[0], strict=True):
        for left, right in zip(together, single, strict=True):
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("env_id", SMALL)
def test_conditions_that_are_off_change_nothing(env_id):
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


def test_text_and_mapping_are_equivalent():
    env_id = "DPB/Pricing-v0"
    for text, mapping in [
        ("abrupt,changes=4,angle=0.7", {"kind": "abrupt", "changes": 4, "angle": 0.7}),
        ("walk, rate=1e-1", {"kind": "walk", "rate": 0.1}),
    ]:
        told, given = (thetas(small(env_id, drift=d)) for d in (text, mapping))
        np.testing.assert_array_equal(told, given)
    told, given = (small(env_id, types=t) for t in ("4,spread=2", {"count": 4, "spread": 2}))
    np.testing.assert_array_equal(told.instance([0]).oracle()[1], given.instance([0]).oracle()[1])


def test_drift_keeps_the_norm_of_theta_and_follows_its_kind():
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


def test_random_walk_rotates_theta_by_rate_times_root_of_rounds():
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
        action = act(round_.context, 1)
        outcome = instance.respond(action)
        expected = fixed.respond(now, round_, action)[1]
        assert outcome.regret == value - expected
        assert instance.respond(best).regret == 0.0
        differs += fixed.best_action(instance.hidden, round_)[1][0] != value[0]
    assert differs > 30


@pytest.mark.parametrize(
    ("env_id", "conditions", "message"),
    [
        ("DPB/Pricing-v0", {"drift": "slow"}, "drift must be one of 'walk', 'abrupt', 'seasonal'"),
        ("DPB/Pricing-v0", {"drift": "walk,rate"}, "'rate' must be 'parameter=number'"),
        ("DPB/Pricing-v0", {"drift": 0.1}, "a mapping with the key 'kind', got 0.1"),
        ("DPB/Pricing-v0", {"drift": {"kind": "walk", "pace": 1}}, "takes rate, got 'pace'"),
        ("DPB/Pricing-v0", {"drift": {"kind": "walk", "rate": -1}}, "drift: rate must be"),
        ("DPB/Pricing-v0", {"drift": {"kind": "abrupt", "changes": 0}}, "an integer in 1..39"),
        ("DPB/Assortment-v0", {"drift": "walk", "dim": 1}, "needs dim >= 2"),
        ("DPB/Assortment-v0", {"drifting": "walk"}, "unexpected keyword argument 'drifting'"),
        ("DPB/Pricing-v0", {"available": 0.5}, "no sense for pricing: a price can always be"),
        ("DPB/Assortment-v0", {"available": 0.0}, "available must be a finite number in (0.0, 1.0"),
        (
            "DPB/Assortment-v0",
            {"available": np.zeros((40, 6))},
            "least 1 to be offered, round 1",
        ),
        ("DPB/Assortment-v0", {"available": np.ones((40, 5))}, "must have shape (any, 6)"),
        ("DPB/Assortment-v0", {"available": np.full((40, 6), 0.5)}, "an array of 0 and 1"),
        ("DPB/JesterReplay-v0", {"drift": "walk"}, "needs a problem with a parameter theta"),
    ],
)
def test_invalid_values_are_rejected(env_id, conditions, message):
    with pytest.raises(ParameterError, match=re.escape(message)):
        make_problem(env_id, **{**SMALL.get(env_id, {}), **conditions})


def test_availability_has_its_probability_and_leaves_enough_items():
    instance = small("DPB/Assortment-v0", available=0.3, exactly=True).instance(range(400))
    mask = instance.context().available
    assert mask.shape == (400, 6) and (mask.sum(axis=1) >= 3).all()
    wide = make_problem("DPB/Recommendation-v0", horizon=5, n_candidates=50, available=0.3)
    assert wide.info.masked
    mask = wide.instance(range(400)).context().available
    assert mask.mean() == pytest.approx(0.3, abs=0.01)
    few = small("DPB/Recommendation-v0", available=1e-9).instance([0])
    assert few.context().available.sum() == 1


def test_an_array_of_bits_is_followed_round_by_round(tmp_path):
    rows = np.random.default_rng(0).random((40, 5)) < 0.6
    rows[:, 2] = True
    np.save(tmp_path / "rows.npy", rows)
    for given in (rows, rows.tolist(), str(tmp_path / "rows.npy")):
        instance = small("DPB/Recommendation-v0", available=given).instance([1, 2])
        instance.advance()
        np.testing.assert_array_equal(instance.context().available, rows[[1, 1]])


@pytest.mark.parametrize("env_id", ["DPB/Assortment-v0", "DPB/Recommendation-v0"])
@pytest.mark.parametrize(
    "more",
    [{}, {"exactly": True, "revenues": "signed"}, {"types": 2}],
    ids=["", "exactly", "types"],
)
def test_the_oracle_is_the_best_of_what_is_available(env_id, more):
    if "exactly" in more and env_id != "DPB/Assortment-v0":
        more = {"fresh": True, "n_arms": 100}
    problem = small(env_id, available=0.5, **more)
    instance, info = problem.instance([3]), problem.info
    size = range(info.capacity if info.exactly else 1, info.capacity + 1) if info.n_items else [1]
    for t in range(15):
        if t:
            instance.advance()
        pool = np.flatnonzero(instance.context().available[0])
        best, value = instance.oracle()
        assert set(best.ravel()) <= {*pool, -1}
        tried = [
            [*items] + [-1] * ((info.capacity or 1) - k)
            for k in size
            for items in combinations(pool.tolist(), k)
        ]
        shape = (1, info.capacity) if info.n_items else (1,)
        values = [instance.respond(np.reshape(items, shape)).expected[0] for items in tried]
        worst_offer = 0.0 if info.n_items and not info.exactly else -np.inf
        assert value[0] == pytest.approx(max(*values, worst_offer), rel=1e-12)


def test_error_for_unavailable_items_names_item_replicate_and_round():
    rows = np.ones((40, 6))
    rows[1:, 4] = 0
    instance = small("DPB/Assortment-v0", available=rows).instance([0, 1])
    instance.respond(np.array([[0, 4, -1]] * 2))
    instance.advance()
    with pytest.raises(ActionError, match="item 4 of replicate 1 is not available in round 2"):
        instance.respond(np.array([[0, 1, -1], [0, 4, -1]]))
    with pytest.raises(ActionError, match=r"holds an item outside 0\.\.5"):
        instance.respond(np.array([[0, 1, -1], [0, 6, -1]]))


KNOWN = [
    name
    for name, spec in sorted(agent_specs().items())
    # tests/sb3 tests the same of agents with networks
    if spec.entry_point.startswith("dpb_agents")
    and not spec.fixed_arms
    and name not in ("ppo", "dqn", "sac")
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "env_id, more",
    [
        ("DPB/Assortment-v0", {"exactly": True, "revenues": "signed"}),
        ("DPB/Assortment-v0", {}),
        ("DPB/Recommendation-v0", {"interactions_per_user": 8}),
    ],
)
def test_every_agent_offers_available_items_only(env_id, more):
    kind, kwargs = environment(env_id).kind, {**SMALL[env_id], **more, "available": 0.4}
    result = dpb_gym.evaluate(
        env_id,
        agents=[n for n in KNOWN if {kind, "any"} & set(agent_specs()[n].supports)],
        horizon=kwargs.pop("horizon"),
        replicates=2,
        env_kwargs=kwargs,
        budgets=["rho=1"],
    )
    assert not result.failures


class Stubborn(dpb_gym.SingleAgent):
    def act(self, context):
        return 0


def test_agents_that_ignore_availability_raise_an_error():
    dpb_gym.register_agent("stubborn", supports=["recommendation"])(Stubborn)
    message = "candidate 0 of seed 0 is not available in round"
    with pytest.raises(AgentError, match=message):
        dpb_gym.evaluate(
            "DPB/Recommendation-v0",
            agents=["stubborn"],
            horizon=30,
            replicates=1,
            env_kwargs={"available": 0.5},
        )


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
@pytest.mark.parametrize("env_id", ["DPB/Assortment-v0", "DPB/Recommendation-v0"])
def test_info_contains_the_availability_of_the_next_customer(env_id, mode):
    kwargs = {**SMALL[env_id], "horizon": 4, "available": 0.4, "obs_mode": "dict"}
    vector = gym.make_vec(env_id, num_envs=2, autoreset_mode=AutoresetMode(mode), **kwargs)
    singles = [lambda: gym.make(env_id, **kwargs)] * 2
    single = SyncVectorEnv(singles, autoreset_mode=AutoresetMode(mode))
    seen, infos = vector.reset(seed=5)
    assert data_equivalence((seen, infos), single.reset(seed=5))
    for _ in range(10):
        np.testing.assert_array_equal(seen["available"], infos["available"])
        first = infos["available"].argmax(axis=1)
        action = np.repeat(first[:, None], 3, axis=1) if "Assortment" in env_id else first
        seen, *rest, infos = vector.step(action)
        other, *others, known = single.step(action)
        assert data_equivalence((seen, rest, infos), (other, others, known))
