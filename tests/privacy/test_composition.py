"""Sums are composed: each mechanism against brute force, and parts that do not fit are refused."""

from __future__ import annotations

import itertools
import math
import traceback
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from curated import curator

from dpb_gym import privacy, state
from dpb_gym.errors import BudgetError, ParameterError, StateError
from dpb_gym.privacy import (
    AggregatedSum,
    BatchSum,
    DisjointSum,
    LaplaceEvent,
    LocalSum,
    NoiseSource,
    ReleaseModel,
    RunningSum,
    Schedule,
    ShuffledBatches,
    ShuffledSum,
    Sum,
    UserSum,
    WeightedSum,
)
from dpb_gym.privacy import budget as budget_module
from dpb_gym.privacy.releasers import mechanisms
from dpb_gym.privacy.releasers.correlated_noise import MECHANISMS, make_mechanism
from dpb_gym.privacy.releasers.mechanisms import (
    Bits,
    Correlated,
    Discrete,
    Gaussian,
    Mechanism,
    Randomised,
    Scales,
)
from dpb_gym.privacy.releasers.release_times import Every, OnRequest, Planned
from dpb_gym.privacy.releasers.releaser import Releaser, behind
from dpb_gym.privacy.releasers.secure_aggregation import Quantisation
from dpb_gym.privacy.releasers.trust_models import LOCAL, PLANNED, TRUST_MODELS, TrustModel

MODEL = ReleaseModel(horizon=60, unit_noise=0.05, rate=0.1, spread=2.0, prior=0.5)
ONCE = Schedule.unweighted(np.array([60]))
PLAN = {"clip": 0.5, "schedule": ONCE, "model": MODEL}


class TestMechanisms:
    @pytest.mark.parametrize("name", MECHANISMS)
    def test_correlated_noise_is_its_matrix_times_independent_normals(self, name):
        """Brute force: drive the mechanism with unit vectors instead of normals."""
        n = 9

        class Units:
            """One replicate per normal, each of which is 1 in its own replicate."""

            step = -1

            def next(self) -> np.ndarray:
                self.step += 1
                row = np.zeros((n, 1))
                row[self.step] = 1.0
                return row

        mechanism = make_mechanism(name, n)
        mechanism.start(Units(), (n, 1))
        rows = []
        for _ in range(n):
            mechanism.advance()
            rows.append(mechanism.noise[:, 0].copy())
        matrix = np.array(rows)
        expected = mechanism.matrix(n)
        assert matrix[:, : expected.shape[1]] == pytest.approx(expected, abs=1e-9)
        assert (matrix**2).sum(axis=1) == pytest.approx(mechanism.variances(n), rel=1e-9)
        # the gain is the largest norm of a column of C = (A C^-1)^-1 A
        strategy = np.linalg.pinv(expected) @ np.tril(np.ones((n, n)))
        largest = np.sqrt((strategy**2).sum(axis=0)).max()
        assert mechanism.gain >= largest * (1 - 1e-9)

    def test_residues_of_devices_read_back_as_their_sum(self):
        """All pairs of rows of two devices; without noise the error is below a cell for each."""
        _, sums = composed("aggregator")
        batch = next(b for b in sums.device_mechanisms if b.clients > 1)
        quiet = NoiseSource.from_seed(0, 1)
        quiet.discrete_gaussian = lambda std, width: np.zeros((1, width))
        rows = [np.array([[x, -x, 0.3]]) for x in (-0.4, 0.0, 0.25, 0.4)]
        for one, other in itertools.product(rows, rows):
            total = (batch.of(one, quiet) + batch.of(other, quiet)) % batch.modulus
            pair = replace(batch, clients=2, enough=2)
            read = pair.released(total, 2)
            assert np.abs(read - one - other).max() <= 2.0 * batch.grid
        assert not pair.released(total, 1).any()

    def test_bits_have_the_law_that_is_stated(self):
        """Mean and variance of the released sum, against the binomials of the bits themselves."""
        _, sums = composed("shuffler")
        bits = sums.device_mechanisms[0]
        row = np.array([[0.3, -0.1, 0.0]])
        steps = np.floor(row / bits.grid + 0.5) + bits.levels
        each = bits.coins // bits.batch
        mean = 0.8 * steps + 0.2 * (2 * bits.levels - steps) + 0.5 * each
        variance = 2 * bits.levels * 0.16 + 0.25 * each
        sent = bits.of(np.repeat(row, 4000, axis=0), NoiseSource.from_seed(2, 4000))
        error = math.sqrt(variance / 4000)
        assert np.abs(sent.mean(axis=0) - mean[0]).max() < 5 * error
        assert sent.var(axis=0) == pytest.approx(variance, rel=0.15)
        assert bits.released(bits.batch * mean, bits.batch) == pytest.approx(
            bits.batch * bits.grid * (steps - bits.levels), abs=1e-6 * bits.batch
        )


def composed(trust: str, replicates: int = 1, **options: Any) -> tuple[Any, Any]:
    own = curator(f"rho=0.5@{trust}", replicates, unit="user-round", horizon=60)
    sums = behind(own.weighted_sum(3, **{**PLAN, **options}))
    sums.ready()
    return own, sums


class TestParts:
    @pytest.mark.parametrize("trust", TRUST_MODELS)
    def test_a_sum_has_the_parts_of_its_trust_model(self, trust):
        _, sums = composed(trust)
        assert type(sums) is Sum and isinstance(sums, Releaser)
        assert sums.trust is TRUST_MODELS[trust]
        assert type(sums.mechanism) is PLANNED[trust]
        assert isinstance(sums.times, Planned)

    @pytest.mark.parametrize(
        "parts",
        [
            {"mechanism": Correlated("blt")},
            {"mechanism": Gaussian(), "times": Every()},
            {"mechanism": Randomised()},
            {"mechanism": Discrete(), "times": Planned(ONCE, MODEL)},
            {"mechanism": Gaussian(), "trust": LOCAL, "times": Planned(ONCE, MODEL)},
            {"trust": LOCAL, "times": OnRequest()},
            {"mechanism": Bits(4), "times": Planned(ONCE, MODEL)},
            {"mechanism": Bits(), "times": OnRequest()},
        ],
    )
    def test_parts_that_do_not_fit_are_refused(self, parts):
        with pytest.raises(ParameterError, match="do not fit"):
            Sum(curator(horizon=60), 3, clip=1.0, **parts)

    def test_a_trust_model_or_times_of_ones_own_are_refused(self):
        """A forged one could leave out the noise of devices, or state a smaller cost."""
        forged = TrustModel("local", "local", devices=False)
        with pytest.raises(ParameterError, match="trust must be one of"):
            Sum(curator("rho=1@local", horizon=60), 3, clip=1.0, trust=forged)

        class Cheap(OnRequest):
            def cost(self, sums: Any, sigma: float, event: Any) -> Any:
                return LaplaceEvent(1e9)

        with pytest.raises(ParameterError, match="could change the cost"):
            Sum(curator(horizon=60), 3, clip=1.0, times=Cheap())

    def test_what_is_set_on_an_instance_of_a_part_does_not_count(self):
        forged = Gaussian()
        object.__setattr__(forged, "scales", lambda *_: Scales(1e-9, 0.0, LaplaceEvent(1e9)))
        own = curator("rho=0.5", horizon=60)
        sums = Sum(own, 3, clip=1.0, mechanism=forged)
        assert sums.sigma == pytest.approx(2.0)
        assert own.guarantee.rho == pytest.approx(0.5)


@dataclass(frozen=True)
class LaplaceMessage:
    """A number plus Laplace noise: a message of another package.

    Attributes:
        scale: Scale of the noise.
    """

    scale: float

    @property
    def sigma(self) -> float:
        return math.sqrt(2.0) * self.scale

    def of(self, rows: np.ndarray, noise: NoiseSource) -> np.ndarray:
        uniform = noise.uniform(rows.shape[1:]) - 0.5
        return rows - self.scale * np.sign(uniform) * np.log1p(-2.0 * np.abs(uniform))

    def width(self, numbers: int) -> int:
        return numbers

    def bounds(self, longest: float) -> tuple[float, float]:
        return -longest - 800.0 * self.scale, longest + 800.0 * self.scale

    def row(self, messages: np.ndarray) -> np.ndarray:
        return messages

    def released(self, total: np.ndarray, devices: int) -> np.ndarray:
        return total


@dataclass(frozen=True)
class LaplaceMessages(Mechanism):
    """Messages of one number each, with Laplace noise that the device adds."""

    name: ClassVar[str] = "laplace"
    trusts: ClassVar[tuple[str, ...]] = ("local",)

    def scales(self, sums: Any, rho: float, sizes: Any) -> Scales:
        scale = sums.sensitivity / math.sqrt(2.0 * rho)
        event = LaplaceEvent(scale, sums.sensitivity)
        return Scales(math.sqrt(2.0) * scale, 0.0, event)

    def messages(self, sums: Any, rho: float, sizes: Any) -> Any:
        return (LaplaceMessage(sums.sensitivity / math.sqrt(2.0 * rho)),) * len(sizes)

    def plan(self, sums: Any, model: ReleaseModel) -> Schedule:
        return model.batches(sums.sensitivity, per_record=True)


class TestMechanismOfAnotherPackage:
    """One class and its pair of functions, without a change to the library."""

    def test_it_is_calibrated_charged_and_released_and_its_cost_is_declared(self):
        own = curator("rho=0.5@local", 3000, unit="user-round", horizon=60)
        given = own.weighted_sum(
            1, clip=0.5, schedule=None, model=MODEL, mechanism=LaplaceMessages()
        )
        sums = behind(given)
        ends = sums.schedule.ends
        assert own.guarantee.rho == pytest.approx(0.5) and own.guarantee.notion == "local"
        assert "declared (the mechanism LaplaceMessages of " in str(own.guarantee)
        for _ in range(int(ends[0])):
            given.add(np.full((3000, 1), 0.25))
        error = given.value - 0.25 * ends[0]
        assert error.std() == pytest.approx(given.noise_std, rel=0.1)
        assert abs(error.mean()) < 5 * given.noise_std / math.sqrt(3000)

    def test_it_works_in_its_trust_models_only(self):
        for trust in ("curator", "aggregator", "shuffler"):
            own = curator(f"rho=0.5@{trust}", unit="user-round", horizon=60)
            with pytest.raises(ParameterError, match="do not fit"):
                own.weighted_sum(1, **PLAN, mechanism=LaplaceMessages())


class TestOldNames:
    MADE: ClassVar[list[Any]] = [
        (BatchSum, {"clip": 1.0}, "rho=1"),
        (RunningSum, {"clip": 1.0}, "rho=1"),
        (WeightedSum, {"clip": 1.0, "schedule": ONCE}, "rho=1"),
        (AggregatedSum, PLAN, "rho=1@aggregator"),
        (ShuffledBatches, PLAN, "rho=1@shuffler"),
        (LocalSum, PLAN, "rho=1@local"),
    ]

    @pytest.mark.parametrize("case", MADE, ids=[made.make.__name__ for made, *_ in MADE])
    def test_they_make_and_tell_sums_as_before(self, case):
        name, options, budget = case
        sums = name(curator(budget, unit="user-round", horizon=60), 3, **options)
        assert type(sums) is Sum
        assert [other for other, *_ in self.MADE if isinstance(sums, other)] == [name]
        assert not isinstance(3, name)
        assert isinstance(sums, DisjointSum) is sums.trust.devices

    def test_sums_on_request_of_users_and_shuffled_ones_are_told_from_others(self):
        users = UserSum(curator("rho=1", unit="user-rewards"), 3, radius=1.0, reward=(0.0, 1.0))
        shuffled = ShuffledSum(curator("rho=1", unit="user-round"), 3, clip=1.0, batch=4)
        plain = BatchSum(curator("rho=1"), 3, clip=1.0)
        for sums in (users, shuffled, plain):
            assert isinstance(sums, UserSum) is (sums is users)
            assert isinstance(sums, ShuffledSum) is (sums is shuffled)
            assert isinstance(sums, BatchSum)

    def test_a_base_class_is_sum_or_names_it(self):
        class Own(BatchSum):
            pass

        assert Own.__mro__[1] is Sum
        with pytest.raises(TypeError, match=r"subclass of dpb_gym\.privacy\.Sum"):

            class Other(RunningSum):
                pass

    def test_state_of_the_old_classes_is_refused_with_a_reason(self):
        written = b'{"state":1,"value":{"object":["dpb_gym.privacy.releasers.%s",{}]}}\n'
        for old in (b"batch_sum:BatchSum", b"local_sum:LocalSum", b"weighted_sum:WeightedSum"):
            with pytest.raises(StateError, match="was written by another one"):
                state.loads(written % old)

    def test_a_minimiser_has_both_names(self):
        assert privacy.LossMinimiser is privacy.Minimiser


def test_releases_of_other_times_are_read_and_not_requested():
    own = curator("rho=1", horizon=60)
    for sums in (own.running_sum(2, clip=1.0), own.weighted_sum(2, clip=1.0, schedule=ONCE)):
        with pytest.raises(ParameterError, match="read value"):
            sums.release()
        with pytest.raises(ParameterError, match="something to forget"):
            sums.forget()
    with pytest.raises(BudgetError, match="trusted curator"):
        curator("rho=1@local", horizon=60).running_sum(2, clip=1.0)


def test_a_batch_of_devices_cannot_need_larger_integers_than_there_are():
    _, sums = composed("aggregator")
    with pytest.raises(BudgetError, match="at most 62"):
        Quantisation.calibrated(1e36, 10, 1e-18, 0.05, sums)


class Means:
    """Private means of k coordinates, for the trust model of any budget.

    Releases are combined by generalised least squares, and shrunk by their stated noise.
    """

    def __init__(self, own: Any, k: int, horizon: int) -> None:
        schedule = Schedule.geometric(horizon, 10.0, 2.0, 0.5)
        model = ReleaseModel(horizon, unit_noise=1.0, rate=1.0, spread=0.1, prior=0.1)
        self.sums = own.weighted_sum(k, clip=1.0, schedule=schedule, model=model, what="means")
        self.combined = self.sums.schedule.best_weights(self.sums.sigma, 0.1)
        self.seen: list[np.ndarray] = []

    def add(self, records: np.ndarray) -> None:
        self.sums.add(records)
        if self.sums.releases > len(self.seen):
            self.seen.append(self.sums.value)

    def means(self) -> np.ndarray:
        k = len(self.seen)
        weights = self.combined.weights[k - 1, :k]
        return np.einsum("i,ibj->bj", weights, self.seen) / self.sums.schedule.ends[k - 1]


@pytest.mark.slow
@pytest.mark.parametrize("trust", TRUST_MODELS)
def test_one_releaser_works_under_all_trust_models(trust):
    own = curator(f"rho=20@{trust}", 200, unit="user-round", horizon=300)
    means = Means(own, 2, 300)
    record = np.array([0.5, -0.25])
    for _ in range(300):
        means.add(np.tile(record, (200, 1)))
    error = means.means() - record
    assert np.abs(error.mean(axis=0)).max() < 0.02
    assert own.guarantee.notion == (TRUST_MODELS[trust].notion or "joint")
    assert own.guarantee.rho == pytest.approx(20.0, rel=1e-3)


@pytest.mark.parametrize("trust", TRUST_MODELS)
def test_sigma_is_few_calls_from_the_text_which_is_parsed_once(trust, monkeypatch):
    """The calls between reading `sigma` and the formula, all of them in the library."""
    parsed: list[str] = []
    path: list[str] = []
    usual_parse = budget_module._parsed
    usual_sigma = mechanisms.gaussian_sigma

    def parse(text: str) -> Any:
        parsed.append(text)
        return usual_parse(text)

    def sigma(*args: Any) -> float:
        names = [f.name for f in traceback.extract_stack() if "/dpb_gym/" in f.filename]
        if "open" in names:
            path[:] = names
        return usual_sigma(*args)

    monkeypatch.setattr(budget_module, "_parsed", parse)
    monkeypatch.setattr(mechanisms, "gaussian_sigma", sigma)
    own = curator(f"rho=0.625@{trust}", unit="user-round", horizon=60)
    assert own.weighted_sum(3, **PLAN).sigma > 0.0
    assert len(parsed) == 1
    if trust != "shuffler":  # whose noise is that of bits
        assert path[-1] in ("gaussian_scales", "scales") and len(path) <= 10
