"""Closed tables of isolated runs: what an agent's process can make the main process do."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_agents.assortment.choice_records import ChoiceMLE
from dpb_agents.common.local_sgd import Gradients
from dpb_agents.multi_armed.arms import ArmSums
from dpb_agents.multi_armed.ucb import BernoulliResponse
from dpb_agents.pricing.paper_constants import Demand
from dpb_agents.pricing.private_demand_mle import PrivateMLE
from dpb_agents.recommendation.fliphat import Peeling
from dpb_agents.recommendation.jdp_glm import RewardMLE
from dpb_agents.recommendation.local_linear import Statistics
from dpb_agents.recommendation.one_pass_sparse import SparseSums
from dpb_agents.recommendation.rivals.linear_rival import RewardSums
from dpb_gym import state
from dpb_gym.errors import AgentError, BudgetError, DPBError, ParameterError
from dpb_gym.feedback import (
    CapStatistics,
    GaussianContexts,
    GaussianResponse,
    GaussianStatistics,
    LaplaceResponse,
    RandomizedResponse,
    ResponseChannel,
)
from dpb_gym.local_privacy import Responses
from dpb_gym.privacy import (
    AggregatedSum,
    Ball,
    BatchSum,
    Curator,
    GaussianEvent,
    LocalSum,
    LossMinimiser,
    NoiseSource,
    NonNegativeBall,
    PSDBall,
    RecordShape,
    ReleaseModel,
    RunningSum,
    Schedule,
    Segment,
    ShuffledBatches,
    ShuffledSum,
    UserSum,
    WeightedSum,
    objective_plan,
)
from dpb_gym.privacy.objective_perturbation import LossBounds
from dpb_gym.privacy.plain_plans import ARGUMENTS, RELEASERS, path_of, plain
from dpb_gym.privacy.releasers.mechanisms import Gaussian, Randomised
from dpb_gym.privacy.releasers.release_times import OnRequest, Planned
from dpb_gym.privacy.releasers.releaser import noting
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.privacy.releasers.trust_models import LOCAL, SHUFFLER
from dpb_gym.problems.base import ProblemInfo
from dpb_gym.running.isolated_releasers import described, new_releaser
from dpb_gym.streams import AgentStreams

B = 2
INFO = ProblemInfo("recommendation", 100, 3, (0.0, 1.0), n_candidates=4)
MODEL = ReleaseModel(100, 2.0, 0.5, 0.5, 0.1)
SCHEDULE = Schedule.geometric(100, 4.0, 1.5, 1.0)
SUMS = {"reward": (0.0, 1.0)}


def curator(unit: str = "reward", budget: str = "rho=0.5", notion: str = "central") -> Curator:
    return Curator(budget, (notion, unit), noise=NoiseSource.from_seed(0, B), horizon=100)


def crossed(kind: Any, *args: Any, to: Curator | None = None, **options: Any) -> Any:
    """Return a releaser that crossed from an agent's process, as bytes of plain state."""
    own = to or curator()
    path, given = plan(own, kind, args, options)
    read = state.loads(state.dumps(given), objects=False)
    return new_releaser(own, path, read, INFO, AgentStreams(range(B)))[0]


def plan(own: Curator, kind: Any, args: Any, options: Any) -> tuple[str, dict[str, Any]]:
    """Return the class and the arguments of a releaser, as an agent's process sends them."""
    theirs = AgentStreams((0,) * B)
    noise = NoiseSource.from_seed(0, B)
    twin = Curator(own.budget, (own.notion, own.unit), noise=noise, horizon=100)
    twin.ledger.disclosed.extend(own.ledger.disclosed)
    with noting() as calls, suppress(DPBError):  # what is forged may be refused at once
        kind(twin, *(theirs if a is AgentStreams else a for a in args), **options)
    _, made, args, options = calls[0]
    return path_of(type(made)), described(made, type(made), args, options)


USERS = curator("user-rewards")
MADE: list[tuple[Any, tuple[Any, ...], dict[str, Any], str, str]] = [
    (RunningSum, (3,), {**SUMS, "mechanism": "binary-tree", "every": 5}, "reward", "rho=0.5"),
    (RunningSum, (RecordShape(0, 3),), {"clip": PSDBall(1.0)}, "user-round", "rho=0.5"),
    (RunningSum, (3,), {"clip": NonNegativeBall(1.0), "share": 0.3}, "reward", "rho=0.5"),
    (BatchSum, (3,), {**SUMS, "cumulative": True, "sampling": 0.5}, "reward", "eps=1,delta=1e-5"),
    (BatchSum, (3,), {"clip": 2.0, "sigma": 4.0}, "user-round", "rho=0.5"),
    (UserSum, (3,), {**SUMS, "radius": 2.0}, "user-rewards", "rho=0.5"),
    (ShuffledSum, (3,), {"clip": 1.0, "batch": 20}, "user-round", "rho=0.5"),
    (WeightedSum, (3,), {**SUMS, "schedule": SCHEDULE, "model": MODEL}, "reward", "rho=0.5"),
    (AggregatedSum, (3,), {**SUMS, "schedule": SCHEDULE, "model": MODEL}, "reward",
     "rho=0.5@aggregator"),
    (ShuffledBatches, (3,), {**SUMS, "schedule": SCHEDULE, "model": MODEL}, "reward",
     "rho=0.5@shuffler"),
    (LocalSum, (3,), {**SUMS, "schedule": SCHEDULE, "model": MODEL}, "reward", "rho=0.5@local"),
    (LocalSum, (3,), {"clip": Ball(1.0), "schedule": None, "model": MODEL,
                      "mechanism": Randomised()}, "user-round", "eps=1,delta=1e-5@local"),
    (Sum, (3,), {"clip": Ball(1.0), "mechanism": Gaussian(), "times": OnRequest(True)},
     "user-round", "rho=0.5"),
    (Responses, (ResponseChannel(RandomizedResponse(0.5), INFO), AgentStreams), {}, "reward",
     "rho=0.5"),
    (Responses, (ResponseChannel(GaussianResponse(2.0), INFO), AgentStreams), {}, "reward",
     "rho=0.5"),
    (Responses, (ResponseChannel(LaplaceResponse(2.0), INFO), AgentStreams), {}, "reward",
     "rho=0.5"),
    (Responses, (ResponseChannel(BernoulliResponse(0.5, 0.0, 1.0), INFO), AgentStreams), {},
     "reward", "rho=0.5"),
    (Statistics, (GaussianStatistics(5.0, 3, -0.5, 0.5), AgentStreams), {}, "user-round",
     "rho=0.5"),
    (Statistics, (CapStatistics(0.5, 3, -0.5, 0.5), AgentStreams), {}, "user-round", "rho=0.5"),
    (Gradients, (GaussianContexts(3.0, 1, 3), AgentStreams), {}, "user-round", "rho=0.5"),
    (ArmSums, (4,), {"reward": (0.0, 1.0), "law": "laplace", "what": "arms"}, "reward", "rho=0.5"),
    (RewardSums, (3, Segment(0.0, 1.0), "sums"), {"split": 2, "keep": 3}, "reward", "rho=0.5"),
    (SparseSums, (5, 0.5), {}, "user-round", "rho=0.5"),
    (Peeling, (3,), {"sparsity": 2, "x_max": 0.5, "bound": 1.0, "radius": 2.0,
                     "start": np.ones(3)}, "user-round", "rho=0.5"),
    (PrivateMLE, (3, 100, Demand.of("logistic", 2.0, 1.0)), {"calls": 3}, "user-round", "rho=0.5"),
    (RewardMLE, (3, 100, Demand.of("gaussian", 1.0, 4.0)), {"calls": 3}, "user-round", "rho=0.5"),
    (ChoiceMLE, (2, 3, 100), {"calls": 3, "calibration": "zcdp"}, "user-round", "rho=0.5"),
    (ChoiceMLE, (2, 3, 100), {"calibration": LossBounds(3, 2.0, 1.0, 100).plan(40.0, 30.0, 1e-4)},
     "user-round", "rho=0.5"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "args", "options", "unit", "budget"),
    MADE,
    ids=[f"{i}-{getattr(case[0], 'make', case[0]).__name__}" for i, case in enumerate(MADE)],
)
def test_a_releaser_that_crossed_is_the_one_that_the_agent_made(kind, args, options, unit, budget):
    """Bit for bit: its cost, its scales and its plan."""
    notion = "shuffle" if kind is ShuffledSum else "central"
    own, other = curator(unit, budget, notion), curator(unit, budget, notion)
    streams = AgentStreams(range(B))
    honest = kind(own, *(streams if a is AgentStreams else a for a in args), **options)
    made = crossed(kind, *args, to=other, **options)
    own.seal()
    other.seal()
    assert own.guarantee == other.guarantee
    assert (made.basis, made.proviso, made.rho) == (honest.basis, honest.proviso, honest.rho)
    for name in ("sensitivity", "radius", "gain", "_sigma", "_plan", "_bounds", "mechanism"):
        ours, theirs = (vars(releaser).get(name) for releaser in (honest, made))
        if isinstance(ours, float):
            assert ours == theirs
        if name == "_plan" and not isinstance(ours, Schedule):
            assert ours == theirs


def test_every_releaser_and_object_of_the_tables_is_tried():
    plans = []
    for kind, args, options, unit, budget in MADE:
        notion = "shuffle" if kind is ShuffledSum else "central"
        plans.append(plan(curator(unit, budget, notion), kind, args, options))
    assert {path for path, _ in plans} == set(RELEASERS)
    text = str(plans)
    for path, description in ARGUMENTS.items():
        assert path in text or path == path_of(ResponseChannel)  # which is its mechanism
        assert path_of(description.kind) == path
    for path, entry in RELEASERS.items():
        assert path_of(entry.kind) == path
        assert vars(entry.kind).keys() or entry.options


class TestForgedArguments:
    """An agent's process can change any object before it crosses."""

    def test_a_demand_with_a_smaller_gradient(self):
        forged = replace(Demand.of("logistic", 2.0, 1.0), gradient_bound=1e-6, curvature=1e-6)
        own, other = curator("user-round"), curator("user-round")
        honest = PrivateMLE(own, 3, 100, Demand.of("logistic", 2.0, 1.0), calls=3)
        made = crossed(PrivateMLE, 3, 100, forged, to=other, calls=3)
        own.seal()
        other.seal()
        assert made.plan == honest.plan

    @pytest.mark.parametrize("part", ["sigma", "sensitivity", "ratio", "dim"])
    def test_a_calibration_that_costs_less_than_it_does(self, part):
        plan = objective_plan(0.4, dim=3, gradient_bound=2.0, curvature=1.0, records=100)
        cheap = replace(plan.event, **{part: 100 if part in ("sigma", "dim") else 1e-6})
        forged = replace(plan, event=cheap, tolerance=1.0, output_std=1e-9)
        made = crossed(ChoiceMLE, 2, 3, 100, to=curator("user-round"), calibration=forged)
        made.curator.seal()
        assert made.plan == plan

    def test_a_schedule_whose_releases_are_said_to_be_disjoint_has_such_releases(self):
        """They cost a record once; tests/privacy/test_curator.py has what they release."""
        forged = Schedule(np.arange(1, 5), np.ones(4), np.ones(4), carry=0.0)
        assert forged.cost == 1.0
        made = crossed(WeightedSum, 3, schedule=forged, **SUMS)
        made.curator.seal()
        assert made.schedule.carry == 0.0

    @pytest.mark.parametrize(
        "change",
        [
            {"weights": np.full(3, np.nan)},
            {"scales": np.array([1.0, np.inf, 1.0])},
            {"weights": -np.ones(3)},
            {"ends": np.array([3, 2, 5])},
            {"ends": np.array([1.0, 2.0, 3.0])},
            {"ends": np.array([0, 2, 5])},
            {"ends": np.arange(1, 5)},
        ],
    )
    def test_a_schedule_of_other_numbers(self, change):
        forged = replace(Schedule(np.array([1, 2, 5]), *np.ones((2, 3)) * 0.1), **change)
        with pytest.raises(DPBError):
            crossed(WeightedSum, 3, schedule=forged, **SUMS)

    def test_a_mechanism_with_the_event_of_another(self):
        forged = GaussianResponse(0.01)
        forged.event = GaussianEvent(100.0)
        made = crossed(Responses, ResponseChannel(forged, INFO), AgentStreams)
        assert made.cost(0.1) == GaussianEvent(0.01)

    def test_a_bound_with_another_sensitivity(self):
        class Small(Ball):
            def sensitivity(self, relation: str = "", public: bool = True) -> float:
                return 1e-9

        with pytest.raises(AgentError, match="would run beside the raw data"):
            crossed(BatchSum, 3, clip=Small(1.0))
        forged = Ball(1.0)
        object.__setattr__(forged, "sensitivity", lambda *_: 1e-9)
        made = crossed(BatchSum, 3, clip=forged, to=curator("user-round"))
        assert made.sensitivity == 2.0

    @pytest.mark.parametrize(
        "options",
        [
            {"reward": (0.0, 1.0), "sensitivity": 1e-6},
            {"reward": (-1.0, 1.0), "sensitivity": 1.0},
            {"clip": PSDBall(1.0), "sensitivity": 1.0},
            {"clip": NonNegativeBall(1.0), "sensitivity": 1.0},
            {"sensitivity": 1.0},
        ],
    )
    def test_a_smaller_sensitivity_than_the_bound_enforces(self, options):
        width = RecordShape(0, 3) if isinstance(options.get("clip"), PSDBall) else 3
        with pytest.raises(DPBError, match=r"which nothing enforces|give"):
            crossed(BatchSum, width, **options)

    @given(st.floats(1e-6, 3.0), st.floats(0.1, 10.0))
    @settings(max_examples=30, deadline=None)
    def test_records_of_a_ball_are_as_short_as_a_declared_sensitivity_demands(self, given, radius):
        made = crossed(BatchSum, 2, clip=radius, sensitivity=given, to=curator("user-round"))
        made.add(np.array([[1e3, 0.0], [0.0, -1e3]]))
        longest = np.linalg.norm(made._total, axis=1).max()
        enforced = min(radius, math.sqrt(0.5) * given * (1.0 + 1e-6))
        assert longest <= (radius if given >= 2.0 * radius else enforced) * (1.0 + 1e-9)

    def test_choices_that_are_not_clipped(self):
        own = curator("user-round")
        with pytest.raises(AgentError, match="not clipped"):
            crossed(ChoiceMLE, 2, 3, 100, clip=False, to=own)
        own.disclose("features outside the unit ball")
        crossed(ChoiceMLE, 2, 3, 100, clip=False, to=own)


class TestRefused:
    def made(self, path: Any, given: Any) -> Any:
        return new_releaser(curator(), path, given, INFO, AgentStreams(range(B)))

    @pytest.mark.parametrize(
        "path",
        [
            "os:system",
            "dpb_gym.privacy.account:Account",
            "dpb_gym.privacy.noise:NoiseSource",
            "dpb_gym.privacy.releasers.minimiser:LossMinimiser",
            "dpb_gym.privacy.releasers.named_sums:LogSum",
            "dpb_gym.privacy.releasers.sums.Sum",
            "",
            None,
            3,
            ["dpb_gym.privacy.releasers.sums:Sum"],
            {"is": "Ball"},
        ],
    )
    def test_other_classes(self, path):
        with pytest.raises(AgentError, match=r"would run beside|makes releasers"):
            self.made(path, {"width": 3, "reward": [0.0, 1.0]})

    @pytest.mark.parametrize(
        "given",
        [
            None,
            [],
            {"width": 3},
            {"width": 3, "reward": [0.0, 1.0], "curator": 1},
            {"width": 3, "reward": [0.0, 1.0], "gain": 0.1},
            {"width": 3, "reward": [0.0, 1.0], "_sigma": 0.1},
            {"width": 3, "reward": [0.0, 1.0], "what": "x" * 1000},
            {"width": 3, "reward": [0.0, 1.0], "what": "a\x1b[2J"},
            {"width": 3, "reward": [0.0, 1.0], "share": -0.1},
            {"width": 3, "reward": [0.0, math.nan]},
            {"width": 3, "reward": np.zeros(2)},
            {"width": 2**40, "reward": [0.0, 1.0]},
            {"width": 2**26, "reward": [0.0, 1.0]},
            {"width": True, "reward": [0.0, 1.0]},
            {"width": {"is": "dpb_gym.privacy.releasers.record_bounds:Ball", "radius": 1.0}},
            {"width": {"is": ["x"]}, "clip": 1.0},
            {"width": 3, "clip": {"is": "dpb_gym.privacy.releasers.record_bounds:Ball"}},
            {"width": 3, "clip": {"is": "dpb_gym.privacy.releasers.record_bounds:Ball",
                                  "radius": 1.0, "apart": 1e-9}},
            {"width": 3, "clip": -1.0},
            {"reward": [0.0, 1.0]},
        ],
    )  # fmt: skip
    def test_other_arguments(self, given):
        with pytest.raises(DPBError):
            self.made("dpb_gym.privacy.releasers.sums:Sum", given)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
            lambda part: (
                st.lists(part, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["is", "width", "clip", "radius"]), part, max_size=3
                )
            ),
            max_leaves=8,
        ),
        st.sampled_from(sorted({name for entry in RELEASERS.values() for name in entry.options})),
        st.sampled_from(sorted(RELEASERS)),
    )
    @settings(max_examples=100, deadline=None)
    def test_any_value_of_any_argument_is_a_typed_error_or_a_releaser(self, value, name, path):
        for kind, args, options, unit, budget in MADE:
            own = curator(unit, budget, "shuffle" if kind is ShuffledSum else "central")
            of_kind, given = plan(own, kind, args, options)
            if of_kind == path:
                break
        try:
            new_releaser(own, path, {**given, name: value}, INFO, AgentStreams(range(B)))
            own.seal()
        except (DPBError, ArithmeticError):
            return
        assert own.ledger.charged

    def test_minimisers_of_functions_and_own_classes_are_refused_in_the_agents_process(self):
        class Own(BatchSum):
            pass

        with pytest.raises(AgentError, match="a minimiser's loss"):
            described(None, LossMinimiser, (3,), {"loss": print})
        with pytest.raises(AgentError, match="Own would run beside the raw data"):
            described(None, Own, (3,), {})

    def test_a_description_by_another_package_is_not_used(self, monkeypatch):
        """Only classes that a module of this distribution defines are made."""

        class Elsewhere(Sum):
            """Defined by this test, with the description of the library's sums."""

        entry = RELEASERS[path_of(Sum)]
        for path in (path_of(Elsewhere), "dpb_gym.privacy.releasers.sums:Elsewhere"):
            monkeypatch.setitem(RELEASERS, path, entry._replace(kind=Elsewhere))
            with pytest.raises(AgentError, match="would run beside"):
                self.made(path, {"width": 3, "reward": [0.0, 1.0]})

    def test_who_adds_the_noise_is_not_the_agents_to_say(self):
        """A forged trust model is the one of its name, and the budget must admit that."""
        forged = replace(SHUFFLER, devices=False, notion="central")
        sent = plain(forged)
        assert set(sent) == {"is", "name"}
        with pytest.raises(BudgetError, match="needs a trusted curator"):
            crossed(Sum, 3, trust=forged, times=Planned(SCHEDULE, MODEL), **SUMS)
        alone = replace(LOCAL, devices=False, notion="central")
        made = crossed(Sum, 3, trust=alone, times=Planned(SCHEDULE, MODEL), **SUMS)
        # every budget admits messages that need no trust
        assert made.trust is LOCAL and isinstance(made.mechanism, Randomised)

    def test_a_trust_model_refuses_a_curators_sum(self):
        with pytest.raises(BudgetError, match="needs a trusted curator"):
            crossed(BatchSum, 3, to=curator(budget="rho=0.5@local"), **SUMS)


def checked(releaser: Any, name: str, told: Any = None, /, **given: Any) -> dict[str, Any]:
    """Check arguments of a method as the main process does."""
    RELEASERS[path_of(type(releaser))].methods[name].check(releaser, given, told)
    return given


class TestArgumentsOfMethods:
    """Compiled code reads no array of another shape, type or range."""

    def test_records(self):
        sums, along = crossed(BatchSum, 3, **SUMS), np.ones((B, 3))
        checked(sums, "add", records=np.ones(B), along=along)
        checked(sums, "add_rounds", records=np.ones((1, B)), along=along[None])
        for records in (
            np.ones(B + 1),
            np.ones((B, 3)),
            None,
            1.0,
            "x",
            np.full(B, np.nan),
            np.array(["a", "b"]),
            np.ones(B, complex),
            np.ones(B, np.float16),
        ):
            with pytest.raises(ParameterError):
                checked(sums, "add", records=records, along=along)
        for records in (np.ones((2, B)), np.ones((0, B)), np.ones(B)):
            with pytest.raises(ParameterError):  # one round at a time
                checked(sums, "add_rounds", records=records, along=np.ones((*records.shape, 3)))
        with pytest.raises(ParameterError):
            checked(sums, "add", records=np.ones(B), along=np.ones((B, 2)))

    def test_squares(self):
        sums = crossed(RunningSum, RecordShape(0, 3), clip=PSDBall(1.0))
        checked(sums, "add", records=np.ones(B), along=np.ones((B, 3)))
        checked(sums, "add", records=np.ones(B), along=np.ones((B, 7, 3)))
        for along in (np.ones((B, 2)), np.ones((B, 7, 2)), np.ones((1, 3)), np.ones((B, 1, 1, 3))):
            with pytest.raises(ParameterError):
                checked(sums, "add", records=np.ones(B), along=along)

    def test_users_are_those_of_the_round(self):
        own = curator("user-rewards")
        sums = crossed(BatchSum, 3, limit=1, to=own, **SUMS)
        known, record = np.array([4, 7]), {"records": np.ones(B), "along": np.ones((B, 3))}
        checked(sums, "add", known, users=known, **record)
        checked(sums, "add", known, users=np.array([-1, 7]), **record)
        for users, told in ((np.array([4, 8]), known), (np.array([7, 4]), known), (known, None)):
            with pytest.raises(AgentError, match="of the user of its round"):
                checked(sums, "add", told, users=users, **record)
        with pytest.raises(ParameterError):
            checked(sums, "add", known, users=np.array([4.0, 7.0]), **record)

    def test_the_noise_of_an_image_is_not_smaller_than_its_norm(self):
        sums = crossed(RewardSums, 3, Segment(0.0, 1.0), "sums")
        due, matrix = np.ones(B, bool), np.stack([np.diag([3.0, 1.0, 0.1])] * B)
        checked(sums, "release", due=due, inverse=matrix, norm=np.array([3.0, 4.0]))
        checked(sums, "release", due=due)
        for norm in ([2.9, 3.0], [1e-9, 1e-9], [-3.0, 3.0], [np.nan, 3.0], [np.inf, 3.0]):
            with pytest.raises(DPBError):
                checked(sums, "release", due=due, inverse=matrix, norm=np.array(norm))
        matrix[0, 0, 1] = np.nan
        with pytest.raises(ParameterError):
            checked(sums, "release", due=due, inverse=matrix, norm=np.full(B, 9.0))

    def test_lanes_of_a_release_are_a_mask(self):
        for sums in (
            crossed(RewardSums, 3, Segment(0.0, 1.0), "sums"),
            crossed(ArmSums, 4, reward=(0.0, 1.0), law="gaussian", what="arms"),
        ):
            checked(sums, "release", due=np.ones(B, bool))
            for due in (np.array([0, 0]), np.array([5, -1]), np.ones(3, bool), None):
                with pytest.raises(ParameterError):
                    checked(sums, "release", due=due)

    def test_shares_of_a_batch_add_up_to_one(self):
        sums, support = crossed(SparseSums, 5, 0.5), np.zeros((B, 5), bool)
        given = checked(sums, "release", support=support, picks=2, shares=np.array([0.2, 0.3]))
        assert given["shares"] == (0.2, 0.3)
        for shares in (
            [9.0, 9.0],
            [0.7, 0.4],
            [0.0, 0.5],
            [0.5, 0.0],
            [-0.1, 0.5],
            [np.nan, 0.5],
            [0.5],
            None,
        ):
            with pytest.raises(DPBError):
                checked(sums, "release", support=support, picks=2, shares=shares)
        for picks in (-1, 10**9, 1.5, None, True):
            with pytest.raises(ParameterError):
                checked(sums, "release", support=support, picks=picks, shares=[0.2, 0.3])

    def test_steps_of_a_descent(self):
        made = crossed(Peeling, 3, sparsity=2, x_max=0.5, bound=1.0, radius=2.0, start=np.ones(3))
        checked(made, "release", step=0.1, steps=5)
        for step, steps in ((-0.1, 5), (math.nan, 5), (0.1, 0), (0.1, 10**9), (0.1, None)):
            with pytest.raises(ParameterError):
                checked(made, "release", step=step, steps=steps)
        with pytest.raises(ParameterError):
            crossed(Peeling, 3, sparsity=4, x_max=0.5, bound=1.0, radius=2.0, start=np.ones(3))
        with pytest.raises(ParameterError):
            crossed(Peeling, 3, sparsity=2, x_max=0.5, bound=1.0, radius=2.0, start=np.ones(4))

    def test_arms_and_items_exist(self):
        arms = crossed(ArmSums, 4, reward=(0.0, 1.0), law="gaussian", what="arms")
        good = {"records": np.ones(B), "along": np.eye(4)[[0, 3]]}
        checked(arms, "add", **good)
        for along in (np.eye(5)[[0, 4]], np.eye(4)[:1], np.array([0, 3]), np.full((B, 4), np.inf)):
            with pytest.raises(ParameterError):
                checked(arms, "add", **{**good, "along": along})

        choices = crossed(ChoiceMLE, 2, 3, 100, to=curator("user-round"))
        good = {
            "features": np.ones((B, 6, 3), np.float32),
            "slates": np.array([[0, 5], [1, -1]]),
            "choice": np.array([1, -1]),
        }
        checked(choices, "add", **good)
        for change in (
            {"slates": np.array([[0, 6], [1, -1]])},
            {"choice": np.array([2, 0])},
            {"slates": np.array([[-2, 0], [1, 1]])},
            {"slates": np.zeros((B, 3), int)},
            {"features": np.ones((B, 6, 2))},
            {"features": np.ones((B, 6))},
            {"features": np.full((B, 6, 3), np.inf)},
            {"choice": None},
        ):
            with pytest.raises(ParameterError):
                checked(choices, "add", **{**good, **change})

    def test_other_records(self):
        sparse = crossed(SparseSums, 5, 0.5)
        good = {"errors": np.ones(B), "scale": np.ones(B), "directions": np.ones((B, 5))}
        checked(sparse, "add", **good)
        for scale in (np.zeros(B), -np.ones(B), np.ones(3)):
            with pytest.raises(ParameterError):
                checked(sparse, "add", **{**good, "scale": scale})

        demand = Demand.of("logistic", 1.0, 1.0)
        mle = crossed(PrivateMLE, 3, 100, demand, to=curator("user-round"))
        checked(mle, "add", features=np.ones((B, 2)), price=np.ones(B), demand=np.ones(B))
        with pytest.raises(ParameterError):
            checked(mle, "add", features=np.ones((B, 3)), price=np.ones(B), demand=np.ones(B))
        rewards = crossed(RewardMLE, 3, 100, demand, to=curator("user-round"))
        checked(rewards, "add", records=np.ones((B, 4)))
        with pytest.raises(ParameterError):
            checked(rewards, "add", records=np.ones((B, 3)))
        checked(rewards, "release", due=None)

        peeling = crossed(
            Peeling, 3, sparsity=2, x_max=0.5, bound=1.0, radius=2.0, start=np.ones(3)
        )
        checked(peeling, "add", features=np.ones((B, 3)), rewards=np.ones(B))
        with pytest.raises(ParameterError):
            checked(peeling, "add", features=np.ones((B, 4)), rewards=np.ones(B))

        gradients = crossed(Gradients, GaussianContexts(3.0, 1, 3), AgentStreams)
        checked(gradients, "add", records=np.ones((B, 3)))
        with pytest.raises(ParameterError):
            checked(gradients, "add", records=np.ones((B, 4)))
        statistics = crossed(Statistics, GaussianStatistics(5.0, 3, -0.5, 0.5), AgentStreams)
        checked(statistics, "add", records=np.ones(B), along=np.ones((B, 3)))
        with pytest.raises(ParameterError):
            checked(statistics, "add", records=np.ones(B), along=np.ones((B, 2)))
