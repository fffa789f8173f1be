"""Requests that curators and sums reject, so that every release is charged."""

from __future__ import annotations

import math

import numpy as np
import pytest
from curated import curator

from dpb_agents.recommendation.one_pass_sparse import SparseSums
from dpb_gym.errors import BudgetError, BudgetExceeded, ParameterError
from dpb_gym.feedback import CentralCurator
from dpb_gym.privacy import (
    Composition,
    Curator,
    Event,
    GaussianEvent,
    NoiseSource,
    PureEvent,
    Schedule,
    SystemNoise,
)

APPROX = "eps=1,delta=1e-5"


def test_nothing_is_released_after_a_rejected_plan() -> None:
    own = curator("rho=0.5", horizon=10)
    fine = own.batch_sum(2, clip=1.0, share=0.1)
    sums = own.running_sum(2, clip=1.0, sigma=0.1)  # costs far more than the budget
    with pytest.raises(BudgetExceeded):
        sums.add([[0.3, 0.4]])
    for refused in (fine, sums):
        with pytest.raises(BudgetError, match="refused the plans"):
            refused.add([[0.3, 0.4]])
    with pytest.raises(BudgetError, match="refused the plans"):
        assert sums.value is None


@pytest.mark.parametrize("unit", ["reward", "user-rewards", "user-round", "user"])
def test_directions_are_public_for_response_units_only(unit: str) -> None:
    """The worst pair of neighbours that the unit allows attains the sensitivity."""
    own = curator(None, 2, horizon=10)
    given = Curator(
        "rho=0.5", ("joint", unit), noise=NoiseSource.from_seed(0, 2), horizon=10
    ).batch_sum(2, reward=(-0.5, 1.0), participations=1)
    apart = -1.0 if unit in ("user-round", "user") else 1.0
    exact = own.batch_sum(2, reward=(-0.5, 1.0))
    numbers = [1.0, 1.0] if apart < 0 else [1.0, -0.5]
    exact.add(numbers, along=[[1.0, 0.0], [apart, 0.0]])
    one, other = exact.release()
    assert given.sensitivity == pytest.approx(np.linalg.norm(one - other))


def test_sampling_needs_one_record_per_unit() -> None:
    """A user with k sampled records is in the sample with probability 1 - (1 - q)^k, not q."""
    own = curator(APPROX, notion="central", unit="user-rewards", horizon=10)
    with pytest.raises(ParameterError, match="one record of each unit"):
        own.batch_sum(2, reward=(0.0, 1.0), sampling=0.3, participations=3)
    own = curator(APPROX, horizon=10)
    with pytest.raises(ParameterError, match="public directions"):
        own.batch_sum(2, reward=(0.0, 1.0), sampling=0.3)


def test_user_sums_reject_sampling_and_secret_users() -> None:
    own = curator(APPROX, notion="central", unit="user-rewards", horizon=10)
    with pytest.raises(ParameterError, match="leave sampling out"):
        own.user_sum(2, radius=1.0, reward=(0.0, 1.0), sampling=0.3)
    with pytest.raises(ParameterError, match="whose round is whose"):
        curator(horizon=10).user_sum(2, radius=1.0, reward=(0.0, 1.0))


def test_schedules_that_cost_more_than_their_charge_are_rejected() -> None:
    ends = np.arange(1, 11)
    for schedule in (Schedule.unweighted(ends), lambda sigma: Schedule.unweighted(ends)):
        sums = curator("rho=0.5", horizon=10).weighted_sum(2, clip=1.0, schedule=schedule)
        with pytest.raises(ParameterError, match="10 times"):
            sums.add([[0.3, 0.4]])
        with pytest.raises(BudgetError):
            sums.add([[0.3, 0.4]])
    assert Schedule.geometric(1000, 5, 1.4, 1.0).cost == pytest.approx(1.0, abs=1e-12)


def test_a_replicate_has_one_curator() -> None:
    whole = curator("rho=0.5", 2, horizon=10)
    whole.single(0)
    for again in (
        lambda: whole.single(0),
        lambda: whole.batch_sum(2, clip=1.0),
        lambda: whole.charge(GaussianEvent(10.0, 1.0), what="beside them"),
    ):
        with pytest.raises(BudgetError):
            again()
    whole.single(1)
    for spend in (
        lambda own: own.batch_sum(2, clip=1.0),
        lambda own: own.charge(GaussianEvent(10.0, 1.0), what="a package's own release"),
    ):
        own = curator("rho=0.5", 2, horizon=10)
        spend(own)
        with pytest.raises(BudgetError, match="given away"):
            own.single(0)


def test_disclosures_hold_for_every_single_replicate() -> None:
    whole = curator("rho=0.5", 2, horizon=10)
    whole.disclose("a rehearsal")
    part = whole.single(0)
    part.batch_sum(2, clip=1.0)
    for guarantee in (part.guarantee, whole.guarantee):
        assert guarantee is not None and "a rehearsal" in guarantee.basis


def test_declared_releases_are_charged_for_every_copy_of_the_records() -> None:
    own = Curator("rho=0.5", noise=NoiseSource.from_seed(0, 3), horizon=10, copies=3)
    own.charge(GaussianEvent(10.0, 1.0), what="a package's own release")
    assert own.ledger.spent == pytest.approx(3 * 0.005)


def test_loss_bounds_have_no_default() -> None:
    for given in ({}, {"gradient_bound": 2.0}, {"curvature": 1.0}):
        with pytest.raises(ParameterError, match="give gradient_bound and curvature"):
            curator(horizon=10).minimiser(2, loss=print, **given)
    curator(None).minimiser(2, loss=print).ready()
    with pytest.raises(ParameterError, match="give the loss"):
        curator(None).minimiser(2)


def test_a_weighted_record_is_rounded_twice() -> None:
    pytest.importorskip("opendp")
    schedule = Schedule(np.array([1]), np.array([1.0]), np.array([1.0]))
    own = Curator("rho=0.5", noise=SystemNoise(1), horizon=1)
    sums = own.weighted_sum(4, clip=1.0, schedule=schedule)
    moved = math.sqrt(2 * own.guarantee.rho) * sums.sigma
    assert moved >= 2.0 + 2 * sums.grid * math.sqrt(4)


def test_batches_of_different_length_have_independent_noise() -> None:
    """Otherwise the difference of two configurations' first releases is a raw sum."""
    import gymnasium as gym

    noise = []
    for batch in (1, 2):
        env = gym.make("DPB/Recommendation-v0", dim=3, n_arms=8, horizon=10)
        env = CentralCurator(env, "rho=0.5", batch=batch)
        observation, _ = env.reset(seed=0)
        exact = np.zeros(3)
        for _ in range(batch):
            x = observation.reshape(-1, 3)[0].astype(np.float64)
            observation, _, _, _, info = env.step(0)
            exact += env.truth["reward"] * x / max(1.0, np.linalg.norm(x))
        noise.append(info["response"] - exact)
    assert np.abs(noise[0] - noise[1]).min() > 1e-6


@pytest.mark.parametrize("weight", [-1e-3, -1.9e-6, 1e-3])
def test_rounding_moves_a_record_of_any_weight_by_more(weight: float) -> None:
    """A negative weight must not make the distance of two records shorter."""
    pytest.importorskip("opendp")
    own = curator("rho=0.5", noise="system", horizon=10)
    ends = np.array([5, 10])
    plan = Schedule(ends, np.array([1.0, weight]), np.full(2, math.sqrt(0.5)))
    sums = own.weighted_sum(3, schedule=plan, clip=1.0)
    assert sums.sigma >= 2.0  # of two records at distance 2, without rounding
    assert own.guarantee is not None and own.guarantee.rho == pytest.approx(0.5)


@pytest.mark.parametrize("noise", ["seeded", "system"])
@pytest.mark.parametrize("replicate", [-1, 2, 1.5])
def test_a_replicate_has_one_name(noise: str, replicate: float) -> None:
    """A second curator of the last replicate would spend the budget again, with equal noise."""
    if noise == "system":
        pytest.importorskip("opendp")
    source = NoiseSource.from_seed(0, 2) if noise == "seeded" else "system"
    whole = Curator("rho=0.5", noise=source, replicates=2)
    whole.single(1)
    with pytest.raises(ParameterError, match="replicate must be"):
        whole.single(replicate)  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", ["user", "user-rewards"])
def test_a_release_that_counts_one_record_protects_no_user(unit: str) -> None:
    def loss(theta: np.ndarray, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        return 0.0, 0.0 * theta, np.zeros((2, 2))

    options = {"loss": loss, "gradient_bound": 1.0, "curvature": 0.25}
    own = curator("rho=0.5", unit=unit, horizon=10)
    with pytest.raises(BudgetError, match="who may have several records"):
        own.minimiser(2, **options)
    with pytest.raises(BudgetError, match="who may have several records"):
        SparseSums(own, 2, 1.0)
    curator(None, unit=unit).minimiser(2, **options)
    curator("rho=0.5", horizon=10).minimiser(2, **options)


def parts(*events: Event) -> Curator:
    """Return a curator whose replicates are charged different events."""
    whole = curator("eps=20,delta=1e-5", len(events), unit="reward", notion="central", horizon=9)
    for i, event in enumerate(events):
        whole.single(i).charge(event, what="a release")
    return whole


def test_the_guarantee_of_replicates_holds_at_every_delta() -> None:
    """The Gaussian one is smaller at a large delta, the pure one at a small delta."""
    # the third one has the smaller rho, and the larger epsilon at every delta
    # those of the last case cross near the delta 0.2
    cases = (2.0, 2.0), (2.0, 1.0), (math.sqrt(0.5 / 1.9), 2.0), (1.0, 1.0)
    for sigma, epsilon in cases:
        crossing = parts(GaussianEvent(sigma), PureEvent(epsilon))
        with pytest.raises(BudgetError, match="none of them costs most"):
            crossing.guarantee  # noqa: B018
    for order in (1, -1):
        events = [GaussianEvent(4.0), GaussianEvent(2.0)][::order]
        guarantee = parts(*events).guarantee
        assert guarantee is not None and guarantee.curve == Composition.of(GaussianEvent(2.0))


def test_a_printed_noise_hides_no_declared_cost() -> None:
    own = curator("rho=0.5", unit="reward", notion="central")
    own.charge(GaussianEvent(2.0), what="of a package")
    own.as_printed("some paper")
    assert own.guarantee is not None
    assert own.guarantee.basis == "declared; as printed (some paper)"
    assert str(own.guarantee).endswith("declared; as printed (some paper)")


def test_the_whole_names_what_each_replicate_rests_on() -> None:
    whole = curator("rho=0.5", 2, unit="reward", notion="central", horizon=9)
    printed, declared = whole.single(0), whole.single(1)
    printed.as_printed("some paper")
    printed.batch_sum(2, reward=(0.0, 1.0), sigma=1.0)
    declared.charge(GaussianEvent(1.0), what="of a package")
    assert whole.guarantee is not None
    assert whole.guarantee.basis == "as printed (some paper); declared"
