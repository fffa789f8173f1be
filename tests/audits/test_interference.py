"""The exchange of non-interference covers every part of a customer, and one replicate of two."""

from __future__ import annotations

import copy
import os
from typing import Any, NamedTuple

import numpy as np
import pytest

from dpb_gym import Budget, make_problem
from dpb_gym.agent import Agent
from dpb_gym.audits import interference
from dpb_gym.audits.interference import LANES, Influence, _Customers, interferes, with_lane_of
from dpb_gym.errors import AgentError
from dpb_gym.privacy import Curator, NoiseSource, forks
from dpb_gym.privacy.releasers.record_bounds import Ball, PSDBall, Segment
from dpb_gym.privacy.releasers.release_schedule import ReleaseModel, Schedule
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.problems.base import Context, Feedback
from dpb_gym.registry import spec_of
from dpb_gym.streams import AgentStreams
from dpb_gym.suites.spec import AgentRun

SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    "features": ("DPB/Pricing-v0", {"dim": 3}),
    "arms": ("DPB/Recommendation-v0", {"dim": 2, "n_arms": 12, "n_candidates": 3}),
    "users": (
        "DPB/Recommendation-v0",
        {"dim": 2, "n_arms": 12, "n_candidates": 3, "interactions_per_user": 2},
    ),
    "revenues": ("DPB/Assortment-v0", {"n_items": 6, "capacity": 2, "revenues": "random"}),
    "available": ("DPB/Recommendation-v0", {"dim": 2, "n_arms": 12, "available": 0.5}),
}
"""An environment in which a part of the context differs between customers."""


def test_there_is_an_environment_for_every_part_of_a_context():
    assert {*SETTINGS, "t"} == set(Context._fields)


@pytest.mark.parametrize("part", SETTINGS)
def test_every_part_of_the_first_customer_is_exchanged(part):
    env, kwargs = SETTINGS[part]
    problem = make_problem(env, horizon=12, **kwargs)
    customers = _Customers(problem, 3, shift=13)
    differ = 0
    for t in range(1, 13):
        own, other = customers.instance.context(), customers.exchanged_context()
        assert own.t == other.t == t
        for name in Context._fields[1:]:
            mine, exchanged = getattr(own, name), getattr(other, name)
            assert (mine is None) == (exchanged is None)
            if mine is not None:
                assert len(mine) == LANES and mine.dtype == exchanged.dtype
                assert np.array_equal(mine[1:], exchanged[1:])
        differ += not np.array_equal(getattr(own, part)[0], getattr(other, part)[0])
        if t < 12:
            customers.advance()
    assert differ == 12 if part != "available" else differ > 6


def test_the_other_customers_are_those_of_the_same_round():
    env, kwargs = SETTINGS["features"]
    problem = make_problem(env, horizon=4, **kwargs)
    customers = _Customers(problem, 3)
    others = problem.instance(interference._seeds(4))
    for _ in range(3):
        customers.advance()
        others.advance()
    exchanged = customers.exchanged_context()
    assert np.array_equal(exchanged.features[0], others.context().features[0])


def test_user_ids_stay_where_they_are_public():
    env, kwargs = SETTINGS["users"]
    customers = _Customers(make_problem(env, horizon=4, **kwargs), 3, ("users",), shift=5)
    own, other = customers.instance.context(), customers.exchanged_context()
    assert np.array_equal(own.users, other.users)
    assert not np.array_equal(own.features[0], other.features[0])


class Wider(NamedTuple):
    """A context or feedback with a part that no exchange names."""

    t: int
    features: np.ndarray
    new: np.ndarray
    absent: np.ndarray | None = None


def test_a_part_that_is_added_is_exchanged():
    own = Wider(1, np.zeros((2, 3)), np.zeros(2))
    other = Wider(1, np.ones((1, 3)), np.ones(1))
    mixed = with_lane_of(0, other, own)
    assert mixed.new.tolist() == [1.0, 0.0] and mixed.absent is None and mixed.t == 1
    assert not own.new.any()
    feedback = with_lane_of(
        1,
        Feedback(np.ones(2), answer=np.ones((2, 4))),
        Feedback(np.zeros(2), answer=np.zeros((2, 4))),
    )
    assert feedback.answer.sum(axis=1).tolist() == [0.0, 4.0]


# ------------------------------------------------------------------ what is compared


class Sums(Agent):
    """Adds rewards, releases every fourth round, and acts by a fixed rule."""

    protects = ("central", "reward")

    def begin(self, problem, streams, curator):
        self.sums = curator.batch_sum(problem.dim, reward=(0.0, 1.0))
        self.B = streams.replicates

    def act(self, context):
        return np.zeros(self.B, int)

    def observe(self, context, action, feedback):
        self.sums.add(self.record(feedback.reward), along=context.features[:, 0])
        self.during(context, feedback)
        if context.t % 4 == 0:
            self.sums.release()

    def record(self, reward):
        return reward

    def during(self, context, feedback):
        pass


class Writes(Sums):
    def during(self, context, feedback):
        behind(self.sums).note = float(feedback.reward[0])


class ChangesInPlace(Sums):
    """Changes an array that a handle shows, in the releaser itself."""

    def begin(self, problem, streams, curator):
        super().begin(problem, streams, curator)
        behind(self.sums).levels = np.zeros(2)

    def during(self, context, feedback):
        behind(self.sums).levels[0] = feedback.reward[0]


class Asks(Sums):
    """Asks its releaser a question with a raw argument in later rounds."""

    last = 0.0

    def during(self, context, feedback):
        behind(self.sums).cost(1.0 + self.last)
        self.last = float(feedback.reward[0])


class Beside(Sums):
    def record(self, reward):
        return reward[::-1]


class Doubled(Sums):
    """Turns a record's direction by its reward, so that two records are 2 apart."""

    def observe(self, context, action, feedback):
        sign = np.where(feedback.reward > 0.5, 1.0, -1.0)[:, None]
        self.sums.add(feedback.reward, along=sign * context.features[:, 0])


class Last(Sums):
    """Acts in both replicates by the reward of the second."""

    seen = 0.0

    def act(self, context):
        return np.full(2, int(self.seen > 0.5))

    def during(self, context, feedback):
        self.seen = feedback.reward[1]


class OneLane(Sums):
    """Acts in the second replicate by the reward of the first."""

    seen = 0.0

    def act(self, context):
        return np.array([0, int(self.seen > 0.5)])

    def during(self, context, feedback):
        self.seen = feedback.reward[0]


OTHER_REPLICATE = "records of another replicate reach the action of round 2, all responses opposite"


def influence_of(agent: type[Agent], horizon: int = 12) -> Influence | None:
    env, kwargs = SETTINGS["arms"]
    run = AgentRun(spec=spec_of(agent, "recommendation"), budget=Budget.zcdp(0.5))
    return interferes(run, make_problem(env, horizon=horizon, **kwargs), 5)


def test_an_agent_that_only_adds_and_releases_passes(audits_in_processes):
    assert influence_of(Sums) is None


def test_processes_of_their_own_find_the_same(audits_in_processes):
    assert str(influence_of(OneLane)) == OTHER_REPLICATE
    with pytest.raises(AgentError, match="ended the process"):
        list(interference._apart([lambda: os._exit(3)]))
    with pytest.raises(ZeroDivisionError):
        list(interference._apart([lambda: 1, lambda: 1 // 0]))
    here = os.getpid()
    assert here not in interference._apart([os.getpid, os.getpid])
    assert list(interference._apart((lambda i=i: i) for i in range(5))) == list(range(5))


def test_replays_in_this_process_leave_no_releasers_that_a_fork_would_end():
    before = set(forks.OWNERS)
    assert influence_of(Sums) is None and influence_of(OneLane) is not None
    assert set(forks.OWNERS) <= before


def test_effects_are_named_with_the_replay_that_shows_them():
    assert str(influence_of(OneLane)) == OTHER_REPLICATE


@pytest.mark.parametrize(
    ("agent", "text", "far"),
    [
        (Writes, "records reach 'note', set on a releaser of round 1", False),
        (ChangesInPlace, "records reach an attribute of a releaser of round 4", False),
        (Asks, "records of other rounds reach the record", False),
        (Beside, "records of another replicate reach the record of round 1", False),
        (OneLane, "records of another replicate reach the action of round 2", False),
        (Last, "records of another replicate reach the action of round 2", False),
        (Doubled, "two records are .* apart, but 1 is charged of round", True),
    ],
)
def test_what_else_crosses_the_boundary_is_found(agent, text, far):
    import re

    effect = influence_of(agent)
    assert effect is not None and re.search(text, str(effect)), effect
    assert effect.far == far


class Straight(Sums):
    """Adds responses along public directions, to sums whose devices may send the responses."""

    def begin(self, problem, streams, curator):
        model = ReleaseModel(problem.horizon, 1.0, 0.25, 0.25, 1.0, binary=True)
        schedule = Schedule.geometric(problem.horizon, 2, 1.5, 0.3)
        options = {"schedule": schedule, "model": model, "reward": (0.0, 1.0)}
        self.sums = curator.weighted_sum(problem.dim, **options)
        self.B = streams.replicates

    def observe(self, context, action, feedback):
        self.sums.add(feedback.reward, along=context.features[:, 0])


class Turned(Straight):
    """Turns a record's direction by its reward, which the message does not hide."""

    def observe(self, context, action, feedback):
        sign = np.where(feedback.reward > 0.5, 1.0, -1.0)[:, None]
        self.sums.add(feedback.reward, along=sign * context.features[:, 0])


@pytest.mark.parametrize("budget", ["rho=2", "rho=0.5@local", "eps=2,delta=1e-5@local"])
def test_a_public_direction_that_follows_the_response_is_found(budget, audits_in_processes):
    env, kwargs = SETTINGS["arms"]
    problem = make_problem(env, horizon=24, **kwargs)
    influences = {}
    for agent in (Straight, Turned):
        run = AgentRun(spec=spec_of(agent, "recommendation"), budget=Budget.parse(budget))
        made = run.spec.make()
        made.set_up(problem.info, AgentStreams([0, 1]), run.budget)
        assert behind(made.sums).numbers == Segment(0.0, 1.0)
        influences[agent] = interferes(run, problem, 5)
    assert influences[Straight] is None
    assert influences[Turned] is not None and influences[Turned].far
    assert str(influences[Turned]).startswith(
        "public directions of weighted running sums: two records"
    )


class LastAnswer(Sums):
    """Acts by the answer of the last customer, which is no part of the reward."""

    seen = np.zeros(2)

    def act(self, context):
        return (self.seen > 0.5).astype(int)

    def during(self, context, feedback):
        self.seen = feedback.answer[:, 1].copy()


def test_answers_of_any_kind_are_exchanged():
    env, kwargs = SETTINGS["arms"]
    problem = make_problem(env, horizon=12, **kwargs)
    usual = type(problem)

    class Answered(usual):
        def respond(self, hidden, round_, action):
            feedback, expected = usual.respond(self, hidden, round_, action)
            answer = np.stack([np.zeros(len(action)), round_.uniform], axis=1)
            return feedback._replace(reward=0.5 * np.ones(len(action)), answer=answer), expected

    problem.__class__ = Answered
    for agent, wanted in ((Sums, None), (LastAnswer, "records reach the action")):
        run = AgentRun(spec=spec_of(agent, "recommendation"), budget=Budget.zcdp(0.5))
        effect = interferes(run, problem, 5)
        assert (effect is None) == (wanted is None), effect
        assert wanted is None or wanted in str(effect)


def test_lists_and_columns_are_divided_by_replicate():
    one, other = np.arange(6.0).reshape(2, 3), np.arange(8.0).reshape(4, 2)
    parts = [interference._lane_of(((one, [1.0, 2.0]), {"x": 3}), lane, 0) for lane in (0, 1)]
    assert parts[0][0][0].tolist() == [0.0, 1.0, 2.0] and parts[1][0][1] == 2.0
    assert parts[0][1] == {"x": 3}
    assert interference._lane_of(other, 1, 1).tolist() == [1.0, 3.0, 5.0, 7.0]


def test_functions_are_compared_with_what_they_hold():
    def made(value):
        return lambda: value

    assert interference._digest(made(1)) == interference._digest(made(1))
    assert interference._digest(made(1)) != interference._digest(made(2))


def test_digests_differ_with_values_types_and_shapes():
    x = np.array([1.0, 2.0])
    values = [
        x, x[:1], x[None], x.astype(np.float32), x.view(np.int64), [x], (x,), [x, x], {"a": x},
        {"b": x}, [["a", x]], 1, 1.0, True, "1", None, np.float64(1.0), np.int64(1), (1, (2, 3)),
        ((1, 2), 3), (1, 2, 3), "a\0b", ["a", "b"], [], (), {}, float("nan"), -0.0, 0.0,
    ]  # fmt: skip
    digests = [interference._digest(value) for value in values]
    assert len(set(digests)) == len(values)
    assert digests == [interference._digest(value) for value in copy.deepcopy(values)]


def test_a_list_that_contains_itself_has_a_digest():
    endless: list[object] = []
    endless.append(endless)
    assert len(interference._digest(endless)) <= interference.DIGEST


def test_digests_of_calls_differ_with_arguments_names_types_and_shapes():
    one = np.ones(3)
    objects = np.array([1, 2, 3], object)
    calls = [
        ((), {"a": one}),
        ((one,), {}),
        ((one, one), {}),
        ((one,), {"a": one}),
        ((), {"b": one}),
        ((one.astype(np.float32),), {}),
        ((one.reshape(3, 1),), {}),
        ((2 * one,), {}),
        ((-0.0 * one,), {}),
        ((0.0 * one,), {}),
        ((np.ones(100),), {}),
        ((2 * np.ones(100),), {}),
        ((one.tolist(),), {}),
        ((1.0,), {}),
        ((objects,), {}),
    ]
    digests = [interference._digest_of_call(*call) for call in calls]
    assert len(set(digests)) == len(calls)
    assert digests[:-1] == [
        interference._digest_of_call(*call) for call in copy.deepcopy(calls[:-1])
    ]
    assert interference._digest_of_call((objects,), {}) == interference._digest_of_call(
        (copy.deepcopy(objects),), {}
    )


def test_copies_of_releases_are_deep():
    release = np.array([[1.0], [2.0]])
    held = np.array([[1.0]], object)
    assert interference._copy(release) is not release
    assert not np.shares_memory(interference._copy(release), release)
    held[0, 0] = [1.0]
    assert interference._copy(held)[0, 0] is not held[0, 0]


def test_digests_of_frozen_classes_differ_with_class_and_fields():
    values = [Segment(0.0, 1.0), Segment(0.0, 2.0), Ball(1.0), PSDBall(1.0), (1.0,)]
    assert len({interference._digest(value) for value in values}) == len(values)
    assert interference._digest(Ball(1.0)) == interference._digest(Ball(1.0))


def test_all_that_a_handle_shows_is_read_in_every_release():
    """A frozen part is read by its fields, so that a field that was forced is seen."""
    curator = Curator("rho=1", noise=NoiseSource.from_seed(0, 2), horizon=9)
    releaser = behind(curator.running_sum(3, reward=(0.0, 1.0)))
    releaser.ready()
    boundary = interference._Boundary(None)
    boundary.hold(releaser, 0)
    first = boundary._settings(0)
    assert boundary._settings(0) == first
    object.__setattr__(releaser.mechanism, "name", "raw 0.25")
    assert boundary._settings(0) != first
    object.__setattr__(releaser.mechanism, "name", "blt")
    object.__setattr__(releaser, "what", "raw 0.25")
    assert boundary._settings(0) != first
