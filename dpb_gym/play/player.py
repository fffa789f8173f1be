"""The player: replicates, rounds, releases and random numbers around an `Algorithm`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ForwardRef

import numpy as np

from dpb_gym import kernels, privacy, validation
from dpb_gym.agent import Agent
from dpb_gym.errors import ActionError, AgentError, ParameterError
from dpb_gym.lazy import of_this_distribution
from dpb_gym.play.algorithm import Algorithm, Functions, Plan
from dpb_gym.play.compiled import compiled_loops
from dpb_gym.play.purity import check_functions, check_values, tuples_in
from dpb_gym.privacy.curator import foreign_part
from dpb_gym.privacy.guarantee import RESPONSES
from dpb_gym.privacy.releasers.releaser import Handle, behind
from dpb_gym.problems.availability import original_actions, original_probabilities, stand_ins
from dpb_gym.problems.folded import Answering
from dpb_gym.problems.kinds import kind_of
from dpb_gym.problems.prior import Prior
from dpb_gym.problems.rounds import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.stretch import Stretch
from dpb_gym.streams import AgentStreams

BOUND = (
    "_c", "_R", "_shapes", "_memory", "_loops", "_kind", "_fields", "_functions", "_offered",
    "_action_shape", "_action_type", "_widths", "_everyone", "_no_second", "_follows",
)  # fmt: skip
"""Attributes that are made again after loading."""
UNUSED_SUMS = np.zeros((1, 0))


def read_only(value: Any) -> Any:
    """Return a number, an array or a (named) tuple of them with all arrays read-only."""
    if isinstance(value, tuple):
        parts = [read_only(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, np.ndarray) and value.flags.writeable:
        view = value.view()
        view.flags.writeable = False
        return view
    return value


# A named tuple keeps an annotation that is text as a reference.
FLOAT = (float, ForwardRef("float"))


def with_floats(known: Any) -> Any:
    """Return c whose integers are floats where its class says so.

    Functions are compiled once more for an integer, such as a parameter 4 for 4.0.
    """
    kinds = getattr(type(known), "__annotations__", {})
    floats = {
        name: float(getattr(known, name))
        for name, kind in kinds.items()
        if kind in FLOAT and type(getattr(known, name)) is int
    }
    return known._replace(**floats) if floats else known


class Player(Agent):
    """B replicates of an algorithm.

    It holds responses and states. The functions of the algorithm get the state of one replicate,
    read-only where they do not learn, and each record goes to the curator once.

    Args:
        algorithm: The algorithm.

    Attributes:
        algorithm: The algorithm.
        known: c of its functions.
        state: The states, a named tuple of arrays ``(B, ...)``.
        rounds: Rounds so far.
        plan: Its plan, with the releaser.
    """

    plan: Plan

    def __init__(self, algorithm: Algorithm) -> None:
        self.algorithm = algorithm
        self.protects = algorithm.protects

    @property
    def own_class(self) -> type:
        return type(self.algorithm)

    @property
    def public_contexts(self) -> bool:
        """Whether contexts do not depend on customers, which a player that says so checks."""
        return False

    @property
    def updates(self) -> Array:
        """Number of releases that each replicate has learnt from, ``(B,)``."""
        return self._releases.copy()

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes without what `_bind` makes again, such as compiled functions."""
        return {name: value for name, value in vars(self).items() if name not in BOUND}

    def set_up(self, problem: ProblemInfo, *streams: Any, **options: Any) -> None:
        """Set up; a parameter `prior_mean` of the algorithm replaces the prior of the problem."""
        mean = getattr(self.algorithm, "prior_mean", None)
        if mean is not None:
            mean = validation.array("prior_mean", mean, (problem.dim,))
            problem = replace(problem, prior=Prior(tuple(mean.tolist())))
        super().set_up(problem, *streams, **options)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: privacy.Curator) -> None:
        algorithm = self.algorithm
        B = streams.replicates
        algorithm.check(problem)
        self.problem = problem
        plan = algorithm.plan(problem, curator)
        if isinstance(plan, Plan) and callable(plan.sums):
            plan = plan._replace(sums=plan.sums(streams))
        # a subclass could return other releasers when a record enters
        if type(plan) is not Plan or not hasattr(plan.sums, "shape"):
            raise AgentError(
                f"{self.class_name}.plan must return a Plan with the releaser of its sums, for "
                "example Plan(curator.batch_sum(...))"
            )
        self.plan = plan
        self._check_plan(curator)
        schedule = getattr(plan.sums, "schedule", None)
        ends = list(plan.ends) or None if schedule is None else schedule.ends
        self._ends = None if ends is None else [int(end) for end in ends]
        self._planned = schedule is not None
        sums = plan.sums if plan.second is None else (plan.sums, plan.second)
        self.known, first = algorithm.start(problem, sums)
        check_values(self.class_name, self.known, first)
        self.known = with_floats(self.known)
        arrays = (np.asarray(part, order="C") for part in first)
        self.state = type(first)(*(np.repeat(part[None], B, axis=0) for part in arrays))
        self._labels = None
        if self._context_fields() == ("arms",):
            # arms get random numbers, so that no rule of the algorithm prefers one by its number
            assert problem.n_arms is not None
            orders = [rng.permutation(problem.n_arms) for rng in streams.agent]
            self._labels = np.array(orders, np.int64)
        self._numbers = None
        if plan.dim:
            draw = streams.uniforms if plan.law == "uniforms" else streams.normals
            self._numbers = draw(plan.dim)
        self.rounds = 0
        self._records = np.zeros(B)
        self._releases = np.zeros(B, np.int64)
        limited = plan.users or plan.cap is not None or plan.scale is not None
        self.stretches = problem.delay is None and not limited
        self._bind()

    def _bind(self) -> None:
        """Make what is no part of a saved state: compiled loops and read-only views."""
        self._offered: tuple[Context | None, tuple[Array, ...]] = (None, ())
        self._functions = self._checked_functions()
        self._kind = kind_of(self.problem.kind)
        self._fields = self._context_fields() or self._kind.context
        shape = self._kind.feature_shape(self.problem)
        shapes = {"features": shape, "revenues": shape[:1], "arms": shape[:1]}
        self._shapes = [shapes[name] for name in self._fields]
        self._memory: dict[str, Array] = {}
        self._action_shape = self._kind.action_shape(self.problem)
        self._action_type = np.int64 if self._kind.integral else np.float64
        plan = self.plan
        record = plan.sums.shape
        # v of a symmetric record w v v' is as long as the matrix is wide
        width = record.symmetric if plan.directed and record.symmetric else record.width
        self._widths = width, 0 if plan.second is None else plan.second.shape.width
        B = len(self._releases)
        self._everyone = np.ones(B, bool)
        self._no_second = read_only(np.zeros((B, 0)))
        self._c = read_only(self.known)
        self._R = read_only(self.state)
        follows = self._sums_of_rewards and plan.every == 1 and not plan.forget
        self._follows = follows and self._ends is None and not self.curator.private
        kind: Any = type(self.state)
        self._loops = compiled_loops(
            type(self.algorithm),
            self._functions,
            kind,
            len(self._fields),
            "arms" in self._fields,
            bool(self._action_shape),
            self._kind.one_candidate,
            self.plan.directed,
            self.plan.second is not None,
            self._sums_of_rewards,
            self.plan.directed and self.curator.private and self.curator.unit in RESPONSES,
            self._kind.one_price,
        )

    def _check_plan(self, curator: privacy.Curator) -> None:
        """Raise `AgentError` if code outside of the functions would get records."""
        plan = self.plan
        numbers = (*plan.ends, plan.every, plan.forget, plan.draws, plan.repeats, plan.dim)
        switches = (plan.directed, plan.running, plan.users)
        if {*map(type, numbers)} != {int} or {*map(type, switches)} != {bool}:
            raise AgentError(f"{self.class_name}.plan: rounds and counts are int, switches bool")
        for sums in (plan.sums, *([] if plan.second is None else [plan.second])):
            if not self._may_receive(sums, curator):
                raise AgentError(
                    f"{self.class_name}.plan must return releasers that the curator it gets made, "
                    "for example Plan(curator.batch_sum(...))"
                )
        for releaser in map(behind, curator.releasers):
            loss = releaser.loss if getattr(releaser, "has_loss", False) else None
            model = getattr(releaser, "model", None)
            code = [each for each in (loss, model and type(model)) if each is not None]
            if foreign_part(releaser) is not None or not all(map(of_this_distribution, code)):
                raise AgentError(
                    f"{self.class_name}: {releaser.what} has code of another package, which would "
                    "get the records of an Algorithm; write an Agent"
                )
        for part in (plan.cap, plan.scale):
            if part is not None and not of_this_distribution(type(part)):
                raise AgentError(
                    f"{self.class_name}: {type(part).__name__} is of another package, and would "
                    "get the records of an Algorithm; write an Agent"
                )

    def _may_receive(self, sums: Any, curator: privacy.Curator) -> bool:
        """Return whether records may enter what a plan has as its sums."""
        if any(sums is handle for handle in curator.releasers):
            return True
        # the releaser of another curator is not charged
        if isinstance(sums, Handle):
            return False
        # another class would get records; one of this package makes its own sums
        if of_this_distribution(type(self.algorithm)):
            return True
        own = any(sums is behind(handle) for handle in curator.releasers)
        return own and of_this_distribution(type(sums))

    def _context_fields(self) -> tuple[str, ...] | None:
        """Return the fields of the context that the algorithm names; None: those of the kind."""
        of_arms = self.algorithm.context_of_arms
        # whether arms are fixed is asked only where it matters
        if of_arms and self.problem.fixed_arms:
            return of_arms
        return self.algorithm.context

    def _checked_functions(self) -> Functions:
        """Return the functions of the algorithm, checked, also after loading."""
        functions = self.algorithm.functions_for(self.problem)
        check_values(self.class_name, self.known, self.state)
        check_functions(self.class_name, functions, tuples_in(self.known, self.state))
        curator = self.curator
        private = curator.private and curator.unit not in RESPONSES
        if functions.see is not None and private and not self.public_contexts:
            raise AgentError(
                f"{self.class_name} protects a {curator.unit}, so its contexts and actions are "
                "private: leave out see, and let record return what is learnt from them"
            )
        return functions

    def _converted(self, name: str, part: Array) -> Array:
        """Return a field in the precision of the functions; the next context may overwrite it.

        New memory for each context of 10^5 candidates takes longer than to convert them.
        """
        kind = np.int64 if name == "arms" else np.float64
        if part.dtype == kind:
            return np.ascontiguousarray(part)
        memory = self._memory.get(name)
        if memory is None or memory.shape != part.shape:
            memory = self._memory[name] = np.empty(part.shape, kind)
        np.copyto(memory, part, casting="unsafe")
        return memory

    def _check_shapes(self, contexts: tuple[Array, ...]) -> None:
        """Note the shapes of a context, which may have other numbers of candidates than the last.

        Raises:
            AgentError: If it differs in more than that.
        """
        shapes = [part.shape[2:] for part in contexts]
        if shapes == self._shapes:
            return
        for name, shape, usual in zip(self._fields, shapes, self._shapes):
            many = 1 if len(usual) == 2 or name != "features" else 0
            if len(shape) != len(usual) or shape[many:] != usual[many:]:
                wanted = tuple("any" if i < many else n for i, n in enumerate(usual))
                raise AgentError(f"{name} of a customer must have shape {wanted}, got {shape}")
        if len({shape[0] for shape in shapes if len(shapes) > 1}) > 1:
            raise AgentError(f"fields of a context have different numbers of candidates: {shapes}")
        self._shapes = shapes

    @property
    def _sums_of_rewards(self) -> bool:
        """Whether compiled code can add the records to exact sums in every round."""
        plan = self.plan
        own = not self._stops and plan.second is None
        own = own and plan.directed and not plan.sums.shape.symmetric
        return own and getattr(plan.sums, "cumulative", False)

    def _contexts(self, context: Context, rounds: bool = False) -> tuple[Array, ...]:
        """Return the fields that the algorithm sees, ``(n, B, ...)``; n = 1 without `rounds`."""
        # the context of a decision mostly comes again with the response to it
        if self._offered[0] is context and not rounds:
            return self._offered[1]
        self._offered = (None, ())
        parts = []
        for name in self._fields:
            part = context.offered_revenues if name == "revenues" else getattr(context, name)
            if part is None:
                raise AgentError(f"{self.class_name} needs {name}, which this problem has not")
            part = part if rounds else part[None]
            if self._labels is not None:
                part = self._labels[np.arange(part.shape[1])[:, None], part]
            parts.append(read_only(self._converted(name, part)))
        contexts = tuple(parts)
        self._check_shapes(contexts)
        if not rounds:
            self._offered = context, contexts
        return contexts

    def _draw(self, rounds: int, count: int) -> Array:
        """Return random vectors ``(rounds, B, count, dim)``."""
        B = len(self._releases)
        if self._numbers is None or not count:
            return np.zeros((rounds, B, 0, 0))
        drawn = self._numbers.take(rounds * count).reshape(rounds, count, B, -1)
        return np.ascontiguousarray(drawn.swapaxes(1, 2))

    def _count(self, t: int) -> int:
        """Return the number of vectors that `act` gets in round t."""
        own: Any = self._functions.draws
        # in Python, which is faster than to hand c to compiled code
        return self.plan.draws if own is None else int(own.py_func(self._c, t))

    def _actions(self, rounds: int) -> Array:
        return np.zeros((rounds, len(self._releases), *self._action_shape), self._action_type)

    def act(self, context: Context) -> Array:
        self._ready()
        index = None
        if context.available is not None and "revenues" not in self._fields:
            context, index = stand_ins(context)
        actions = self._actions(1)
        z = self._draw(1, self._count(self.rounds + 1))
        self._run("act_rounds", self._R, self._contexts(context), z, actions)
        return original_actions(actions[0], index)

    def _run(self, loop: str, states: Any, contexts: tuple[Array, ...], *rest: Any) -> None:
        run = getattr(self._loops, loop)
        run(self._c, states, self.rounds + 1, contexts, *rest)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        self._ready()
        B = len(self._releases)
        observed = np.ones(B, bool) if feedback.observed is None else feedback.observed
        if self.plan.cap is not None:
            observed = self.plan.cap.admit(context.users, observed)
        contexts = self._contexts(context)
        actions = read_only(np.ascontiguousarray(action)[None])
        self._check(actions, observed)
        responses = np.asarray(self._responses(feedback))[None]
        seen = np.ascontiguousarray(observed)[None]
        z = self._draw(1, self.plan.repeats)
        values, rows, others = self._record(contexts, actions, responses, seen, z)
        if self.plan.scale is not None:
            weights = self.plan.scale.scale(context.users, observed, rows[0])
            self.state.weight[:, 0] = weights
        if self._functions.see is not None:
            self._run("see_rounds", self.state, contexts, actions, seen)
        users = {"users": context.users} if self.plan.users else {}
        if self.plan.directed:
            self.plan.sums.add(values[0], rows[0], **users)
        else:
            self.plan.sums.add(rows[0], **users)
        if self.plan.second is not None:
            self.plan.second.add(others[0])
        self._count_records(seen)
        self._moved(1)

    def _check(self, actions: Array, observed: Array) -> None:
        """Raise `ActionError` for the first observed action that does not exist."""
        if self._kind.integral and not self._slates():
            many = self._shapes[0][0]
            # of one number, as in a session, a comparison of Python takes a tenth of the time
            if actions.size == 1 and 0 <= actions.item() < many:
                return
            bad = observed & ((actions[0] < 0) | (actions[0] >= many))
            if bad.any():
                i = int(bad.argmax())
                raise ActionError(
                    f"candidate {actions[0, i]} of replicate {i} is outside 0..{many - 1}"
                ).at(i)

    def _responses(self, feedback: Feedback) -> Array:
        name = self._kind.response
        responses = feedback.reward if name is None else getattr(feedback, name)
        assert responses is not None
        return responses

    def _record(
        self, contexts: tuple[Array, ...], actions: Array, responses: Array, seen: Array, z: Array
    ) -> tuple[Array, Array, Array]:
        out = self._empty_records(*seen.shape)
        self._run("record_rounds", self._R, contexts, actions, responses, seen, z, *out)
        return out

    def _empty_records(self, n: int, B: int) -> tuple[Array, Array, Array]:
        """Return zeros for numbers, rows or directions, and rows of the second sums."""
        width, second = self._widths
        return np.zeros((n, B)), np.zeros((n, B, width)), np.zeros((n, B, second))

    def _count_records(self, seen: Array) -> None:
        """Count the records of rounds ``(n, B)``; see `Released.records`."""
        if not self.problem.partial_feedback:
            self._records += seen[0] if len(seen) == 1 else seen.sum(axis=0)
            return
        for _ in seen:
            self._records += 1.0 / (self.problem.n_candidates or 1)

    def _moved(self, rounds: int) -> None:
        """Count rounds whose records are in the sums, and learn where there is a release."""
        self.rounds += rounds
        plan = self.plan
        t = self.rounds
        if self._ends is not None:
            k = int(self._releases[0])
            if k < len(self._ends) and t == self._ends[k]:
                self._learn(plan.sums.value if self._planned else self._release())
        elif self._stops:
            due = self._due()
            if due.any():
                self._learn(self._release(due), due)
        elif plan.forget and t % plan.forget == 0:
            plan.sums.release()
            self._learn(plan.sums.forget())
        elif t % plan.every == 0:
            self._learn(plan.sums.value if plan.running else self._release())

    @property
    def _stops(self) -> bool:
        """Whether the state says when the sums are released."""
        functions = self._functions
        return functions.due is not None and functions.adopt is None

    def _due(self) -> Array:
        """Return the replicates with a release after this round, ``(B,)`` bool."""
        due = np.zeros(len(self._releases), bool)
        self._loops.due_lanes(self._c, self._R, self.rounds, due)
        return due

    def _release(self, due: Array | None = None) -> Array:
        """Return the newest releases, for the replicates in `due`; None: all."""
        plan = self.plan
        if self._functions.image is None:
            return np.asarray(plan.sums.release() if due is None else plan.sums.release(due))
        B = len(self._releases)
        width = plan.sums.shape.width
        due = np.ones(B, bool) if due is None else due
        matrices = np.zeros((B, width, width))
        norms = np.ones(B)
        self._loops.image_lanes(self._c, self.state, self.rounds, due, matrices, norms)
        return np.asarray(plan.sums.release(due, matrices, norms))

    def _learn(self, sums: Array, due: Array | None = None) -> None:
        due = self._everyone if due is None else due
        sums = read_only(np.ascontiguousarray(sums))
        releaser = self.plan.sums
        second = self._no_second
        adopt = self._functions.adopt
        if self.plan.second is not None and adopt is None:
            second = read_only(np.ascontiguousarray(self.plan.second.release()))
        std = 0.0 if self.plan.running else float(getattr(releaser, "noise_std", 0.0))
        record_std = float(getattr(releaser, "record_std", 0.0))
        numbers = self._releases
        self._loops.learn_lanes(
            self._c,
            self.state,
            sums,
            std,
            record_std,
            numbers,
            self._records,
            second,
            self.rounds,
            due,
        )
        self._releases += due
        if adopt is not None:
            due = self._due()
            if due.any():
                second = read_only(np.ascontiguousarray(self.plan.second.release(due)))
                self._loops.adopt_lanes(self._c, self.state, second, self.rounds, due)

    def _until_release(self) -> int:
        """Return the rounds until the next release; if they are not known, the most."""
        if self._stops:
            return 1 << 60
        if self._ends is not None:
            k = int(self._releases[0])
            return self._ends[k] - self.rounds if k < len(self._ends) else 1 << 60
        return self.plan.every - self.rounds % self.plan.every

    def play(self, rounds: Stretch | Answering) -> Array:
        self._ready()
        if isinstance(rounds, Answering):
            return self._play_steadily(rounds)
        n, B = rounds.shape
        contexts = self._contexts(rounds.context, rounds=True)
        plan = self.plan
        actions = np.zeros((n, B), np.int64)
        values, rows, others = self._empty_records(n, B)
        scratch = np.zeros(rows.shape[2])
        numbers = self._draw(n, plan.draws + plan.repeats)
        z = np.ascontiguousarray(numbers[:, :, : plan.draws])
        repeats = np.ascontiguousarray(numbers[:, :, plan.draws :])
        follow = self._follows
        totals = UNUSED_SUMS
        clip = (0.0, 0.0)
        counts = np.zeros(B, np.int64)
        start = 0
        while start < n:
            stop = n if follow else min(n, start + self._until_release())
            part = slice(start, stop)
            if follow:
                totals, low, high, counts = plan.sums.exact_sums(stop - start)
                clip = low, high
            status, played, all_exist = self._loops.play_table(
                self._c,
                self._R,
                self.state,
                self.rounds + 1,
                tuple(field[part] for field in contexts),
                z[part],
                repeats[part],
                rounds.reward[part],
                rounds.observed[part],
                follow,
                totals,
                read_only(totals),
                clip,
                counts,
                self._records,
                scratch,
                actions[part],
                values[part],
                rows[part],
                others[part],
            )
            if status != kernels.continual.OK:
                raise ParameterError("records must be finite; got NaN or infinity")
            part = slice(start, start + played)
            if not all_exist:
                raise self._first_missing(actions[part], rounds.reward.shape[2])
            if follow:
                self.rounds += played
                self._releases += played
            else:
                seen = rounds.answered(actions[part], part)
                self._add_rounds(values[part], rows[part], others[part], seen)
            start += played
        return actions

    def _first_missing(self, actions: Array, many: int) -> ActionError:
        """Return the error for the first action of the next rounds that does not exist."""
        i, b = np.argwhere((actions < 0) | (actions >= many))[0]
        text = f"candidate {actions[i, b]} of replicate {b} is outside 0..{many - 1}"
        error = ActionError(text).at(b)
        error.round = self.rounds + 1 + int(i)
        return error

    def _add_rounds(self, values: Array, rows: Array, others: Array, seen: Array) -> None:
        if self.plan.directed:
            self.plan.sums.add_rounds(values, rows)
        else:
            self.plan.sums.add_rounds(rows)
        if self.plan.second is not None:
            self.plan.second.add_rounds(others)
        self._count_records(seen)
        self._moved(len(rows))

    def _play_steadily(self, rounds: Answering) -> Array:
        """Play parts of rounds in which the state does not change; all are answered at once."""
        n, _ = rounds.shape
        contexts = self._contexts(rounds.context, rounds=True)
        plan = self.plan
        actions = self._actions(n)
        changes = self._stops or self._functions.see is not None
        start = 0
        while start < n:
            count, most = self._steady(min(n - start, self._until_release()))
            if changes and self._plays_prices(rounds, count):
                start += self._play_prices(rounds, contexts, actions, slice(start, start + most))
                continue
            # actions that are answered at once cannot stop where the state changes
            most = 1 if changes else most
            part = slice(start, start + most)
            numbers = self._draw(most, count + plan.repeats)
            now = tuple(field[part] for field in contexts)
            out = actions[part]
            self._run("act_rounds", self._R, now, np.ascontiguousarray(numbers[:, :, :count]), out)
            played, responses, seen = rounds.answer(part, out, self._responses)
            repeats = np.ascontiguousarray(numbers[:, :, count:])
            records = self._record(now, read_only(played), responses, seen, repeats)
            if self._functions.see is not None:
                self._run("see_rounds", self.state, now, read_only(played), seen)
            self._add_rounds(*records, seen)
            start += most
        return actions

    def _plays_prices(self, rounds: Answering, count: int) -> bool:
        """Return whether compiled code can play the coming rounds one after another.

        It cannot return the random numbers of rounds after a release, so it plays without any.
        """
        return not count and not self.plan.repeats and rounds.terms is not None

    def _play_prices(
        self, rounds: Answering, contexts: tuple[Array, ...], actions: Array, part: slice
    ) -> int:
        """Play rounds in which the state may change, up to a release. Return their number."""
        most = part.stop - part.start
        B = rounds.shape[1]
        features, *known, uniform = rounds.terms or ()
        demand, played = np.zeros((2, most, B))
        records = self._empty_records(most, B)
        none = np.zeros((most, B, 0, 0))
        status, count = self._loops.play_prices(
            self._c, self._R, self.state, self.rounds + 1,
            tuple(field[part] for field in contexts), none, none,
            (features[part], *known, uniform[part]), actions[part], played, demand,
            rounds.rewards[part], rounds.expected[part], *records,
        )  # fmt: skip
        if count:
            values, rows, others = (each[:count] for each in records)
            self._add_rounds(values, rows, others, np.ones((count, B), bool))
        if status != kernels.continual.OK:
            impossible = slice(part.start + count, part.start + count + 1)
            rounds.answer(impossible, actions[impossible], self._responses)  # names it and raises
        return int(count)

    def _steady(self, most: int) -> tuple[int, int]:
        """Return the number of vectors that `act` gets, and for how many rounds, at most `most`."""
        t = self.rounds + 1
        count = self._count(t)
        if self._functions.draws is not None:
            for i in range(1, most):
                if self._count(t + i) != count:
                    return count, i
        return count, most

    def probabilities(self, context: Context) -> Array | None:
        """Return the probabilities of the candidates, if the algorithm states or implies them.

        An algorithm without random numbers plays one candidate with probability 1.
        """
        self._ready()
        stated = self._functions.shares is not None
        if not self._kind.integral or self._slates() or not (stated or self._numbers is None):
            return None
        shown, index = stand_ins(context)
        if stated:
            probabilities = np.zeros((1, *shown.features.shape[:2]))
            self._run("shares_rounds", self._R, self._contexts(shown), probabilities)
            return original_probabilities(probabilities[0], index)
        actions = self._actions(1)
        self._run("act_rounds", self._R, self._contexts(shown), self._draw(1, 0), actions)
        shares = np.zeros(shown.features.shape[:2])
        shares[np.arange(len(shares)), actions[0]] = 1.0
        return original_probabilities(shares, index)

    def _slates(self) -> bool:
        return bool(self._action_shape)

    def _ready(self) -> None:
        """Make the views again after loading."""
        if "_loops" not in vars(self):
            self._bind()
