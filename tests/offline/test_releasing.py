"""The private release: sensitivity by search, noise, budget."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from log_helpers import estimate, small_log, weights_of

from dpb_gym import offline
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.offline import LoggedData
from dpb_gym.privacy import Budget, Curator, GaussianEvent, NoiseSource
from dpb_gym.privacy.noise import grid_of
from dpb_gym.streams import AgentStreams

BUDGET = Budget.approx(1.0, 1e-5)


class Silent(NoiseSource):
    """Noise source without noise, so that tests see the exact values."""

    def normal(self, shape=()):
        return np.zeros((1, shape))

    def spawn(self):
        return self


def curated(seed=0, unit="reward", source=NoiseSource, budget=BUDGET):
    return Curator(budget, ("central", unit), noise=source.from_seed(seed))


def exact(log, target, unit="reward", **kwargs):
    released = offline.release_value(log, target, curated(unit=unit, source=Silent), **kwargs)
    return released.value, released.sensitivity


def replaced(log, i, **change):
    arrays = {k: np.array(getattr(log, k)) for k in ("features", "actions", "propensities")}
    arrays["rewards"] = np.array(log.rewards)
    for key, value in change.items():
        arrays[key][i] = value
    return LoggedData.from_arrays(**arrays, reward_range=log.reward_range)


@pytest.mark.parametrize("clip", [0.5, 1.7, 50.0])
@pytest.mark.parametrize("with_model", [False, True])
def test_no_reward_moves_the_estimate_by_more_than_the_sensitivity(clip, with_model):
    log, target, q = small_log(n=12)
    kwargs = {"clip": clip, "q": q if with_model else None}
    worst = 0.0
    for i in range(len(log)):
        for a, b in itertools.combinations((0.0, 0.3, 1.0), 2):
            (one, bound), (two, _) = (
                exact(replaced(log, i, rewards=r), target, **kwargs) for r in (a, b)
            )
            worst = max(worst, abs(one - two))
            assert abs(one - two) <= bound * (1 + 1e-12)
    assert worst == pytest.approx(bound), "and it is attained"


@pytest.mark.parametrize("clip", [0.5, 3.0])
def test_no_round_moves_the_estimate_by_more_than_the_sensitivity(clip):
    """Everything about one round is exchanged: its reward, choice, propensity and policy."""
    log, target, _ = small_log(n=10)
    records = [
        (r, a, p, row)
        for r in (0.0, 1.0)
        for a in range(3)
        for p in (1e-6, 0.2, 1.0)
        for row in ([1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.2, 0.5, 0.3])
    ]
    values = []
    for r, a, p, row in records:
        own = target.copy()
        own[4] = row
        changed = replaced(log, 4, rewards=r, actions=a, propensities=p)
        value, bound = exact(changed, own, clip=clip, unit="user-round")
        values.append(value)
    assert bound == pytest.approx(clip / 10)
    assert max(values) - min(values) == pytest.approx(bound), "attained and never exceeded"


def test_large_clip_is_ips_with_a_shift():
    log, target, q = small_log()
    weights = weights_of(log, target)
    value, _ = exact(log, target, clip=100.0)
    assert value == pytest.approx(estimate("ips", log, target) + 0.5 * (1 - weights.mean()))
    assert exact(log, target, clip=100.0, q=q)[0] == pytest.approx(estimate("dr", log, target, q=q))


def test_noise_has_the_stated_scale_and_is_calibrated():
    log, target, _ = small_log()
    center, _ = exact(log, target)
    releases = [offline.release_value(log, target, curated(s)) for s in range(400)]
    sigma = releases[0].sigma
    assert releases[0].sensitivity / sigma == pytest.approx(
        GaussianEvent(3.73, 1.0).gaussian_mu, rel=1e-2
    )
    z = np.array([(f.value - center) / sigma for f in releases])
    assert abs(z.mean()) < 0.2 and abs(z.std() - 1) < 0.15
    guarantee = releases[0].guarantee
    assert guarantee.epsilon(1e-5) == pytest.approx(1.0, rel=1e-4)
    assert (guarantee.notion, guarantee.unit) == ("central", "reward")


def test_published_error_bounds_the_true_one():
    """Over new logs the released value varies less than its stated bound."""
    rng = np.random.default_rng(0)
    n, m = 400, 4
    target = rng.dirichlet(np.ones(m), n)
    mean = rng.random((n, m))
    true = float((target * mean).sum(axis=1).mean())
    values, bounds = [], []
    for s in range(100):
        actions = rng.integers(0, m, n)
        rewards = (rng.random(n) < mean[np.arange(n), actions]).astype(float)
        log = LoggedData.from_arrays(
            np.zeros((n, m, 1)), actions, np.full(n, 1 / m), rewards, (0, 1)
        )
        released = offline.release_value(log, target, curated(s), clip=m)
        values.append(released.value)
        bounds.append(released.std_error)
    assert abs(np.mean(values) - true) < 4 * np.std(values) / 10, "a uniform log has no bias"
    assert np.std(values) < np.mean(bounds) < 6 * np.std(values)


def test_values_of_one_log_share_its_budget():
    log, target, _ = small_log()
    curator = curated()
    one = offline.release_value(log, target, curator, share=0.5)
    assert curator.ledger.spent < 1.0
    assert one.sigma > offline.release_value(log, target, curated()).sigma
    with pytest.raises(BudgetError, match="charged already"):
        offline.release_value(log, target, curator, share=0.5)


def test_two_budgets_do_not_share_their_noise():
    """Otherwise a weighted difference of two published values would be the exact one."""
    log, target, _ = small_log()
    center, _ = exact(log, target)
    streams = {
        budget: Curator(budget, noise=NoiseSource(AgentStreams([0], str(budget)).noise))
        for budget in (Budget.approx(1.0, 1e-5), Budget.approx(5.0, 1e-5))
    }
    a, b = (offline.release_value(log, target, curator) for curator in streams.values())
    mixed = (a.sigma * b.value - b.sigma * a.value) / (a.sigma - b.sigma)
    assert abs(mixed - center) > 1e-6


@pytest.mark.parametrize(
    "kwargs",
    [
        {"clip": 0.0},
        {"clip": math.inf},
        {"unit": "user"},
        {"unit": "user-round", "q": np.zeros((40, 3))},
        {"q": np.full((40, 3), 1.5)},
        {"curator": Curator(BUDGET, noise=NoiseSource.from_seed(0, 2))},
    ],
)
def test_bad_arguments(kwargs):
    log, target, _ = small_log()
    curator = kwargs.pop("curator", None) or curated(unit=kwargs.pop("unit", "reward"))
    with pytest.raises(ParameterError):
        offline.release_value(log, target, curator, **kwargs)


def test_a_policy_that_never_agrees_has_a_public_value():
    log, _, _ = small_log(n=6, m=3)
    never = np.eye(3)[(np.asarray(log.actions) + 1) % 3]
    value, sensitivity = exact(log, never)
    assert value == 0.5 and sensitivity < 1e-10


@pytest.mark.slow
def test_released_values_use_system_noise_by_default():
    """The same call twice: the operating system's noise, on a grid, at the stated scale."""
    log, target, _ = small_log()
    releases = [offline.release_value(log, target, "eps=1,delta=1e-5") for _ in range(200)]
    values = np.array([one.value for one in releases])
    assert len(set(values)) > 190
    center, _ = exact(log, target)
    sigma = releases[0].sigma
    assert abs(values.mean() - center) < 4 * sigma / math.sqrt(200)
    assert values.std() == pytest.approx(sigma, rel=0.25)
    cells = values / grid_of(sigma)
    assert np.abs(cells).max() < 2**40 and (cells == np.round(cells)).all(), "discrete noise"
    assert releases[0].guarantee.epsilon(1e-5) == pytest.approx(1.0, rel=1e-3)
    whole = offline.release_value(log, target, "rho=0.5", unit="user-round", clip=2.0)
    assert whole.guarantee.unit == "user-round"


def test_estimated_propensities_move_with_one_round():
    """Exchanging one round's choice changes the weights of others: no bound per user-round."""
    log, target, _ = small_log()
    unknown = [
        LoggedData.from_arrays(log.features, actions, None, log.rewards, (0, 1))
        for actions in (log.actions, np.where(np.arange(40) == 3, 2, log.actions))
    ]
    a, b = (one.propensities for one in unknown)
    assert (np.delete(a, 3) != np.delete(b, 3)).any()
    offline.release_value(unknown[0], target, "rho=0.5")
    with pytest.raises(ParameterError, match="estimated propensities"):
        offline.release_value(unknown[0], target, "rho=0.5", unit="user-round")
