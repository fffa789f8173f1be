"""Every published format feeds both replay protocols; the real ones behave as documented."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rating_files import write_fixture

from dpb_gym import make_problem, offline
from dpb_gym.problems.rating_replay import ReplayProblem


@pytest.mark.parametrize("protocol", ["matrix", "replay"])
@pytest.mark.parametrize(
    ("source", "format_"),
    [
        ("whole_stars", "ml-100k"),
        ("whole_stars", "ml-1m"),
        ("half_stars", "ml-10m"),
        ("half_stars", "ml-csv"),
        ("jokes", "jester-csv"),
    ],
)
def test_every_format_plays_both_protocols(
    source: str, format_: str, protocol: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    table = request.getfixturevalue(source)
    place = write_fixture(table, tmp_path / "mine", format_)
    env = "DPB/JesterReplay-v0" if source == "jokes" else "DPB/MovieLensReplay-v0"
    problem = make_problem(env, data=str(place), dim=4, protocol=protocol, horizon=40)
    assert isinstance(problem, ReplayProblem)
    # reading from a file gives the same table
    direct = ReplayProblem(table, dim=4, protocol=protocol, horizon=40)
    np.testing.assert_array_equal(problem.features, direct.features)
    one, two = problem.instance([3]), direct.instance([3])
    for t in range(40):
        action = np.array([t % 5])
        a, b = one.respond(action), two.respond(action)
        assert a.feedback.reward == b.feedback.reward and a.regret == b.regret
        if t < 39:
            one.advance()
            two.advance()


@pytest.mark.slow
@pytest.mark.real_data("ml-100k")
def test_movielens_100k(real: Path) -> None:
    problem = make_problem(
        "DPB/MovieLensReplay-v0", data=str(real), horizon=1500, warm_start=True, binary=4.0
    )
    assert isinstance(problem, ReplayProblem)
    log = offline.LoggedData.from_problem(problem, 1500)
    assert log.expected is not None and problem.info.prior is not None
    # About 55% of the ratings are four stars or more, for all users.
    assert abs(log.rewards.mean() - 0.55) < 0.1
    # What training users like, test users like: the documented level, without any learning.
    guided = np.eye(5)[(log.features @ problem.info.prior.centre).argmax(axis=1)]
    estimates = offline.evaluate_offline(guided, log, resamples=0)
    assert estimates.true_value is not None
    assert estimates.true_value > log.expected.mean() + 0.1
    for name in ("ips", "snips", "dr"):
        assert abs(estimates[name].value - estimates.true_value) < 4 * estimates[name].std_error


@pytest.mark.slow
@pytest.mark.real_data("jester-data-1")
def test_jester(real: Path) -> None:
    kwargs = {"data": str(real), "horizon": 500, "binary": 5.0, "feature_epsilon": 1.0}
    problem = make_problem("DPB/JesterReplay-v0", protocol="replay", **kwargs)
    assert isinstance(problem, ReplayProblem) and problem.features_guarantee is not None
    assert problem.features_guarantee.epsilon(1e-5) == pytest.approx(1.0, rel=1e-4)
    assert len(problem.features) == 100 and problem.n_training_users == 12_492
    instance = problem.instance(range(40))
    observed = liked = 0
    for t in range(500):
        feedback = instance.respond(np.full(40, t % 5)).feedback
        assert feedback.observed is not None
        observed += int(feedback.observed.sum())
        liked += float(feedback.reward.sum())
        if t < 499:
            instance.advance()
    assert abs(observed / 20_000 - 0.2) < 4 * np.sqrt(0.16 / 20_000)
    assert abs(liked / observed - 0.25) < 0.03, "RU's level of random recommendations"
