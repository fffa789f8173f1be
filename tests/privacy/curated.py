"""Releasers with new curators and given noise, for tests."""

from __future__ import annotations

from typing import Any

from dpb_gym.audits import releaser_audits
from dpb_gym.privacy import BatchSum, Curator, NoiseSource, RecordShape, RunningSum, Sum
from dpb_gym.privacy.noise import QuietNoise


def curator(
    budget: str | None = "rho=1",
    replicates: int = 1,
    *,
    unit: str = "user-round",
    notion: str = "joint",
    relation: str = "replace-one",
    noise: Any = None,
    horizon: int | None = None,
    seed: int = 3,
) -> Curator:
    source = NoiseSource.from_seed(seed, replicates) if noise is None else noise
    return Curator(
        budget,
        (notion, unit),
        noise=source,
        replicates=replicates,
        horizon=horizon,
        relation=relation,
    )


def made(kind: type[Sum], *args: Any, rho: float | None = None, **kwargs: Any) -> Any:
    """Return a sum; default: width 3, 2 replicates, clipped to the unit ball.

    With `sigma` (default 1) there is no bound of the cost; with `rho` that is the budget.
    """
    names = ("replicates", "unit", "notion", "relation", "noise", "seed")
    setting = {name: kwargs.pop(name) for name in names if name in kwargs}
    own = curator(
        "rho=1" if rho is None else f"rho={rho}",
        **{"replicates": 2, "horizon": kwargs.get("horizon"), **setting},
    )
    if rho is None:
        kwargs.setdefault("sigma", 1.0)
        own.as_printed("a test")
    if "symmetric" in kwargs:
        kwargs["width"] = RecordShape(kwargs.get("width", 0), kwargs.pop("symmetric"))
    kwargs.setdefault("width", 3)
    kwargs.setdefault("clip", 1.0)
    return kind(own, *args, **kwargs)


def batch(**kwargs: Any) -> BatchSum:
    return made(BatchSum, **kwargs)


def silent(**kwargs: Any) -> BatchSum:
    return batch(sigma=1e-200, **kwargs)


def running(mechanism: str, horizon: int, **kwargs: Any) -> RunningSum:
    defaults = {"replicates": 1, "seed": 7}
    if "symmetric" not in kwargs:
        defaults["width"] = 2
    return made(RunningSum, mechanism=mechanism, horizon=horizon, **{**defaults, **kwargs})


def assert_noise_is_audited(monkeypatch: Any, verdict: Any) -> None:
    """Check that ``verdict(seed)`` passes, and fails with a third of the noise."""
    # a true claim may fail one audit in twenty, not two in a row
    assert "PASS" in (verdict(0), verdict(1))
    quieten(monkeypatch, 1 / 3)
    assert verdict(0) == "FAIL"


def quieten(monkeypatch: Any, factor: float) -> None:
    """Let audits of releasers run with `factor` times the charged noise."""

    class Quiet(NoiseSource):
        def __new__(cls, generators: Any) -> Any:
            return QuietNoise(generators, factor)

    Quiet.from_seed = NoiseSource.from_seed  # type: ignore[method-assign]
    monkeypatch.setattr(releaser_audits, "NoiseSource", Quiet)
