"""System noise: grids, exact sums, costs, and unsupported mechanisms."""

from __future__ import annotations

import importlib.util
import math
import os
import pickle
import sys
from typing import Any

import numpy as np
import pytest
from curated import batch, curator, running
from scipy import stats

from dpb_gym.errors import BudgetExceeded, MissingExtraError, ParameterError
from dpb_gym.privacy import (
    BatchSum,
    PSDBall,
    RunningSum,
    Schedule,
    SystemNoise,
    UserSum,
    WeightedSum,
    ZCDPEvent,
    equivalent_rho,
    gaussian_sigma,
)
from dpb_gym.privacy.releasers.releaser import behind

needs_opendp = pytest.mark.skipif(
    importlib.util.find_spec("opendp") is None, reason="the [secure] extra (opendp) is missing"
)


def stored_numbers(value: Any) -> np.ndarray:
    """Return all 8-byte floats in the pickle of a releaser, wherever they start."""
    data = pickle.dumps(value)
    parts = [data[k : k + (len(data) - k) // 8 * 8] for k in range(8)]
    return np.nan_to_num(np.concatenate([np.frombuffer(part, "<f8") for part in parts]))


SHIFT = np.array([3.0, -1.0, 2.0])


def shifted(theta: np.ndarray, _: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    return float(theta @ theta / 2 - theta @ SHIFT), theta - SHIFT, np.eye(3)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp", None)
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    for make in (SystemNoise, lambda: curator(noise="system")):
        with pytest.raises(MissingExtraError, match=r"dpb-gym\[secure\]"):
            make()


def check_law(drawn: np.ndarray, k: np.ndarray, mass: np.ndarray) -> None:
    """Compare integers with exact probabilities: a chi-square test, and the variance."""
    law = mass / mass.sum()
    integers = drawn.ravel().astype(int)
    assert (integers == drawn.ravel()).all() and np.abs(integers).max() <= k.max()
    seen = np.bincount(integers - k[0], minlength=len(k))
    busy = law * drawn.size > 8
    expected = law[busy] / law[busy].sum() * seen[busy].sum()
    assert stats.chisquare(seen[busy], expected).pvalue > 1e-6
    variance = law @ k**2.0
    deviation = math.sqrt((law @ k**4.0 - variance**2) / drawn.size)
    assert abs((integers**2).mean() - variance) < 6 * deviation


@needs_opendp
class TestSystem:
    """With OpenDP installed."""

    def test_batches_are_on_the_grid_and_have_the_right_spread(self) -> None:
        replicates = 400
        releaser = batch(width=2, replicates=replicates, rho=0.5, noise="system", horizon=100)
        records = np.random.default_rng(0).uniform(-0.5, 0.5, size=(10, replicates, 2))
        for record in records:
            releaser.add(record)
        out = releaser.release()
        grid = 2.0 ** (math.floor(math.log2(releaser.sigma)) - 20)
        assert (out / grid == np.round(out / grid)).all()
        gap = (out - records.sum(axis=0)) / releaser.sigma
        assert stats.kstest(gap.ravel(), "norm").pvalue > 1e-4
        ledger = releaser.curator.ledger
        assert isinstance(ledger.entries[0].event, ZCDPEvent)
        assert 0.5 * (1 - 1e-5) <= ledger.spent <= 0.5

    def test_every_draw_is_new(self) -> None:
        def one() -> np.ndarray:
            releaser = batch(width=8, replicates=1, rho=0.5, noise="system", horizon=9)
            releaser.add(np.zeros((1, 8)))
            return releaser.release()

        assert (one() != one()).any()

    def test_a_stolen_save_tells_nothing_of_the_noise_of_minimisers(self) -> None:
        """Saved noise and a published theta give the exact gradient of the raw log."""
        own = curator("rho=0.5", 1, noise="system", horizon=50)
        bounds = {"gradient_bound": 1.0, "curvature": 1.0, "calls": 4}
        releaser = behind(own.minimiser(3, loss=shifted, **bounds))
        releaser.add([0.0])
        shift = SHIFT
        before = stored_numbers(releaser)
        thetas = np.array([releaser.release()[0] for _ in range(3)])
        noise = (shift - thetas - releaser.plan.ridge * thetas) / releaser.plan.sigma
        for saved in (before, stored_numbers(releaser)):
            near = np.abs(saved[:, None] - noise.ravel()) < 1e-3 * np.abs(noise.ravel())
            assert not (near[:-1, :-1] & near[1:, 1:]).any()
        later = [pickle.loads(pickle.dumps(releaser)) for _ in range(2)]
        draws = np.array([one._noise.normal(3) for one in (*later, releaser)])
        assert len(np.unique(draws)) == draws.size, "the same save continues with other noise"

    def test_every_number_comes_from_the_operating_system(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = []
        real = os.urandom
        monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or real(n))
        source = SystemNoise(2)
        for own in (source, source.spawn(), source.single(1), pickle.loads(pickle.dumps(source))):
            for draw in (own.normal, own.uniform, lambda own=own: own.gumbel((3,))):
                asked.clear()
                assert np.isfinite(draw()).all() and sum(asked) >= 8 * own.replicates
        assert b"random" not in pickle.dumps(source), "no generator, no seed"
        drawn = SystemNoise(1).normal(4000).ravel()
        assert stats.kstest(drawn, "norm").pvalue > 1e-4

    @pytest.mark.parametrize(("tosses", "probability"), [(3, 0.5), (8, 0.5), (61, 0.5), (40, 0.2)])
    def test_heads_are_binomial(
        self, tosses: int, probability: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = []
        real = os.urandom
        monkeypatch.setattr(os, "urandom", lambda n: asked.append(n) or real(n))
        drawn = SystemNoise(2).heads(np.full((2, 6000), float(tosses)), probability)
        assert drawn.shape == (2, 6000) and 8 * sum(asked) >= tosses * drawn.size
        law = stats.binom.pmf(np.arange(tosses + 1), tosses, probability)
        seen = np.bincount(drawn.ravel().astype(int))
        assert len(seen) <= tosses + 1
        seen, busy = np.pad(seen, (0, tosses + 1 - len(seen))), law * drawn.size > 10
        assert (
            stats.chisquare(seen[busy], law[busy] / law[busy].sum() * seen[busy].sum()).pvalue
            > 1e-5
        )
        assert (SystemNoise(1).heads(np.zeros((1, 5)), probability) == 0.0).all()

    def test_binary_tree(self) -> None:
        replicates, horizon = 60, 21
        releaser = running(
            "binary-tree",
            horizon,
            symmetric=3,
            replicates=replicates,
            clip=PSDBall(1.0),
            rho=0.3,
            noise="system",
        )
        x = np.array([0.6, -0.3, 0.1])
        gram = np.broadcast_to(np.outer(x, x), (replicates, 3, 3))
        previous = None
        for _ in range(horizon):
            releaser.add(gram)
            out = releaser.value
            assert (out == releaser.value).all()
            assert previous is None or (out != previous).any()
            previous = out
        assert 0.3 * (1 - 1e-5) <= releaser.curator.ledger.spent <= 0.3
        gap = (out - horizon * np.outer(x, x))[:, range(3), range(3)].ravel()
        statistic = (gap**2).sum() / releaser.noise_std**2
        assert 1e-4 < stats.chi2.cdf(statistic, gap.size) < 1 - 1e-4

    @pytest.mark.slow
    @pytest.mark.parametrize("std", [0.4, 1.5, 2.0, 7.3])
    def test_discrete_gaussians_have_the_exact_scale(self, std: float) -> None:
        """P(k) is proportional to exp(-k^2 / (2 std^2)), at every scale, also no integer."""
        drawn = SystemNoise(2).discrete_gaussian(std, 8000)
        k = np.arange(-60, 61)
        check_law(drawn, k, np.exp(-(k**2) / (2 * std**2)))

    @pytest.mark.parametrize("scale", [0.4, 1.5, 2.0, 7.3])
    def test_discrete_laplace_noise_has_the_exact_scale(self, scale: float) -> None:
        """P(k) is proportional to exp(-|k| / scale)."""
        source = SystemNoise(2)
        source.use_grid(0.25, 10, 1.0)
        drawn = source.laplace(0.25 * scale, 8000) / 0.25
        k = np.arange(-300, 301)
        check_law(drawn, k, np.exp(-np.abs(k) / scale))

    @pytest.mark.parametrize("schedule", ["schedule", "plan"])
    def test_the_smallest_weight_enlarges_the_charged_distance(self, schedule: str) -> None:
        """A record of weight w / (1 + w) moves by a cell of its batch's sum times (1 + w) / w."""
        plan = Schedule.geometric(9, 2, 1.6, 1.0)
        given: Any = plan if schedule == "schedule" else lambda sigma: plan
        own = curator("rho=1", 1, noise="system", horizon=9)
        releaser = behind(WeightedSum(own, 2, clip=1.0, schedule=given))
        releaser.ready()
        least = plan.weights.min() / (1.0 + plan.weights.min())
        assert least < 0.5
        assert releaser.least_weight == pytest.approx(least)
        distance = releaser.sensitivity + math.sqrt(2.0) * releaser.grid / least
        wanted = gaussian_sigma(1.0, distance)
        assert 0.0 <= releaser.sigma - wanted <= releaser.grid
        (entry,) = own.ledger.entries
        assert entry.event == ZCDPEvent(0.5 * (distance / releaser.sigma) ** 2)

    def test_weighted_sums(self) -> None:
        replicates, horizon = 200, 30
        schedule = Schedule.geometric(horizon, 5, 1.6, 1.0)
        own = curator("rho=0.4", replicates, noise="system", horizon=horizon)
        releaser = WeightedSum(own, 2, clip=1.0, schedule=schedule)
        record = np.full((replicates, 2), 0.3)
        for _ in range(horizon):
            releaser.add(record)
        grid = releaser.grid
        assert (releaser.value / grid == np.round(releaser.value / grid)).all()
        exact = float((schedule.weights * schedule.sizes).sum()) * 0.3
        gap = (releaser.value - exact) / releaser.noise_std
        assert stats.kstest(gap.ravel(), "norm").pvalue > 1e-4
        assert 0.4 * (1 - 1e-4) <= own.ledger.spent <= 0.4

    def test_rounding_counts_once_for_every_record_of_a_unit(self) -> None:
        """A unit with k records is rounded k times."""
        costs = []
        for k in (1, 1000):
            releaser = batch(
                unit="user", participations=k, sigma=1e3, sensitivity=1.0 / k, noise="system",
                horizon=10, width=4,
            )  # fmt: skip
            assert releaser.sigma == pytest.approx(1e3, rel=1e-5)
            costs.append(releaser.curator.ledger.spent * 2 * releaser.sigma**2)
        grid = 2.0 ** (math.floor(math.log2(1e3)) - 20)
        assert math.sqrt(costs[1]) - math.sqrt(costs[0]) == pytest.approx(999 * 2 * grid, rel=1e-3)

    def test_clipped_users_are_on_the_grid_too(self) -> None:
        """Clipped sums are rounded again, which is charged for every batch."""
        own = curator("rho=0.5", 200, noise="system", horizon=64, unit="user-rewards")
        sums = UserSum(own, 2, radius=1.0, reward=(0, 1))
        along = np.tile([0.6, 0.5], (200, 1))
        for _ in range(3):
            sums.add(np.full(200, 0.9), along, np.zeros(200, int))
        released, grid = sums.release(), sums.grid
        assert grid and (released / grid == np.round(released / grid)).all()
        exact = along / np.linalg.norm(along, axis=1, keepdims=True)  # shortened to the radius
        assert stats.kstest(((released - exact) / sums.sigma).ravel(), "norm").pvalue > 1e-4
        charged = math.sqrt(2 * own.ledger.spent) * sums.sigma
        assert charged == pytest.approx(2.0 + 8 * grid * math.sqrt(2), abs=1e-12)
        assert own.ledger.spent <= 0.5

    @pytest.mark.parametrize("name", ["blt", "sqrt-toeplitz"])
    def test_toeplitz_refuses(self, name: str) -> None:
        with pytest.raises(ParameterError, match="binary-tree"):
            running(name, 9, rho=0.5, noise="system")
        own = curator(noise="system", horizon=9)
        assert RunningSum(own, 2, clip=1.0).mechanism.name == "binary-tree"

    def test_approx_budgets_convert_without_the_gaussian_shortcut(self) -> None:
        """A sigma calibrated for continuous Gaussians is too small for the discrete claim."""
        own = curator("eps=1,delta=1e-5", noise="system", horizon=9, unit="reward")
        sigma = gaussian_sigma(equivalent_rho(own.budget), 1.0)
        too_little = BatchSum(own, 2, reward=(0, 1), sigma=sigma)
        with pytest.raises(BudgetExceeded):
            too_little.add([0.5], [[1.0, 0.0]])
        own = curator("eps=1,delta=1e-5", noise="system", horizon=9, unit="reward")
        enough = BatchSum(own, 2, reward=(0, 1))
        enough.add([0.5], [[1.0, 0.0]])
        enough.release()
        assert 1 - 1e-5 <= own.ledger.spent <= 1.0

    def test_exact_range_and_bounds_are_required(self) -> None:
        for kwargs in (
            {"horizon": None, "clip": 1.0},
            {"horizon": 10, "clip": None, "sensitivity": 1.0},
            {"horizon": 10**12, "clip": 1.0},
        ):
            with pytest.raises(ParameterError):
                batch(sigma=0.001, noise="system", **kwargs).add(np.zeros((2, 3)))
