"""Base classes of problems (hidden state, rounds, responses, best actions) and their instances."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.random import Generator

from dpb_gym.errors import HorizonExceeded, ParameterError, shown
from dpb_gym.problems.folded import MOST_BYTES, FoldedStretch
from dpb_gym.problems.kinds import kind_of
from dpb_gym.problems.rounds import Array as Array
from dpb_gym.problems.rounds import Context as Context
from dpb_gym.problems.rounds import Feedback as Feedback
from dpb_gym.problems.rounds import Field as Field
from dpb_gym.problems.rounds import Hidden as Hidden
from dpb_gym.problems.rounds import Outcome as Outcome
from dpb_gym.problems.rounds import ProblemInfo as ProblemInfo
from dpb_gym.problems.rounds import Round as Round
from dpb_gym.problems.stretch import JudgedStretch, Stretch
from dpb_gym.streams import BLOCK_BYTES, Stream, block_rounds, check_seed, generator

COMING_BYTES = 1 << 19
"""Most bytes of contexts of prefetched rounds; they fit in a core's cache."""
MOST_COMING = 128
"""Most prefetched rounds."""
MOST_LANES = 32
"""Maximum number of replicates of a `Stretch` whose rounds are made one replicate at a time."""
STRETCH_ROUNDS = 16
"""Most rounds of a `Stretch`, unless their features are small."""
STRETCH_BYTES = 1 << 20
"""A `Stretch` may have more rounds if their features have at most so many bytes."""
ZERO = np.zeros(())  # an array: NumPy would convert a number in every round


class Problem(ABC):
    """Base class of problems: immutable parameters and batch mathematics, no state.

    Subclasses set `horizon`, `dim`, `info` and `feature_bound`, and implement the hooks below.
    State lives in an `Instance`.
    """

    horizon: int
    dim: int
    info: ProblemInfo
    feature_bound: float
    """Bound on the magnitude of every feature that is ever drawn."""
    unused: Mapping[str, str] = MappingProxyType({})
    """Parameters without an effect on this problem, and what they need to have one."""
    respects_availability: bool = False
    """Whether `best_action` offers only what is available."""
    only_drawn: frozenset[str] = frozenset()
    """Names of the hidden state that is read only where the fields of rounds are drawn."""

    @property
    def kind(self) -> str:
        """Name of the problem's `Kind`."""
        return self.info.kind

    @abstractmethod
    def draw_hidden(self, rng: Generator) -> Hidden:
        """Return the state of one replicate (theta, arm features) as unbatched arrays."""

    @abstractmethod
    def fields(self) -> dict[str, Field]:
        """Return the layouts of the per-round numbers, by name."""

    @abstractmethod
    def make_round(self, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        """Build round t ``(B,)`` from the drawn fields, all with leading axis B.

        The arrays are new and are never modified later, because several rounds are held at once.
        """

    @abstractmethod
    def respond(self, hidden: Hidden, round_: Round, action: Array) -> tuple[Feedback, Array]:
        """Return the feedback to `action` and its expected reward ``(B,)``.

        Raises:
            ActionError: If an action is out of range.
        """

    @abstractmethod
    def best_action(self, hidden: Hidden, round_: Round) -> tuple[Array, Array]:
        """Return an optimal action and its expected reward ``(B,)``."""

    def stretch(
        self, hidden: Hidden, drawn: Mapping[str, Array], t: int
    ) -> JudgedStretch | FoldedStretch | None:
        """Return several rounds at once; None if agents must play them one by one.

        Where every candidate has a reward these are its table, otherwise one batch.

        Args:
            hidden: Hidden state of B replicates.
            drawn: The fields of the rounds, ``(n, B, ...)``.
            t: The first round.
        """
        # a problem with candidates can say what each of them would earn
        n, B = drawn["response"].shape
        info = self.info
        if not kind_of(info.kind).one_candidate:
            hidden = {k: v for k, v in hidden.items() if k not in self.only_drawn}
            size = sum(value.nbytes for value in hidden.values())
            most = min(n, MOST_BYTES // max(size, 1))
            if most < 2:
                return None
            return FoldedStretch(self, hidden, {k: v[:most] for k, v in drawn.items()}, t)
        if info.masked or B > MOST_LANES:
            return None
        m = info.n_candidates or 0
        reward, expected = np.empty((2, n, B, m))
        observed = np.ones((n, B, m), bool)
        best = np.empty((n, B))
        lanes = []
        partly = False
        for b in range(B):
            own = {name: value[b : b + 1] for name, value in hidden.items()}
            ahead = Ahead(self, own, {name: block[:, b] for name, block in drawn.items()}, t)
            lanes.append(ahead.context)
            best[:, b] = ahead.best[1]
            for k in range(m):
                feedback, expected[:, b, k] = ahead.respond(np.full(n, k))
                if feedback.reward.dtype != np.float64:
                    return None
                reward[:, b, k] = feedback.reward
                if feedback.observed is not None:
                    observed[:, b, k], partly = feedback.observed, True
        stacked: list[Any] = [
            None if parts[0] is None else np.stack(parts, axis=1)
            for parts in zip(*(lane[1:] for lane in lanes))
        ]
        visible = Stretch(Context(t, *stacked), reward, observed if partly else None)
        return JudgedStretch(visible, expected, best)

    def answer_terms(self, hidden: Hidden, round_: Round) -> tuple[Any, ...] | None:
        """Return what compiled code computes the responses to prices from; None: it cannot.

        See `dpb_gym.kernels.demand_models.demand_outcome`.

        Args:
            hidden: Hidden state of B replicates.
            round_: n rounds of them as one batch ``(n B, ...)``.

        Returns:
            Features ``(n, B, d - 1)``, theta ``(B, d)``, the model, zeta, the lowest and the
            highest price, and the uniforms ``(n, B)``.
        """
        return None

    def check_action(self, action: Any, replicates: int) -> Array:
        """Return the action as a well-typed array or raise `ActionError`; see `Kind`."""
        return kind_of(self.kind).check_action(self.info, action, replicates)

    def played(self, action: Any, replicates: int) -> Any:
        """Return the action that the environment plays for `action`; agents learn from it."""
        if self.info.price_range is None:
            return action
        return kind_of(self.kind).played(self.info, self.check_action(action, replicates))

    def summary(self) -> dict[str, Any]:
        """Return figures of the fit of a problem made from data; empty for synthetic problems."""
        return {}

    def instance(self, seeds: Sequence[int], episodes: Sequence[int] | None = None) -> Instance:
        """Draw the hidden state of one replicate per seed.

        Args:
            seeds: Non-negative integers, one per replicate.
            episodes: Episode numbers, 0 by default.
        """
        return Instance(self, seeds, episodes)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.info})"


class Ahead:
    """Several consecutive rounds of one replicate, computed as one batch.

    Rounds take the place of replicates, which is possible because no round depends on the batch.
    Best actions are computed for all rounds on first use.

    Attributes:
        end: The round after the last one.
        context: The contexts of all rounds.
    """

    def __init__(
        self, problem: Problem, hidden: Hidden, drawn: Mapping[str, Array], first: int
    ) -> None:
        n = len(drawn["response"])
        rows = {
            name: np.repeat(value, n, axis=0)
            if n * value.nbytes <= BLOCK_BYTES
            else np.broadcast_to(value, (n, *value.shape[1:]))
            for name, value in hidden.items()
        }
        made = problem.make_round(rows, drawn, np.arange(first, first + n))
        made = made._replace(uniform=drawn["response"])
        self.first, self.end = first, first + n
        self.context, self._uniform, self._secret = made
        self._all = problem, rows, made

    def respond(self, actions: Array) -> tuple[Feedback, Array]:
        """Feedback and expected reward of one action in every round."""
        problem, rows, made = self._all
        return problem.respond(rows, made, actions)

    @cached_property
    def best(self) -> tuple[Array, Array]:
        """Best actions of all rounds and their expected rewards."""
        problem, rows, made = self._all
        return problem.best_action(rows, made)

    @cached_property
    def values(self) -> list[float]:
        """Expected rewards of the best actions, as Python floats."""
        return self.best[1].tolist()  # type: ignore[no-any-return]

    def round(self, t: int) -> Round:
        """Return round t as a batch of one."""
        i = t - self.first
        row = slice(i, i + 1)
        _, features, revenues, arms, users, available = self.context
        context = Context(
            t,
            features[row],
            None if revenues is None else revenues[row],
            None if arms is None else arms[row],
            None if users is None else users[row],
            None if available is None else available[row],
        )
        secret = {name: value[row] for name, value in self._secret.items()} if self._secret else {}
        return Round(context, self._uniform[row], secret)


@dataclass
class _Shown:
    """A round and its best action, which is computed on first use."""

    round: Round
    ahead: Ahead | None
    best: tuple[Array, Array] | None = None


class Instance:
    """B running replicates of a problem.

    `context`, `respond` and `oracle` refer to the current round; `advance` moves to the next
    one. `respond` may be called several times in a round, once per agent. Replicates can be
    restarted one by one.

    Attributes:
        left: Units of each item left in stock, ``(B, n)``; None without a stock.
    """

    left: Array | None = None
    _coming: Sequence[tuple[_Shown, Array]] = ()

    def __init__(
        self, problem: Problem, seeds: Sequence[int], episodes: Sequence[int] | None = None
    ) -> None:
        try:
            self.seeds = [check_seed(s) for s in seeds]
        except TypeError:
            raise ParameterError(f"seeds must be a sequence, got {shown(seeds)}") from None
        if not self.seeds:
            raise ParameterError("an instance needs at least one replicate seed")
        self.problem = problem
        self.episodes = list(episodes) if episodes is not None else [0] * len(self.seeds)
        if len(self.episodes) != len(self.seeds):
            raise ParameterError(f"got {len(self.episodes)} episodes for {len(self.seeds)} seeds")
        B = self.replicates = len(self.seeds)
        self._fields = {**problem.fields(), "response": Field((), np.float64, Stream.RESPONSE)}
        width = sum(math.prod(f.shape) * np.dtype(f.dtype).itemsize for f in self._fields.values())
        self._rounds = min(block_rounds(B, width), problem.horizon)
        self._scratch, self._block = (
            {k: np.empty((*size, *f.shape), f.dtype) for k, f in self._fields.items()}
            for size in ((self._rounds,), (self._rounds, B))
        )
        self.hidden: Hidden = {}
        self._generators: list[dict[str, Generator]] = [{} for _ in range(B)]
        self._cursor, self._start, self.t = np.zeros((3, B), np.int64)
        self._shown: _Shown | None = None
        self._synced = True
        self.alone = B == 1
        self._ahead: Ahead | None = None
        for i in range(B):
            self._begin(i)

    def _begin(self, i: int) -> None:
        seed = self.seeds[i]
        episode = self.episodes[i]
        drawn = self.problem.draw_hidden(generator(seed, Stream.HIDDEN, episode))
        for name, value in drawn.items():
            if name not in self.hidden:
                self.hidden[name] = np.empty((self.replicates, *value.shape), value.dtype)
            self.hidden[name][i] = value
        self._generators[i] = {
            name: generator(seed, field.stream, episode) for name, field in self._fields.items()
        }
        self.t[i], self._start[i] = 1, 0
        self._refill(i)
        self._shown = self._ahead = None

    def _refill(self, i: int) -> None:
        lane = {name: value[i] for name, value in self.hidden.items()}
        for name, field in self._fields.items():
            scratch = self._scratch[name]
            field.fill(self._generators[i][name], int(self._start[i]), lane, scratch)
            self._block[name][:, i] = scratch
        self._start[i] += self._rounds
        self._cursor[i] = 0

    def restart(self, i: int, seed: int, episode: int) -> None:
        """Restart replicate i with another seed or episode."""
        self.seeds[i] = check_seed(seed)
        self.episodes[i] = episode
        self._begin(i)
        self._synced = self._in_step()

    def _in_step(self) -> bool:
        same = (self._cursor == self._cursor[0]) & (self.t == self.t[0])
        return bool(same.all())

    def round(self) -> Round:
        """Return the current round."""
        if self._shown is not None:
            return self._shown.round
        if self.alone:
            t = int(self.t[0])
            ahead = self.ahead(t)
            self._shown = _Shown(ahead.round(t), ahead)
            return self._shown.round
        at = self._cursor[0] if self._synced else (self._cursor, np.arange(self.replicates))
        drawn = {k: v[at] for k, v in self._block.items()}
        made = self.problem.make_round(self.hidden, drawn, self.t)
        self._shown = _Shown(made._replace(uniform=drawn["response"]), None)
        return self._shown.round

    def ahead(self, t: int) -> Ahead:
        """Return prepared rounds of a single replicate that include the current round t."""
        ahead = self._ahead
        if ahead is None or t >= ahead.end:
            at = int(self._cursor[0])
            # few at first: an episode may be short
            n = 4 if ahead is None else 2 * (ahead.end - ahead.first)
            info = self.problem.info
            fits = BLOCK_BYTES // (4 * math.prod(kind_of(info.kind).feature_shape(info)))
            n = min(n, max(1, fits), self._rounds - at, self.problem.horizon - t + 1)
            drawn = {k: v[at : at + n, 0] for k, v in self._block.items()}
            ahead = self._ahead = Ahead(self.problem, self.hidden, drawn, t)
        return ahead

    def coming(self, most: int) -> list[Context]:
        """Return the contexts of the current and some following rounds; advance to the last one.

        The contexts are read-only and valid until the instance advances. `show` returns to any
        of these rounds.

        Args:
            most: Maximum number of rounds; fewer if their contexts do not fit in cache.
        """
        coming: list[tuple[_Shown, Array]] = []
        size = 0
        block = self._rounds - int(self._cursor[0])
        while True:
            for part in self.round().context[1:]:
                if part is not None:
                    part.flags.writeable = False
                    size += part.nbytes
            assert self._shown is not None
            coming.append((self._shown, self.t.copy()))
            if len(coming) >= min(most, block, MOST_COMING) or size > COMING_BYTES:
                self._coming = coming
                return [shown.round.context for shown, _ in coming]
            self.advance()

    def stretch(self, rounds: int, behind: int = 0) -> JudgedStretch | FoldedStretch | None:
        """Return rounds as a `Stretch`; the instance does not move.

        Args:
            rounds: Rounds at most; fewer where the drawn numbers end or memory would not do.
            behind: Begin so many rounds before the current one; all were drawn with it.

        Returns:
            The stretch; None where rounds have to be played one by one.
        """
        if type(self) is not Instance or not self._synced:
            return None
        first = int(self._cursor[0]) - behind
        info = self.problem.info
        width = 4 * self.replicates * math.prod(kind_of(info.kind).feature_shape(info))
        last = min(first + min(rounds, max(STRETCH_ROUNDS, STRETCH_BYTES // width)), self._rounds)
        drawn = {name: block[first:last] for name, block in self._block.items()}
        return self.problem.stretch(self.hidden, drawn, int(self.t[0]) - behind)

    def move(self, most: int) -> JudgedStretch | FoldedStretch | None:
        """Return the coming rounds as a `stretch`, if there can be one, and move to its last.

        Args:
            most: Rounds at most.
        """
        rounds = self.stretch(most)
        if rounds is not None and len(rounds.best) > 1:
            self._shown = None
            self.t += len(rounds.best) - 1
            self._cursor += len(rounds.best) - 1
        return rounds

    def show(self, at: int) -> None:
        """Return to the round at an index of the last `coming`."""
        self._shown, self.t = self._coming[at]

    @property
    def best(self) -> Array | None:
        """Largest expected reward in each of the `coming` rounds, ``(n, B)``, or None without any.

        Moves to the last of these rounds.
        """
        values = []
        for at in range(len(self._coming)):
            self.show(at)
            values.append(self.oracle()[1])
        return np.array(values) if values else None

    def saved(self) -> dict[str, Any] | None:
        """Return as plain state what the rounds so far have changed, for `restore`.

        Of an instance whose replicates are in the same round. None if it cannot be saved.
        """
        return {
            "round": int(self.t[0]),
            "cursor": int(self._cursor[0]),
            "start": int(self._start[0]),
            "hidden": self.hidden,
            "block": self._block,
            "generators": self._generators,
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Move a new instance of the same problem and seeds to the round that `saved` describes.

        Raises:
            ParameterError: If it is of another problem or of other replicates.
        """
        for own, stored in ((self.hidden, saved["hidden"]), (self._block, saved["block"])):
            layout = {name: (value.shape, value.dtype) for name, value in own.items()}
            if {name: (value.shape, value.dtype) for name, value in stored.items()} != layout:
                raise ParameterError("the saved instance is of another problem")
            for name, value in own.items():
                value[...] = stored[name]
        self.t[:] = saved["round"]
        self._cursor[:] = saved["cursor"]
        self._start[:] = saved["start"]
        self._generators = list(saved["generators"])
        self._shown = self._ahead = None

    def context(self) -> Context:
        """Return what policies may see of the current round."""
        return self.round().context

    def oracle(self) -> tuple[Array, Array]:
        """Return an optimal action and its expected reward ``(B,)``."""
        round_ = self.round()
        shown = self._shown
        assert shown is not None
        if shown.best is None and shown.ahead is not None:
            i = int(self.t[0]) - shown.ahead.first
            actions, values = shown.ahead.best
            shown.best = actions[i : i + 1], values[i : i + 1]
        elif shown.best is None:
            shown.best = self.problem.best_action(self.hidden, round_)
        return shown.best

    def best_action(self) -> Array:
        """Return an optimal action, for baselines."""
        return self.oracle()[0]

    def respond(self, action: Any) -> Outcome:
        """Return the outcome of `action` in the current round, without advancing.

        Raises:
            ActionError: If the action has a wrong shape, dtype or range.
        """
        feedback, expected = self.answer(action)
        return Outcome(feedback, expected, self.regret(expected, feedback.observed))

    def answer(self, action: Any) -> tuple[Feedback, Array]:
        """Return feedback and expected reward of `action`, without the regret."""
        checked = self.problem.check_action(action, self.replicates)
        return self.problem.respond(self.hidden, self.round(), checked)

    def regret(self, expected: Array, observed: Array | None, best: Array | None = None) -> Array:
        """Return the pseudo-regret ``(B,)``; 0 where nothing was observed.

        Args:
            expected: Expected reward, ``(B,)`` or of many rounds ``(n, B)``.
            observed: Where feedback was returned; None: everywhere.
            best: Expected reward of the best action; that of the current round by default.
        """
        regret = np.maximum((self.oracle()[1] if best is None else best) - expected, ZERO)
        return regret if observed is None else np.where(observed, regret, 0.0)

    def advance(self, lanes: Array | None = None) -> None:
        """Move to the next round.

        Args:
            lanes: Mask ``(B,)`` of the replicates to move; all by default.

        Raises:
            HorizonExceeded: If a replicate is past its horizon already.
        """
        if self.alone and lanes is None and self.t[0] < self.problem.horizon:
            self._shown = None
            self.t[0] += 1
            self._cursor[0] += 1
            if self._cursor[0] == self._rounds:
                self._refill(0)
            return
        moving = slice(None) if lanes is None else lanes
        in_step = self._synced and lanes is None
        last = self.t[0] if in_step else self.t[moving].max(initial=0)
        if last >= self.problem.horizon:
            raise HorizonExceeded(f"the horizon of {self.problem.horizon} rounds is over")
        self._shown = None
        self.t[moving] += 1
        self._cursor[moving] += 1
        if in_step and self._cursor[0] < self._rounds:
            return
        for i in np.flatnonzero(self._cursor == self._rounds):
            self._refill(int(i))
        if lanes is not None:
            self._synced = self._in_step()
