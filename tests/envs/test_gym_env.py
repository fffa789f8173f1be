"""Gymnasium environments: the checker, single against vector, bad input."""

from __future__ import annotations

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import dpb_gym
from dpb_gym.envs.core import only
from dpb_gym.envs.registration import ENVIRONMENTS
from dpb_gym.errors import (
    ActionError,
    DPBError,
    HorizonExceeded,
    ParameterError,
    UnknownNameError,
)

SMALL = {"n_items": 8, "capacity": 3, "dim": 3}
REPLAY = {"dim": 6}

CASES = {
    "assortment": ("DPB/Assortment-v0", {}),
    "assortment-dict": ("DPB/Assortment-v0", {**SMALL, "obs_mode": "dict"}),
    "assortment-scores": ("DPB/Assortment-v0", {**SMALL, "action_mode": "scores"}),
    "assortment-mask": (
        "DPB/Assortment-v0",
        {**SMALL, "action_mode": "mask", "revenues": "random"},
    ),
    "assortment-index": ("DPB/Assortment-v0", {**SMALL, "action_mode": "index"}),
    "assortment-clip": ("DPB/Assortment-v0", {**SMALL, "context_norm": "clip"}),
    "assortment-scale": (
        "DPB/Assortment-v0",
        {**SMALL, "context_norm": "scale", "design": "low-rank"},
    ),
    "assortment-pricing": ("DPB/AssortmentPricing-v0", {"n_items": 6, "capacity": 3}),
    "assortment-one-item": ("DPB/Assortment-v0", {"n_items": 1, "capacity": 1, "dim": 1}),
    "expedia": ("DPB/ExpediaAssortment-v0", {"revenues": "price", "context_norm": "bound"}),
    "assortment-exactly": (
        "DPB/Assortment-v0",
        {"n_items": 6, "capacity": 3, "exactly": True, "revenues": "signed", "drift": "walk"},
    ),
    "assortment-available": (
        "DPB/Assortment-v0",
        # everything, so that samples are allowed
        {"n_items": 6, "capacity": 3, "available": np.ones((99, 6)), "obs_mode": "dict"},
    ),
    "recommendation-available": ("DPB/Recommendation-v0", {"available": np.ones((99, 5))}),
    "assortment-misspecified": (
        "DPB/Assortment-v0",
        {"n_items": 6, "capacity": 3, "types": 2, "choice": "nested", "features": "correlated"},
    ),
    "pricing-misspecified": ("DPB/Pricing-v0", {"demand": "probit", "contamination": 0.3}),
    "recommendation-misspecified": (
        "DPB/Recommendation-v0",
        {"types": 2, "features": "heavy-tailed", "intercept": 0.5},
    ),
    "pricing-drift": ("DPB/Pricing-v0", {"drift": "seasonal"}),
    "pricing": ("DPB/Pricing-v0", {}),
    "pricing-dict": ("DPB/Pricing-v0", {"obs_mode": "dict", "customers": "drifting"}),
    "pricing-grid": ("DPB/Pricing-v0", {"n_prices": 11, "dim": 12}),
    "pricing-gaussian": ("DPB/Pricing-v0", {"demand": "gaussian", "context_norm": "clip"}),
    "pricing-two-type": ("DPB/PricingTwoType-v0", {}),
    "recommendation": ("DPB/Recommendation-v0", {}),
    "multi-armed": ("DPB/MultiArmed-v0", {}),
    "recommendation-dict": (
        "DPB/Recommendation-v0",
        {"obs_mode": "dict", "interactions_per_user": 2, "reward": "gaussian"},
    ),
    "recommendation-fresh": ("DPB/Recommendation-v0", {"fresh": True, "context_norm": "scale"}),
    "recommendation-rank-deficient": ("DPB/RecommendationRankDeficient-v0", {}),
    "recommendation-high-dim": ("DPB/RecommendationHighDim-v0", {}),
    "movielens": ("DPB/MovieLensReplay-v0", REPLAY),
    "movielens-replay": (
        "DPB/MovieLensReplay-v0",
        {**REPLAY, "protocol": "replay", "obs_mode": "dict"},
    ),
    "movielens-personalised": ("DPB/MovieLensReplay-v0", {**REPLAY, "personalised": True}),
    "jester": ("DPB/JesterReplay-v0", REPLAY),
    "jester-binary": ("DPB/JesterReplay-v0", {**REPLAY, "binary": 5.0}),
}


def make(case, **kwargs):
    env_id, defaults = CASES[case]
    return gym.make(env_id, **{"horizon": 5, **defaults, **kwargs})


def make_vec(case, num_envs, **kwargs):
    env_id, defaults = CASES[case]
    return gym.make_vec(env_id, num_envs=num_envs, **{"horizon": 5, **defaults, **kwargs})


@pytest.mark.slow
def test_every_id_is_covered():
    assert {env_id for env_id, _ in CASES.values()} == {e for e in ENVIRONMENTS if e[:4] == "DPB/"}
    assert all(env_id in gym.registry for env_id in ENVIRONMENTS)


@pytest.mark.parametrize("case", CASES)
def test_gymnasium_checker_without_warnings(case):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env = make(case)
        check_env(env.unwrapped)
        env.reset(seed=1)
        for _ in range(5):  # through the passive checker of gymnasium.make
            env.step(env.action_space.sample())
        env.close()


@pytest.mark.parametrize("env_id", ENVIRONMENTS)
def test_defaults_and_spec_round_trip(env_id):
    env = gym.make(env_id, horizon=3)
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert data_equivalence(env.reset(seed=4), again.reset(seed=4))
    assert gym.make(f"dpb_gym:{env_id}").spec.id == env_id
    assert env.spec.max_episode_steps == 3 and again.spec.max_episode_steps == 3


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("case", CASES)
def test_vector_equals_single_with_autoreset(case, mode):
    native = make_vec(case, 3, autoreset_mode=mode)
    singles = SyncVectorEnv([lambda: make(case)] * 3, autoreset_mode=mode)
    assert native.observation_space == singles.observation_space
    assert native.action_space == singles.action_space
    assert native.metadata["autoreset_mode"] is mode
    native.action_space.seed(0)
    assert data_equivalence(native.reset(seed=3), singles.reset(seed=3))
    for _ in range(13):
        action = native.action_space.sample()
        ours, theirs = native.step(action), singles.step(action)
        for a, b in zip(ours[:4], theirs[:4]):
            assert data_equivalence(a, b)
        assert set(ours[4]) == set(theirs[4])
        assert_same_infos(ours[4], theirs[4])
        assert ours[0] in native.observation_space


def assert_same_infos(ours, theirs):
    for key, value in ours.items():
        if isinstance(value, dict):
            assert_same_infos(value, theirs[key])
        elif value.dtype == object:
            for a, b in zip(value, theirs[key]):
                assert (a is None and b is None) or data_equivalence(a, b)
        else:
            np.testing.assert_array_equal(value, theirs[key], err_msg=key)
            assert value.dtype == theirs[key].dtype, key


@pytest.mark.parametrize("case", ["assortment-dict", "pricing", "recommendation-dict", "movielens"])
def test_partial_resets_equal_single_ones(case):
    native = make_vec(case, 3, autoreset_mode=AutoresetMode.DISABLED)
    singles = SyncVectorEnv([lambda: make(case)] * 3, autoreset_mode=AutoresetMode.DISABLED)
    native.action_space.seed(1)
    native.reset(seed=8), singles.reset(seed=8)
    for step in range(4):
        action = native.action_space.sample()
        ours, theirs = native.step(action), singles.step(action)
        assert data_equivalence(ours[0], theirs[0])
        if step == 1:
            mask = np.array([False, True, False])
            a = native.reset(options={"reset_mask": mask})
            b = singles.reset(options={"reset_mask": mask.copy()})
            assert data_equivalence(a[0], b[0])
    ours = native.step(native.action_space.sample())
    assert ours[3].tolist() == [True, False, True]
    with pytest.raises(HorizonExceeded, match=r"\[0, 2\]"):
        native.step(native.action_space.sample())


@pytest.mark.parametrize("case", CASES)
def test_info_keys_are_the_same_each_step_and_fresh(case):
    env = make(case, horizon=6)
    first = env.reset(seed=0)[1]
    keys, infos = set(first), []
    for t in range(1, 7):
        _, reward, terminated, truncated, info = env.step(env.action_space.sample())
        infos.append(info)
        assert set(info) == keys and info["t"] == t
        assert {k: np.asarray(v).dtype for k, v in first.items()} == {
            k: np.asarray(v).dtype for k, v in info.items()
        }
        assert {"expected_reward", "oracle_reward", "regret"} <= keys
        assert "theta" not in str(info)
        assert type(reward) is float and type(truncated) is bool and not terminated
        assert truncated == (t == 6)
        assert info["regret"] >= 0
        plain = [type(v) in (int, float, bool) for k, v in info.items() if k != "available"]
        assert all(plain)
    assert len({id(i) for i in infos}) == 6


def test_the_spec_states_the_horizon_and_a_shorter_limit_truncates():
    aware = gym.wrappers.TimeAwareObservation(gym.make("DPB/Pricing-v0", horizon=4))
    assert aware.reset(seed=0)[0] in aware.observation_space
    short = gym.make("DPB/Pricing-v0", horizon=9, max_episode_steps=2)
    native = gym.make_vec("DPB/Pricing-v0", num_envs=2, horizon=9, max_episode_steps=2)
    singles = gym.make_vec(
        "DPB/Pricing-v0", 2, vectorization_mode="sync", horizon=9, max_episode_steps=2
    )
    assert short.spec.max_episode_steps == 2
    short.reset(seed=5), native.reset(seed=5), singles.reset(seed=5)
    native.action_space.seed(2)
    for t in range(1, 7):
        action = native.action_space.sample()
        ours, theirs = native.step(action), singles.step(action)
        assert all(data_equivalence(a, b) for a, b in zip(ours[:4], theirs[:4]))
        assert ours[3].all() == (t % 3 == 2)
    with pytest.raises(ParameterError, match="max_episode_steps"):
        gym.make_vec("DPB/Pricing-v0", 2, max_episode_steps=0)
    assert gym.make_vec("DPB/Pricing-v0", 2, horizon=3).spec.max_episode_steps == 3


def test_specs_with_arrays_and_numpy_numbers_are_json():
    rows = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    env = gym.make("DPB/Pricing-v0", horizon=np.int64(50), customers=rows)
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert data_equivalence(env.reset(seed=4), again.reset(seed=4))
    nested = {
        "theta": (0.5, np.float32(0.25), np.array(0.125)),
        "drift": {"kind": "walk", "rate": np.float32(0.5)},
    }
    env = gym.make("DPB/MultiArmed-v0", horizon=9, n_arms=3, **nested)
    again = gym.make(gym.envs.registration.EnvSpec.from_json(env.spec.to_json()))
    assert again.spec.kwargs["theta"] == [0.5, 0.25, 0.125]
    assert again.spec.kwargs["drift"] == {"kind": "walk", "rate": 0.5}
    assert data_equivalence(env.reset(seed=4), again.reset(seed=4))


def test_an_unknown_argument_is_also_a_type_error():
    for make_one in (gym.make, gym.make_vec):
        with pytest.raises(TypeError, match="unexpected keyword argument 'frameskip'"):
            make_one("DPB/Pricing-v0", frameskip=1)


MASKED = {
    "recommendation": ("DPB/Recommendation-v0", {"n_candidates": 5, "dim": 3}),
    "slate": ("DPB/Assortment-v0", {"n_items": 4, "capacity": 2}),
    "mask": ("DPB/Assortment-v0", {"n_items": 4, "capacity": 2, "action_mode": "mask"}),
    "index": ("DPB/Assortment-v0", {"n_items": 4, "capacity": 2, "action_mode": "index"}),
}


@pytest.mark.parametrize("case", MASKED)
def test_action_masks_permit_what_is_available(case):
    env_id, arguments = MASKED[case]
    env = gym.make(env_id, horizon=8, available=0.5, **arguments).unwrapped
    _, info = env.reset(seed=1)
    sizes = set()
    for _ in range(8):
        available, mask = info["available"], env.action_masks()
        if case == "recommendation":
            expected = available
        elif case == "slate":
            expected = np.concatenate([available, available])
        elif case == "mask":
            expected = np.ravel([[True, one] for one in available])
        else:
            table = [[i] for i in range(4)] + [[i, j] for i in range(4) for j in range(i + 1, 4)]
            expected = np.array([all(available[i] for i in slate) for slate in table])
        np.testing.assert_array_equal(mask, expected)
        assert mask.dtype == bool
        sizes.add(int(mask.sum()))
        item = int(np.flatnonzero(available)[0])
        action = {
            "recommendation": item,
            "slate": [item, item],
            "mask": np.eye(5, dtype=np.int8)[item, :4],
            "index": int(np.flatnonzero(mask)[0]),
        }[case]
        info = env.step(action)[4]
    assert len(sizes) > 1, "the mask follows the customer"


def test_action_masks_without_availability_and_of_real_numbers():
    prices = gym.make("DPB/Pricing-v0", n_prices=7).unwrapped
    with pytest.raises(HorizonExceeded):
        prices.action_masks()
    prices.reset(seed=0)
    assert prices.action_masks().tolist() == [True] * 7
    continuous = gym.make("DPB/Pricing-v0").unwrapped
    continuous.reset(seed=0)
    with pytest.raises(ParameterError, match="n_prices"):
        continuous.action_masks()


def test_a_seed_is_a_replicate_and_episodes_differ():
    env = make("pricing-grid")
    first, _ = env.reset(seed=9)
    env.step(0)
    second, _ = env.reset()
    again, _ = env.reset(seed=9)
    np.testing.assert_array_equal(first, again)
    assert (first != second).any()
    np.testing.assert_array_equal(env.reset()[0], second)


def test_unseeded_environments_differ():
    a, b = make("pricing"), make("pricing")
    assert (a.reset()[0] != b.reset()[0]).any()
    v = make_vec("pricing", 4)
    assert len(np.unique(v.reset()[0][:, 0])) == 4


def test_a_rejected_action_leaves_the_round_playable():
    env = make("pricing")
    env.reset(seed=0)
    with pytest.raises(ActionError):
        env.unwrapped.step(np.array([1.5]))
    assert env.step(np.array([0.5], np.float32))[4]["t"] == 1


def test_stepping_past_the_end():
    env = make("pricing").unwrapped
    with pytest.raises(HorizonExceeded):
        env.step(np.array([0.5]))
    env.reset(seed=0)
    for _ in range(5):
        env.step(np.array([0.5]))
    with pytest.raises(HorizonExceeded):
        env.step(np.array([0.5]))
    with pytest.raises(HorizonExceeded):
        make_vec("pricing", 2).unwrapped.step(np.zeros((2, 1)))


BAD_ACTIONS = {
    "assortment-dict": [[0, 1], [0, 1, 8], [-1, 0, 1], [0.0, 1.0, 2.0], "abc", None, [[0, 1, 2]]],
    "assortment-scores": [[0.0] * 7, [np.nan] * 8, [np.inf] * 8, ["a"] * 8],
    "assortment-mask": [[0] * 7, [2] * 8, [0.5] * 8, [-1] * 8],
    "assortment-index": [92, -1, 1.0, [1], np.nan],
    "pricing": [[1.01], [-0.01], [np.nan], [np.inf], 0.5, [0.1, 0.2], ["x"], None],
    "pricing-grid": [11, -1, 0.5, [3], np.nan],
    "recommendation": [5, -1, 1.5, [0], "0"],
    "movielens": [5, -1, 2.0],
}


@pytest.mark.parametrize("case", BAD_ACTIONS)
def test_bad_actions(case):
    single, vector = make(case).unwrapped, make_vec(case, 2).unwrapped
    single.reset(seed=0), vector.reset(seed=0)
    for action in BAD_ACTIONS[case]:
        with pytest.raises(ActionError) as error:
            single.step(action)
        assert len(str(error.value)) > 10
        with pytest.raises(ActionError):
            vector.step([action, action])
    with pytest.raises(ActionError):
        vector.step(np.asarray(vector.single_action_space.sample())[None])


@pytest.mark.parametrize(
    ("case", "action", "shape"),
    [
        ("pricing", 0.5, r"\(1,\), got \(\)"),
        ("recommendation", [0], r"\(\), got \(1,\)"),
        ("assortment-dict", [0, 1], r"\(3,\), got \(2,\)\. To offer fewer items, .*"),
        ("assortment-scores", [[0.0] * 8], r"\(8,\), got \(1, 8\)"),
        ("assortment-mask", [0], r"\(8,\), got \(1,\)"),
    ],
)
def test_errors_speak_of_the_shape_that_was_given(case, action, shape):
    env = make(case)
    env.reset(seed=0)
    with pytest.raises(ActionError, match=f"shape {shape}$"):
        env.unwrapped.step(action)


@pytest.mark.filterwarnings("ignore:.*render_mode")
@pytest.mark.parametrize(
    "kwargs",
    [
        {"horizon": 1},
        {"horizon": float("nan")},
        {"capacity": 101},
        {"colour": "red"},
        {"obs_mode": "image"},
        {"action_mode": "softmax"},
        {"n_prices": 5},
        {"action_mode": "index"},
        {"render_mode": "hologram"},
    ],
)
def test_bad_environment_parameters(kwargs):
    with pytest.raises(ParameterError):
        gym.make("DPB/Assortment-v0", disable_env_checker=True, **kwargs)
    with pytest.raises(ParameterError):
        gym.make_vec("DPB/Assortment-v0", num_envs=2, **kwargs)


def test_bad_vector_parameters():
    for kwargs in ({"num_envs": 0}, {"num_envs": 2, "autoreset_mode": "never"}):
        with pytest.raises(ParameterError):
            gym.make_vec("DPB/Pricing-v0", **kwargs)
    env = make_vec("pricing", 2).unwrapped
    for seed in ([1], [1, -2], "seed", [0.5, 1]):
        with pytest.raises(ParameterError):
            env.reset(seed=seed)
    with pytest.raises(ParameterError):
        env.reset(options={"reset_mask": np.array([True, False])})
    env.reset(seed=0)
    for mask in ([True, False], np.array([1, 0]), np.array([False, False]), np.array([True])):
        with pytest.raises(ParameterError):
            env.reset(options={"reset_mask": mask})
    with pytest.raises(ParameterError):
        make("pricing").unwrapped.reset(seed=-1)


def test_a_problem_that_cannot_be_loaded_is_named():
    dpb_gym.register_environment("Test/Nowhere-v0", "no_such_module:Problem", kind="pricing")
    try:
        with pytest.raises(ParameterError, match="cannot load no_such_module:Problem"):
            gym.make("Test/Nowhere-v0")
    finally:
        del ENVIRONMENTS["Test/Nowhere-v0"], gym.registry["Test/Nowhere-v0"]


def test_unknown_ids_get_close_matches():
    with pytest.raises(UnknownNameError, match=r"DPB/Pricing-v0"):
        dpb_gym.make_problem("DPB/Pricng-v0")
    with pytest.raises(gym.error.NameNotFound):
        gym.make("DPB/Pricng-v0")


def test_action_modes_offer_what_they_say():
    env = make("assortment-index", horizon=200).unwrapped
    table = env.core.actions.table
    assert len(table) == 8 + 28 + 56 and env.action_space.n == len(table)
    assert table[0].tolist() == [0, -1, -1] and table[-1].tolist() == [5, 6, 7]
    decode = make("assortment-scores").unwrapped.core.actions.decode
    scores = np.array([[0.1, 0.9, 0.9, -1, 0.5, 0.9, 0, 0], [0.0] * 8])
    assert decode(scores, 2).tolist() == [[1, 2, 5], [0, 1, 2]]
    decode = make("assortment-mask").unwrapped.core.actions.decode
    masks = np.array([[0, 1, 0, 0, 0, 0, 0, 1], [1] * 8])
    assert decode(masks, 2).tolist() == [[1, 7, -1], [0, 1, 2]]
    grid = make("pricing-grid").unwrapped.core.actions
    np.testing.assert_allclose(grid.decode(np.array([0, 10]), 2), [1 / 11, 1.0])


def test_observations_are_the_harness_arrays():
    flat, named = make("assortment-mask"), make("assortment-mask", obs_mode="dict")
    instance = flat.unwrapped.problem.instance([5])
    f, n = flat.reset(seed=5)[0], named.reset(seed=5)[0]
    context = instance.context()
    np.testing.assert_array_equal(f[: 8 * 3].reshape(8, 3), context.features[0])
    np.testing.assert_array_equal(f[8 * 3 :], context.revenues[0])
    np.testing.assert_array_equal(n["features"], context.features[0])
    np.testing.assert_array_equal(n["revenues"], context.revenues[0])
    assert f.dtype == np.float32 and "items" not in n


def test_your_own_environment_registers():
    from dpb_gym.problems.pricing import PricingProblem

    dpb_gym.register_environment("Test/Cheap-v0", PricingProblem, kind="pricing", dim=2)
    dpb_gym.register_environment("Test/Cheap-v0", PricingProblem, kind="pricing", dim=2)
    assert gym.make("Test/Cheap-v0").observation_space.shape == (1,)
    with pytest.raises(ParameterError, match="already registered"):
        dpb_gym.register_environment("Test/Cheap-v0", PricingProblem, kind="pricing", dim=4)
    with pytest.raises(ParameterError, match="kind"):
        dpb_gym.register_environment("Test/Other-v0", PricingProblem, kind="prices")
    assert issubclass(ParameterError, DPBError)


def test_one_row_of_numbers_is_a_number_and_of_arrays_a_copy():
    assert only(np.array([3, 4]), 1) == 4 and type(only(np.array([3, 4]))) is int
    rows = np.arange(6.0).reshape(2, 3)
    row = only(rows, 1)
    row[:] = 0.0
    assert row.shape == (3,) and rows[1].tolist() == [3.0, 4.0, 5.0]
