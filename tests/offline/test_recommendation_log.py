"""Logged data: validation, tables, files, collection."""

from __future__ import annotations

import numpy as np
import pytest
from log_helpers import small_log

from dpb_gym import make_problem, offline
from dpb_gym.errors import DataError, ParameterError
from dpb_gym.offline import LoggedData

GOOD = {
    "features": np.zeros((4, 3, 2)),
    "actions": [0, 1, 2, 0],
    "propensities": [0.2, 0.5, 1.0, 0.3],
    "rewards": [0.0, 1.0, 0.5, 0.25],
    "reward_range": (0.0, 1.0),
}


def same(a, b):
    for name in ("features", "actions", "propensities", "rewards", "arms", "users", "expected"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None), name
        if left is not None:
            np.testing.assert_array_equal(left, right, err_msg=name)
    assert a.reward_range == b.reward_range


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.zeros((4, 3))}, "shape"),
        ({"features": np.full((4, 3, 2), np.nan)}, "finite"),
        ({"features": np.zeros((4, 1, 2))}, "2 candidates"),
        ({"actions": [0, 1, 3, 0]}, r"actions must lie in \[0, 2\], got 3 in round 2"),
        ({"actions": [0, 1, 0.5, 0]}, "integers"),
        ({"actions": [0, 1]}, "shape"),
        ({"propensities": [0.2, 0.5, 0.0, 0.3]}, "positive, got 0 in round 2"),
        ({"propensities": [0.2, 0.5, 1.1, 0.3]}, r"\[0, 1\], got 1.1 in round 2"),
        ({"propensities": [0.2, 0.5, -0.1, 0.3]}, "round 2"),
        ({"rewards": [0.0, 1.0, 1.5, 0.25]}, r"rewards must lie in \[0, 1\], got 1.5 in round 2"),
        ({"rewards": [0.0, 1.0, np.inf, 0.25]}, "finite"),
        ({"reward_range": (1.0, 0.0)}, "increasing"),
        ({"reward_range": 1.0}, "lowest, highest"),
        ({"minimum_propensity": float("nan")}, "minimum_propensity must be a finite number"),
        ({"minimum_propensity": -0.1}, "minimum_propensity must be a finite number in"),
        ({"minimum_propensity": 0.25}, r"propensities must lie in \[0.25, 1\], got 0.2 in round 0"),
        ({"arms": np.zeros((4, 2))}, "shape"),
        ({"users": [1, 2, 3]}, "shape"),
        ({"expected": np.full((4, 3), 2.0)}, "expected must lie"),
    ],
)
def test_bad_arrays(change, message):
    LoggedData.from_arrays(**GOOD)
    with pytest.raises(ParameterError, match=message):
        LoggedData.from_arrays(**{**GOOD, **change})


def test_arrays_are_copied_and_read_only():
    rewards = np.array(GOOD["rewards"])
    log = LoggedData.from_arrays(**{**GOOD, "rewards": rewards})
    rewards[0] = 0.9
    assert log.rewards[0] == 0.0
    with pytest.raises(ValueError, match="read-only"):
        log.rewards[0] = 0.5


def test_select_keeps_rounds_together():
    log, _, _ = small_log()
    part = log.select(slice(10, 20))
    assert len(part) == 10 and part.rewards[0] == log.rewards[10]
    np.testing.assert_array_equal(part.features, log.features[10:20])
    with pytest.raises(ParameterError):
        log.select([3])


@pytest.mark.parametrize("full", [False, True])
def test_csv_round_trip_is_exact(full, tmp_path):
    if full:
        log = LoggedData.from_problem("DPB/MovieLensReplay-v0", 30, seed=1, dim=4)
        assert log.users is not None and log.arms is not None and log.expected is not None
    else:
        log, _, _ = small_log()
    log.write_csv(tmp_path / "log.csv")
    same(log, LoggedData.from_columns(tmp_path / "log.csv", log.reward_range))


def test_frames():
    pa = pytest.importorskip("pyarrow")
    log, _, _ = small_log(n=6, m=2, d=1)
    columns = {
        "reward": log.rewards,
        "x_1_0": log.features[:, 1, 0],
        "action": log.actions,
        "x_0_0": log.features[:, 0, 0],
        "propensity": log.propensities,
    }
    same(log, LoggedData.from_columns(columns, (0, 1)))
    same(log, LoggedData.from_columns(pa.table(columns), (0, 1)))
    for bad, message in (
        ({**columns, "reward": ["a"] * 6}, "expected reward to be a number"),
        ({**columns, "reward": log.rewards[:3]}, "columns of one length"),
        ({k: v for k, v in columns.items() if k != "action"}, "expected a column 'action'"),
        ({**columns, "weight": log.rewards}, "unknown column 'weight'"),
        ({k: v for k, v in columns.items() if k != "x_0_0"}, "2 x 1 feature columns"),
        ({k: v for k, v in columns.items() if k[0] != "x"}, "expected feature columns"),
        ({**columns, "arm_0": log.actions}, "expected a column 'arm_1'"),
        ({**columns, "x_01_0": log.rewards}, "unknown column 'x_01_0'"),
        ({**columns, "x_900000000_900000000": log.rewards}, "feature columns"),
    ):
        with pytest.raises(DataError, match=message):
            LoggedData.from_columns(bad, (0, 1))
    with pytest.raises(DataError, match="expected a frame"):
        LoggedData.from_columns([1, 2], (0, 1))


HEADER = "action,propensity,reward,x_0_0,x_1_0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HEADER + "0,0.5,1,1,2\n1,0.5,one,1,2\n",
            "line 3: expected reward to be a number, found 'one'",
        ),
        (
            HEADER + "0,0.5,1,1,2\n1,0.5,1,1\n",
            "line 3: expected 5 fields separated by ',', found 4",
        ),
        (HEADER + "0,0.5,1,1,2\n1,0.5,7,1,2\n", r"rewards must lie in \[0, 1\], got 7 in line 3"),
        (HEADER + "0,0.5,1,1,2\n1,0,1,1,2\n", "propensities must be positive, got 0 in line 3"),
        (HEADER + "0,0.5,1,1,2\n2,0.5,1,1,2\n", "actions must lie in .* in line 3"),
        (HEADER + "0,0.5,1,1,2\n", "at least 2 rounds, found 1"),
        (
            HEADER + "0,0.5,nan,1,2\n1,0.5,1,1,2\n",
            "line 2: expected reward to be a number, found 'nan'",
        ),
        (HEADER.replace("reward", "rewards"), "line 1: expected a column 'reward'"),
        (HEADER.replace("x_1_0", "x_0_0"), "expected each column once, found x_0_0 twice"),
        ("", "line 1: expected text, found an empty file"),
        ('"', "expected feature columns"),
    ],
)
def test_bad_files(text, message, tmp_path):
    place = tmp_path / "log.csv"
    place.write_text(text)
    with pytest.raises(DataError, match=message):
        LoggedData.from_columns(place, (0, 1))


def test_missing_and_binary_files(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        LoggedData.from_columns(tmp_path / "none.csv", (0, 1))
    (tmp_path / "log.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DataError, match="UTF-8"):
        LoggedData.from_columns(tmp_path / "log.csv", (0, 1))


def test_logs_of_a_problem_are_its_own_rounds():
    """The log of a batch, of one seed, and the rounds of the instance agree."""
    problem = make_problem("DPB/Recommendation-v0", horizon=60, dim=4)
    logs = offline.collect(problem, 40, [3, 8], skip=20)
    same(logs[1], LoggedData.from_problem(problem, 40, seed=8, skip=20))
    instance = problem.instance([8])
    for _ in range(20):
        instance.advance()
    log = logs[1]
    for i in range(40):
        np.testing.assert_array_equal(instance.context().features[0], log.features[i])
        outcome = instance.respond(log.actions[i : i + 1])
        assert outcome.feedback.reward[0] == log.rewards[i]
        assert outcome.expected[0] == log.expected[i, log.actions[i]]
        if i < 39:
            instance.advance()


@pytest.mark.slow
def test_candidates_are_logged_with_their_propensities():
    shares = np.array([0.5, 0.25, 0.15, 0.1, 0.0])
    log = LoggedData.from_problem(
        "DPB/Recommendation-v0", 4000, behaviour=lambda c: np.tile(shares, (1, 1)), dim=3
    )
    np.testing.assert_array_equal(log.propensities, shares[log.actions])
    counts = np.bincount(log.actions, minlength=5) / 4000
    assert counts[4] == 0
    np.testing.assert_allclose(counts, shares, atol=4 * np.sqrt(0.25 / 4000))


@pytest.mark.slow
def test_an_agent_can_be_the_logging_policy():
    train = LoggedData.from_problem("DPB/Recommendation-v0", 500, seed=2, dim=4)
    agent = offline.train_offline("lin-greedy", train, seeds=[2])
    log = LoggedData.from_problem(
        "DPB/Recommendation-v0", 2000, seed=2, skip=500, behaviour=agent, dim=4
    )
    greedy = offline.probabilities(agent, log)
    expected = (0.8 * greedy + 0.04)[np.arange(2000), log.actions]
    np.testing.assert_allclose(log.propensities, expected)
    assert np.mean(log.propensities > 0.5) == pytest.approx(0.84, abs=0.04)


@pytest.mark.parametrize(
    ("problem", "kwargs", "message"),
    [
        ("DPB/Pricing-v0", {}, "LoggedData is made of a recommendation problem, not pricing"),
        ("DPB/MovieLensReplay-v0", {"protocol": "replay"}, "matrix"),
        ("DPB/Recommendation-v0", {"rounds": 1}, "rounds"),
        ("DPB/Recommendation-v0", {"skip": -1}, "skip"),
        ("DPB/Recommendation-v0", {"behaviour": "uniform"}, "behaviour"),
        ("DPB/Recommendation-v0", {"behaviour": lambda c: np.full((1, 5), 0.3)}, "sum to 1"),
        ("DPB/Recommendation-v0", {"horizon": 10}, "10 rounds, 20 are needed"),
    ],
)
def test_bad_collections(problem, kwargs, message):
    with pytest.raises(ParameterError, match=message):
        LoggedData.from_problem(problem, **{"rounds": 20, **kwargs})
