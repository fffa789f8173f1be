"""Objects that an agent passes to its releasers decide no privacy beyond their fields."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pytest

from dpb_gym.errors import BudgetError, BudgetExceeded, DPBError, ParameterError
from dpb_gym.privacy import Curator, GaussianEvent, NoiseSource, objective_plan
from dpb_gym.privacy.events import _COUNTS, EVENT_TYPES, Event, PureEvent
from dpb_gym.privacy.objective_perturbation import LossBounds
from dpb_gym.privacy.releasers.mechanisms import Bits
from dpb_gym.privacy.releasers.record_bounds import (
    Ball,
    NonNegativeBall,
    PSDBall,
    RecordShape,
    Segment,
)
from dpb_gym.privacy.releasers.release_schedule import Schedule
from dpb_gym.privacy.releasers.release_times import Every
from dpb_gym.privacy.releasers.releaser import behind

ENDS = np.arange(1, 5)
ONES = np.ones(4)
ALONG = np.eye(3)[:1]


def curator() -> Curator:
    return Curator("rho=0.5", noise=NoiseSource.from_seed(0), horizon=100)


class Free(Schedule):
    """A schedule that states a cost."""

    @property
    def cost(self) -> float:
        return 0.5


@pytest.mark.parametrize(
    "schedule",
    [
        Free(ENDS, 5e6 * ONES, ONES),
        Schedule(ENDS, np.full(4, 2**32), np.full(4, 1)),
        Schedule(ENDS, np.array([np.nan, 5e6, 5e6, 5e6]), ONES, 0.0),
        Schedule(ENDS, 1e200 * ONES, 1e-200 * ONES),
        Schedule(ENDS, 0.5 * ONES, ONES, 1e6),
        Schedule(ENDS[::-1], 0.5 * ONES, ONES),
        Schedule(ENDS * 0 + 1, 0.5 * ONES, ONES),
        Schedule(ENDS * 0.5, 0.5 * ONES, ONES),
        Schedule(ENDS, 0.5 * ONES[:1], ONES),
        Schedule(ENDS, ONES, 0 * ONES),
        Schedule(ENDS, ONES, -ONES),
        Schedule(ENDS[:0], ONES[:0], ONES[:0]),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_a_schedule_that_costs_more_or_is_none_is_refused(schedule: Any, late: bool) -> None:
    own = curator()
    plan = (lambda sigma: schedule) if late else schedule
    with pytest.raises(ParameterError):
        own.weighted_sum(3, clip=1.0, schedule=plan).add(np.full((1, 3), 0.5))


def test_a_schedule_within_the_cost_is_not_refused() -> None:
    own = curator()
    sums = own.weighted_sum(3, clip=1.0, schedule=Schedule(ENDS, 0.5 * ONES, ONES))
    for _ in range(4):
        sums.add(np.full((1, 3), 0.5))
    assert np.isfinite(sums.value).all()


def test_a_shape_of_another_package_adds_its_noise() -> None:
    class Exact(RecordShape):
        def emit(self, rows: Any, noise: Any, scale: float) -> Any:
            return rows

    values = []
    for shape in (Exact(3), RecordShape(3)):
        sums = curator().running_sum(shape, clip=1.0)
        sums.add(np.full((1, 3), 0.1))
        values.append(sums.value)
    np.testing.assert_array_equal(*values)


def test_what_is_set_on_a_bound_changes_no_noise() -> None:
    bound = Ball(1.0)
    object.__setattr__(bound, "apart", 1e-4)
    changed = curator().batch_sum(3, clip=bound)
    assert changed.sigma == curator().batch_sum(3, clip=1.0).sigma


@dataclass
class Sequence:
    """One number, whose reading calls a function."""

    read: Callable[[], None]

    def __len__(self) -> int:
        return 1

    def __getitem__(self, place: int) -> float:
        if place:
            raise IndexError
        self.read()
        return 0.7


class Growing:
    """Rows of one round, and of five when they are read again."""

    reads = 0

    def __len__(self) -> int:
        self.reads += 1
        return 1 if self.reads == 1 else 5

    def __getitem__(self, place: int) -> Any:
        if place >= len(self):
            raise IndexError
        return np.full(1, 0.7)


def in_thread(call: Callable[[], None]) -> None:
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


@pytest.mark.parametrize("place", ["records", "along", "users", "ragged"])
@pytest.mark.parametrize("threads", [False, True])
def test_records_that_add_records_while_they_are_read_are_counted(
    place: str, threads: bool
) -> None:
    own = curator()
    sums = own.running_sum(3, reward=(0.0, 1.0))

    def again() -> None:
        try:
            sums.add([0.7], along=ALONG)
        except DPBError:
            refused.append(True)

    refused: list[bool] = []
    reading = Sequence(lambda: in_thread(again) if threads else again())
    given = {"records": [0.7], "along": ALONG, "users": [1]}
    given |= {"records": [[0.1], [reading, 0.2]]} if place == "ragged" else {place: reading}
    with own.round(1):
        try:
            sums.add(given["records"], along=given["along"], users=given["users"])
        except (DPBError, TypeError, ValueError):
            refused.append(True)
    assert behind(sums).rounds <= 1
    assert refused


def test_rows_that_change_their_number_are_counted_as_they_enter() -> None:
    own = curator()
    sums = own.running_sum(3, reward=(0.0, 1.0))
    with own.round(1), pytest.raises(DPBError):
        sums.add_rounds(Growing(), np.tile(ALONG, (5, 1, 1)))
    assert behind(sums).rounds <= 1


def test_threads_share_the_count_of_a_round() -> None:
    own = curator()
    sums = own.running_sum(3, reward=(0.0, 1.0))
    start = threading.Barrier(8)
    done: list[str] = []

    def add() -> None:
        start.wait()
        try:
            sums.add([0.7], along=ALONG)
        except BudgetError:
            done.append("refused")
        else:
            done.append("entered")

    for t in range(1, 21):
        done.clear()
        with own.round(t):
            threads = [threading.Thread(target=add) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert sorted(done) == ["entered"] + ["refused"] * 7
    assert behind(sums).rounds == 20


def test_the_handle_can_be_used_again_after_a_refused_record() -> None:
    own = curator()
    sums = own.running_sum(3, reward=(0.0, 1.0))
    with own.round(1), pytest.raises(ParameterError):
        sums.add([float("nan")], along=ALONG)
    with own.round(2):
        sums.add([0.7], along=ALONG)
    assert behind(sums).rounds == 1


PLAN = objective_plan(0.5, dim=3, gradient_bound=1.0, curvature=0.25, calls=1, records=100)


@pytest.mark.parametrize(
    "change",
    [
        {"sigma": 1e-9},
        {"ridge": 1e-9},
        {"output_std": 1e-30},
        {"output_std": 0.0},
        {"tolerance": 1.0},
        {"tolerance": float("nan")},
        {"event": replace(PLAN.event, sensitivity=1e-9)},
        {"event": replace(PLAN.event, ratio=1e-9)},
        {"event": GaussianEvent(1e9)},
    ],
)
def test_a_plan_of_minimisers_is_charged_at_its_true_cost(change: dict[str, Any]) -> None:
    bounds = {"gradient_bound": 1.0, "curvature": 0.25}
    with pytest.raises(ParameterError, match=r"does not follow|tolerance must be"):
        curator().minimiser(3, loss=print, calibration=replace(PLAN, **change), **bounds)
    own = curator()
    own.minimiser(3, loss=print, calibration=PLAN, **bounds)
    assert own.guarantee is not None


class Odd(float):
    """A number whose products and differences are small."""

    def __mul__(self, other: Any) -> float:
        return 1e-6

    __rmul__ = __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __mul__

    def __abs__(self) -> float:
        return 1e-6


def numbered(kind: Any) -> list[Any]:
    """Return one object of every class that decides noise or cost, from numbers of a type."""
    small = {"delta": 0.5, "q": 0.5, "ratio": 0.5}
    real = kind if issubclass(kind, float) or kind in (np.float16, np.float32) else float
    whole = int if issubclass(kind, (float, np.floating)) else kind
    events = []
    for event in EVENT_TYPES.values():
        names = [f.name for f in fields(event) if f.name != "pair"]
        values = {name: whole(2) if name in _COUNTS else real(small.get(name, 2)) for name in names}
        events.append(event(**values))
    plan = objective_plan(
        0.5, dim=whole(2), gradient_bound=kind(2), curvature=kind(1), records=whole(9)
    )
    return [
        *events,
        *(ball(kind(100)) for ball in (Ball, PSDBall, NonNegativeBall)),
        Segment(kind(1), kind(100)),
        RecordShape(whole(3)),
        RecordShape(symmetric=whole(3)),
        Every(whole(5)),
        Bits(whole(9), whole(100)),
        LossBounds(whole(2), kind(2), kind(1), whole(9)),
        plan,
    ]


TYPES = (np.int8, np.uint8, np.int64, np.float16, np.float32, Odd)


@pytest.mark.parametrize("kind", TYPES)
def test_bounds_plans_and_costs_hold_built_in_numbers(kind: Any) -> None:
    """Numbers of NumPy can overflow, and operators of a subclass can return anything."""
    made = numbered(kind)
    assert len(made) >= len(EVENT_TYPES) + 6
    for each, usual in zip(made, numbered(float if issubclass(kind, float) else kind)):
        assert each == usual
        for name, value in vars(each).items():
            assert isinstance(value, (tuple, str, Event)) or type(value) in (int, float), name


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize(
    "options",
    [
        {"reward": (1, 100)},
        {"clip": 100},
        {"clip": 1, "sensitivity": 100},
        {"reward": (1, 2), "participations": 100},
        {"reward": (1, 2), "share": 1},
    ],
)
def test_noise_is_that_of_the_numbers_and_not_of_their_type(
    options: dict[str, Any], kind: Any
) -> None:
    def sigma(of: Any) -> float:
        own = curator()
        cast = {
            name: tuple(map(of, value)) if isinstance(value, tuple) else of(value)
            for name, value in options.items()
        }
        if "participations" in cast and not isinstance(cast["participations"], np.integer):
            cast["participations"] = 100
        sums = own.batch_sum(3, **cast)
        own.seal()
        return float(behind(sums).sigma)

    assert sigma(kind) == sigma(float) > 0


def test_the_ledger_adds_charges_of_any_type() -> None:
    own = curator()
    with pytest.raises(BudgetExceeded):
        own.charge(PureEvent(np.int8(16)), what="mine")  # type: ignore[arg-type]
    assert own.ledger.spent == 0
