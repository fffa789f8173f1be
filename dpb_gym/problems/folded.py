"""Several coming rounds of all replicates as one batch of the problem, for prices and slates.

No round depends on the batch, so n rounds of B replicates are n B replicates of one round.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from dpb_gym.errors import ActionError
from dpb_gym.problems.kinds import kind_of
from dpb_gym.problems.rounds import Array, Context, Feedback

MOST_BYTES = 1 << 21
"""Limit of the repeated hidden state, which stays in cache."""


class FoldedStretch:
    """Consecutive rounds of B replicates, answered for many actions at once.

    Args:
        problem: Their problem.
        hidden: Its hidden state, ``(B, ...)``.
        drawn: The fields of the rounds, ``(n, B, ...)``.
        t: The first round.

    Attributes:
        best: Largest expected reward, ``(n, B)``.
    """

    def __init__(self, problem: Any, hidden: dict[str, Array], drawn: Any, t: int) -> None:
        n, B = drawn["response"].shape
        self.problem, self.shape = problem, (n, B)
        self._hidden = {k: np.tile(v, (n,) + (1,) * (v.ndim - 1)) for k, v in hidden.items()}
        folded = {name: block.reshape(n * B, *block.shape[2:]) for name, block in drawn.items()}
        made = problem.make_round(self._hidden, folded, np.repeat(np.arange(t, t + n), B))
        self._round = made._replace(uniform=folded["response"])
        self.best = problem.best_action(self._hidden, self._round)[1].reshape(n, B)
        parts: list[Any] = [
            None if part is None else part.reshape(n, B, *part.shape[1:])
            for part in made.context[1:]
        ]
        self.context = Context(t, *parts)
        for part in self.context[1:]:
            if part is not None:
                part.flags.writeable = False

    def part(self, start: int, stop: int) -> tuple[dict[str, Array], Any]:
        """Return hidden state and round of the rounds `start` to `stop`, as one batch."""
        B = self.shape[1]
        rows = slice(start * B, stop * B)
        hidden = {name: value[rows] for name, value in self._hidden.items()}
        context, uniform, secret = self._round
        own: list[Any] = [None if part is None else part[rows] for part in context[1:]]
        now = Context(self.context.t + start, *own)
        secret = {name: value[rows] for name, value in secret.items()} if secret else secret
        return hidden, type(self._round)(now, uniform[rows], secret)

    def terms(self) -> tuple[Any, ...] | None:
        """Return what compiled code computes responses from; see `Problem.answer_terms`."""
        own = {name: value[: self.shape[1]] for name, value in self._hidden.items()}
        terms: tuple[Any, ...] | None = self.problem.answer_terms(own, self._round)
        return terms

    def view(self) -> Answering:
        """Return the part that a player receives."""
        return Answering(self)

    def outcome(self, view: Answering, actions: Array, agent: str) -> Any:
        """Return expected rewards, where feedback was returned, and rewards, each ``(n, B)``."""
        observed = None if view.seen.all() else view.seen
        return view.expected, observed, view.rewards


class Answering:
    """Rounds whose responses are computed when the player has chosen its actions.

    Args:
        rounds: The rounds.

    Attributes:
        context: Contexts ``(n, B, ...)``; `t` is the first round.
        shape: n and B.
        expected: Expected rewards of the actions played, ``(n, B)``.
        rewards: Their rewards.
        seen: Whether there was a response.
    """

    def __init__(self, rounds: FoldedStretch) -> None:
        self._rounds, self.context, self.shape = rounds, rounds.context, rounds.shape
        self.expected = np.zeros(self.shape)
        self.rewards = np.zeros(self.shape)
        self.seen = np.ones(self.shape, bool)

    @cached_property
    def terms(self) -> tuple[Any, ...] | None:
        """What compiled code computes the responses from; see `Problem.answer_terms`."""
        return self._rounds.terms()

    def answer(
        self, part: slice, actions: Array, responses: Callable[[Feedback], Array]
    ) -> tuple[Array, Array, Array]:
        """Respond to the actions of some rounds.

        Args:
            part: The rounds, from 0.
            actions: ``(m, B, ...)``.
            responses: Returns the response of a feedback.

        Returns:
            The actions that were played, the responses and whether there are any, ``(m, B)``.

        Raises:
            ActionError: If an action is out of range; it has the replicate and the round.
        """
        problem, (_, B) = self._rounds.problem, self.shape
        hidden, round_ = self._rounds.part(part.start, part.stop)
        folded = actions.reshape(-1, *actions.shape[2:])
        try:
            checked = problem.check_action(folded, len(folded))
            feedback, expected = problem.respond(hidden, round_, checked)
        except ActionError:
            self._find_error(part, actions)
            raise
        lines = (-1, B)
        self.expected[part] = expected.reshape(lines)
        self.rewards[part] = feedback.reward.reshape(lines)
        if feedback.observed is not None:
            self.seen[part] = feedback.observed.reshape(lines)
        played = folded
        if problem.info.price_range is not None:
            played = kind_of(problem.kind).played(problem.info, checked)
        return played.reshape(actions.shape), responses(feedback).reshape(lines), self.seen[part]

    def _find_error(self, part: slice, actions: Array) -> None:
        """Respond round by round, so that the error names a replicate, and note the round."""
        problem, (_, B) = self._rounds.problem, self.shape
        for i, action in enumerate(actions, part.start):
            try:
                checked = problem.check_action(action, B)
                problem.respond(*self._rounds.part(i, i + 1), checked)
            except ActionError as error:
                error.round = self.context.t + i
                raise
