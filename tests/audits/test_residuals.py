"""Residuals: honest noise is refuted as rarely as stated, and distances are SciPy's."""

import math

import numpy as np
import pytest
from scipy import stats

from dpb_agents.multi_armed.arms import ArmSums
from dpb_gym.agent import Agent
from dpb_gym.audits import agent_audit, audit, residuals
from dpb_gym.audits.likelihood_ratio import Tap
from dpb_gym.audits.residuals import ERROR, TESTS, _distance, check_residuals, normal_scores
from dpb_gym.privacy import Budget, Curator, NoiseSource, RunningSum


@pytest.mark.parametrize("place", ["first", "last", "between"])
def test_releases_without_residuals_do_not_refute_the_others(place):
    """A minimiser whose estimates are on the edge of their domain has no residuals."""
    rng = np.random.default_rng(1)
    left, missing, right = rng.normal(size=(60, 5)), np.full((60, 4), np.nan), np.empty((60, 0))
    if place == "between":
        left, right = left[:, :3], left[:, 3:]
    order = [missing, left] if place == "first" else [left, missing, right]
    values = np.concatenate(order, axis=1)
    text, wrong = check_residuals(values, [str(i) for i in range(values.shape[1])])
    assert not wrong, text
    assert text.startswith("300 numbers")


def test_a_release_without_noise_is_found_beside_missing_ones():
    values = np.full((60, 8), np.nan)
    values[:, :2] = np.random.default_rng(2).normal(size=(60, 2))
    values[:, 2] = 0.0
    text, wrong = check_residuals(values, [str(i) for i in range(8)])
    assert wrong
    assert "variance 0 of the charged one" in text


@pytest.mark.parametrize("count", [1, 2, 17, 1000])
def test_distances_are_those_of_an_independent_implementation(count):
    values = np.random.default_rng(count).standard_t(4, size=count)
    wanted = stats.kstest(values, stats.norm.cdf, method="asymp").statistic
    assert _distance(values) == pytest.approx(wanted, abs=1e-12)


def test_laplace_numbers_become_normal_ones():
    law = stats.laplace(scale=math.sqrt(0.5))
    values = np.concatenate([np.linspace(-9.0, 9.0, 41), [0.0, 1e-9]])
    scores = normal_scores(values)
    np.testing.assert_allclose(stats.norm.logsf(scores), law.logsf(values), rtol=1e-9)
    np.testing.assert_allclose(stats.norm.logcdf(scores), law.logcdf(values), rtol=1e-9)
    assert 0.0 < normal_scores(np.array([1e6]))[0] < np.inf
    assert np.isnan(normal_scores(np.array([np.nan]))).all()


LAWS = {
    "normal": (stats.norm(), lambda values: values),
    "laplace": (stats.laplace(scale=math.sqrt(0.5)), normal_scores),
}


def least_refuted(law, scores, runs, width):
    """Return the least number that refutes beside ordinary ones of the law."""
    quantiles = (np.arange(runs * width) + 0.5) / (runs * width)
    ordinary = law.ppf(np.random.default_rng(width).permutation(quantiles)).reshape(runs, width)

    def refuted(number):
        values = ordinary.copy()
        values[runs // 2, width // 2] = number
        return check_residuals(scores(values), ["it"] * width)[1]

    low, high = 0.1, 1000.0
    assert refuted(high) and not refuted(low)
    while high - low > 1e-6 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if refuted(middle) else (middle, high)
    return high


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("runs", "width"), [(1, 1000), (8, 1), (8, 30), (8, 1000)])
def test_no_number_refutes_alone_with_more_than_the_stated_probability(law, runs, width):
    law, scores = LAWS[law]
    least = least_refuted(law, scores, runs, width)
    chance = -math.expm1(runs * width * math.log1p(-2.0 * law.sf(least)))
    assert chance <= ERROR / TESTS


def test_the_tests_of_an_audit_share_its_error(monkeypatch):
    noted = []
    usual = agent_audit._noted
    monkeypatch.setattr(agent_audit, "_noted", lambda *given: noted.append(1) or usual(*given))
    audit("adaprivate-ucb", Budget.zcdp(0.5), runs=50, params={"batch": 8}, deployment=64)
    assert len(noted) == TESTS
    given = (*LAWS["normal"], 8, 30)
    shared = least_refuted(*given)
    monkeypatch.setattr(residuals, "TESTS", 1)
    assert least_refuted(*given) < shared
    monkeypatch.setattr(residuals, "ERROR", ERROR / TESTS)
    assert least_refuted(*given) == pytest.approx(shared)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("shape", [(1, 1), (8, 3), (8, 40), (500, 2)])
def test_honest_noise_is_refuted_as_often_as_stated_at_most(law, shape, monkeypatch):
    """At a level at which failures can be counted; the limit is a 1e-6 quantile."""
    law, scores = LAWS[law]
    level = 0.04
    monkeypatch.setattr(residuals, "ERROR", level)
    rng = np.random.default_rng(shape)
    failures = 0
    for _ in range(500):
        values = law.ppf(rng.random(shape))
        failures += check_residuals(scores(values), ["it"] * shape[1])[1]
    assert failures <= stats.binom.ppf(1.0 - 1e-6, 500, level / TESTS)


@pytest.mark.parametrize("size", [0.5, 2.0])
def test_laplace_noise_of_another_size_is_refuted(size):
    values = np.random.default_rng(3).laplace(scale=size * math.sqrt(0.5), size=(2000, 4))
    assert check_residuals(normal_scores(values), ["it"] * 4)[1]


class TwoLaws(Agent):
    """Sums of rewards with Laplace noise, and others with normal noise."""

    protects = ("central", "reward")

    def begin(self, problem, streams, curator):
        self.arms = problem.n_candidates
        self.replicates = streams.replicates
        options = {"reward": (0.0, 1.0), "what": "sums with Laplace noise"}
        self.sharp = ArmSums(curator, self.arms, law="laplace", **options)
        self.normal = curator.batch_sum(self.arms, reward=(0.0, 1.0))
        self.sums = np.zeros((self.replicates, self.arms))

    def act(self, context):
        return self.sums.argmax(axis=1)

    def observe(self, context, action, feedback):
        along = np.eye(self.arms)[action]
        self.sharp.add(feedback.reward, along=along)
        self.normal.add(feedback.reward, along=along)
        if context.t % 8 == 0:
            due = np.ones(self.replicates, bool)
            self.sums = self.sums + self.sharp.release(due) + self.normal.release()


def test_an_honest_agent_with_noise_of_two_laws_passes():
    report = audit(
        TwoLaws, Budget.zcdp(2.0), runs=500, env_id="DPB/MultiArmed-v0", env_kwargs={"n_arms": 3},
        horizon=32, deployment=64,
    )  # fmt: skip
    assert not report.residuals, report
    assert report.verdict == "PASS"
    assert report.control == "FAIL"


@pytest.mark.parametrize("every", [1, 3])
def test_a_tap_has_the_residuals_of_every_early_release_of_a_running_sum(every):
    """With noise of the charged law they are standard normal, correlated or not."""
    curator = Curator(
        "rho=0.5", ("joint", "user-round"), noise=NoiseSource.from_seed(0), horizon=12
    )
    releaser = RunningSum(curator, 2, clip=1.0, every=every)
    tap = Tap(releaser, np.ones(1), exchanged=False)
    for row in np.random.default_rng(1).normal(size=(12, 2)):
        releaser.add(row[None])
    values, names = tap.residuals()
    assert values.shape == (1, 2 * 12 // every) == (1, len(names))
    assert 0.2 < (values**2).mean() < 2.5
    assert names[-1].startswith(f"release {12 // every} ")
