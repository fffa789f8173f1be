"""Secure noise: integer grids, exact sums, honest costs; refused where it does not carry over."""

from __future__ import annotations

import importlib.util
import math
import sys

import numpy as np
import pytest
from scipy import stats

from dpb_gym.errors import BudgetExceeded, MissingExtraError, ParameterError
from dpb_gym.privacy import (
    Budget,
    ContinualSum,
    GaussianSum,
    Ledger,
    PSDBall,
    SecureNoise,
    Segment,
    ZCDPEvent,
)

needs_opendp = pytest.mark.skipif(
    importlib.util.find_spec("opendp") is None, reason="the [secure] extra (opendp) is missing"
)


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opendp", None)
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(MissingExtraError, match=r"dpb-gym\[secure\]"):
        SecureNoise()
    with pytest.raises(MissingExtraError):
        GaussianSum(2, 1, clip=1.0, sigma=1.0, noise="secure", ledger=Ledger(None), horizon=5)


@needs_opendp
class TestSecure:
    """With OpenDP installed."""

    def test_batches_are_on_the_grid_and_have_the_right_spread(self) -> None:
        budget = Budget.zcdp(0.5)
        ledger = Ledger(budget)
        replicates = 400
        releaser = GaussianSum(
            2, replicates, clip=1.0, rho=0.5, noise="secure", ledger=ledger, horizon=100
        )
        records = np.random.default_rng(0).uniform(-0.5, 0.5, size=(10, replicates, 2))
        for record in records:
            releaser.add(record)
        out = releaser.release()
        grid = 2.0 ** (math.floor(math.log2(releaser.sigma)) - 20)
        assert (out / grid == np.round(out / grid)).all()
        gap = (out - records.sum(axis=0)) / releaser.sigma
        assert stats.kstest(gap.ravel(), "norm").pvalue > 1e-4
        assert isinstance(releaser.event, ZCDPEvent)
        assert 0.5 * (1 - 1e-5) <= ledger.spent <= 0.5
        again = releaser.state_dict()
        assert "generators" not in str(again["noise"])

    def test_every_draw_is_new(self) -> None:
        def one() -> np.ndarray:
            releaser = GaussianSum(
                8, 1, clip=1.0, sigma=1.0, noise="secure", ledger=Ledger(None), horizon=9
            )
            releaser.add(np.zeros((1, 8)))
            return releaser.release()

        assert (one() != one()).any()

    def test_binary_tree(self) -> None:
        replicates, horizon = 60, 21
        ledger = Ledger(Budget.zcdp(0.3))
        releaser = ContinualSum(
            "binary-tree",
            horizon=horizon,
            symmetric=3,
            replicates=replicates,
            clip=PSDBall(1.0),
            rho=0.3,
            noise="secure",
            ledger=ledger,
        )
        assert 0.3 * (1 - 1e-5) <= ledger.spent <= 0.3
        x = np.array([0.6, -0.3, 0.1])
        gram = np.broadcast_to(np.outer(x, x), (replicates, 3, 3))
        previous = None
        for _ in range(horizon):
            releaser.add(gram)
            out = releaser.release()
            assert (out == releaser.release()).all()
            assert previous is None or (out != previous).any()
            previous = out
        gap = (out - horizon * np.outer(x, x))[:, range(3), range(3)].ravel()
        statistic = (gap**2).sum() / releaser.noise_std**2
        assert 1e-4 < stats.chi2.cdf(statistic, gap.size) < 1 - 1e-4

    @pytest.mark.parametrize("name", ["blt", "sqrt-toeplitz"])
    def test_toeplitz_refuses(self, name: str) -> None:
        with pytest.raises(ParameterError, match="binary-tree"):
            ContinualSum(
                name, horizon=9, dim=2, clip=1.0, sigma=1.0, noise="secure", ledger=Ledger(None)
            )

    def test_approx_budgets_convert_without_the_gaussian_shortcut(self) -> None:
        """A sigma calibrated for continuous Gaussians is too small for the discrete claim."""
        from dpb_gym.privacy import Release, calibrate, equivalent_rho

        budget = Budget.approx(1.0, 1e-5)
        (sigma,) = calibrate(budget, Release(1.0))
        kwargs = {"clip": Segment(0, 1), "noise": "secure", "horizon": 9}
        too_little = GaussianSum(2, 1, sigma=sigma, ledger=Ledger(budget), **kwargs)  # type: ignore[arg-type]
        too_little.add([0.5], [[1.0, 0.0]])
        with pytest.raises(BudgetExceeded):
            too_little.release()
        ledger = Ledger(budget)
        rho = equivalent_rho(budget, gaussian=False)
        enough = GaussianSum(2, 1, rho=rho, ledger=ledger, **kwargs)  # type: ignore[arg-type]
        enough.add([0.5], [[1.0, 0.0]])
        enough.release()
        assert 1 - 1e-5 <= ledger.spent <= 1.0

    def test_exact_range_and_bounds_are_required(self) -> None:
        for kwargs in (
            {"horizon": None, "clip": 1.0},
            {"horizon": 10, "clip": None, "sensitivity": 1.0},
            {"horizon": 10**12, "clip": 1.0},
        ):
            with pytest.raises(ParameterError):
                GaussianSum(
                    2,
                    1,
                    sigma=0.001,
                    noise="secure",
                    ledger=Ledger(None),
                    **kwargs,  # type: ignore[arg-type]
                )
