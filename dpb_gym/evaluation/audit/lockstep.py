"""Plays both worlds in one batch: frozen customers, one of them exchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from dpb_gym.evaluation.audit.taps import MOST_TAPS, Gradient, Tap, boundary, spread
from dpb_gym.evaluation.audit.worlds import Pair, World, answer, check_pair
from dpb_gym.evaluation.spec import AgentRun
from dpb_gym.privacy import Guarantee
from dpb_gym.problems.base import Array, Context, Feedback, Problem, Round
from dpb_gym.streams import AgentStreams

MOST_ACTIONS = 16
Worlds = tuple[World, World]
Batch = TypeVar("Batch", Context, Feedback)


@dataclass(frozen=True)
class Observed:
    """What the attacker sees of all runs, the first world's first.

    Attributes:
        guarantee: What the agent claims at the end.
        releases: Numbers at the privacy boundary ``(2 runs, p)``.
        actions: Numbers of the actions ``(2 runs, q)``.
        taps: The taps, for their statistics.
    """

    guarantee: Guarantee | None
    releases: Array
    actions: Array
    taps: list[Tap]


def play(
    run: AgentRun,
    problem: Problem,
    pair: Pair,
    targets: Sequence[int],
    *,
    runs: int,
    customers: int,
    first_seed: int,
) -> Observed:
    """Runs an agent on two neighbouring worlds, `runs` times each, as one batch.

    Contexts and potential outcomes of all customers but the target are the same in every run,
    those of the replicate `customers`; the agent's randomness and its noise differ.

    Args:
        run: The agent and its budget.
        problem: The problem; its horizon is played to the end.
        pair: Who the target is in either world.
        targets: Her rounds, ascending; the first of them is the agent's first sight of her.
        runs: Runs in each world.
        customers: Seed of the customers.
        first_seed: Seeds of the agent are this one and the following.
    """
    info = problem.info
    agent = run.make()
    agent.begin(info, AgentStreams(range(first_seed, first_seed + 2 * runs)), run.budget)
    things = boundary(agent)
    taps = [Tap(name, thing, runs) for name, thing in things] if len(things) <= MOST_TAPS else []
    instance = problem.instance([customers])
    check_pair(pair, instance.context().features.shape[1:])
    hidden = {name: np.repeat(value, 2 * runs, axis=0) for name, value in instance.hidden.items()}
    seen: list[Array] = []
    history = _History(problem, runs)
    for tap in taps:
        tap.others_gradient = history.gradient
    released_at = 0
    for t in range(1, problem.horizon + 1):
        round_ = _tiled(instance.round(), 2 * runs)
        target = t in targets
        worlds = (pair.first, pair.second) if target else _others(pair, t)
        if worlds:
            round_ = _exchanged(round_, worlds, runs)
        for tap in taps:
            tap.target = target
        context = round_.context
        action = agent.act(context)
        checked = problem.check_action(action, 2 * runs)
        if worlds:
            feedback = _answers(worlds, problem, context, checked, runs)
        else:
            feedback, _ = problem.respond(hidden, round_, checked)
        if not target and any(tap.wants_gradient for tap in taps):
            history.add(context, checked, feedback)
        if not target or _sees_own_action(agent.guarantee):
            seen.append(_numbers(info.kind, context, checked))
        agent.observe(context, action, feedback)
        if t == targets[-1]:
            first, last = _target_loss(problem, context, checked, feedback, runs)
            for tap in taps:
                tap.aim(first, last)
        if not released_at and any(tap.calls for tap in taps):
            released_at = len(seen)
        if t < problem.horizon:
            instance.advance()
    late = seen[min(released_at, max(0, len(seen) - 1)) :]
    actions = [late[i] for i in spread(len(late), MOST_ACTIONS)]
    features = [tap.features() for tap in taps]
    return Observed(
        agent.guarantee,
        np.concatenate([np.zeros((2 * runs, 0)), *features], axis=1),
        np.concatenate(actions, axis=1),
        taps,
    )


class _History:
    """Records of everybody but the target, which the attacker knows."""

    def __init__(self, problem: Problem, runs: int) -> None:
        self._problem, self._runs = problem, runs
        self._records: list[tuple[Context, Array, Feedback]] = []

    def add(self, context: Context, action: Array, feedback: Feedback) -> None:
        """Keeps one round; contexts are the same in all replicates and kept once."""
        one = _mapped(context, lambda value: value[:1].copy())
        self._records.append((one, action, feedback))

    def gradient(self, theta: Array) -> Array:
        """Gradient of all losses at parameters ``(2 runs, d)``."""
        total = np.zeros_like(theta)
        for one, action, feedback in self._records:
            context = _mapped(one, lambda value: np.repeat(value, 2 * self._runs, axis=0))
            total += self._problem.loss(theta, context, action, feedback).gradient
        return total


def _sees_own_action(guarantee: Guarantee | None) -> bool:
    """Whether the target's own action counts as output."""
    return guarantee is not None and guarantee.notion == "central"


def _others(pair: Pair, t: int) -> Worlds | None:
    """The frozen customer of round t, the same in both worlds; None: as drawn."""
    if not pair.others:
        return None
    world = pair.others[t % len(pair.others)]
    return world, world


def _mapped(batch: Batch, change: Callable[..., Array]) -> Batch:
    """A context or feedback with every array changed."""
    return type(batch)(
        *(change(v) if isinstance(v, np.ndarray) else v for v in batch)  # type: ignore[arg-type]
    )


def _tiled(round_: Round, copies: int) -> Round:
    context = _mapped(round_.context, lambda value: np.repeat(value, copies, axis=0))
    secret = {name: np.repeat(value, copies, axis=0) for name, value in round_.secret.items()}
    return Round(context, np.repeat(round_.uniform, copies), secret)


def _exchanged(round_: Round, worlds: Worlds, runs: int) -> Round:
    features = round_.context.features.copy()
    for world, rows in zip(worlds, (slice(runs), slice(runs, None))):
        if world.features is not None:
            features[rows] = world.features
    return round_._replace(context=round_.context._replace(features=features))


def _answers(
    worlds: Worlds, problem: Problem, context: Context, action: Array, runs: int
) -> Feedback:
    halves = []
    for world, rows in zip(worlds, (slice(runs), slice(runs, None))):
        part = _mapped(context, lambda value, rows=rows: value[rows])
        halves.append(answer(world, problem.info, part, action[rows]))
    joined = [None if a is None else np.concatenate([a, b]) for a, b in zip(*halves)]
    return Feedback(*joined)  # type: ignore[arg-type]


def _numbers(kind: str, context: Context, action: Array) -> Array:
    """The actions of one round as numbers: the price; or position and features of what was
    recommended; or sums of both over what was offered."""
    if kind == "pricing":
        return np.array(action, dtype=np.float64)[:, None]
    lanes = np.arange(len(action))
    if kind == "recommendation":
        chosen = context.features[lanes, action]
        return np.concatenate([action[:, None], chosen], axis=1, dtype=np.float64)
    offered = action >= 0
    features = context.features[lanes[:, None], np.maximum(action, 0)]
    total = (features * offered[:, :, None]).sum(axis=1)
    places = (action * offered).sum(axis=1)
    return np.concatenate([places[:, None], total], axis=1, dtype=np.float64)


def _target_loss(
    problem: Problem, context: Context, action: Array, feedback: Feedback, runs: int
) -> tuple[Gradient, Gradient]:
    """Gradient of the target's loss at given parameters ``(runs, d)``, in either world."""

    def part(rows: slice) -> Gradient:
        frozen = _mapped(context, lambda value: value[rows].copy())
        answers = _mapped(feedback, lambda value: value[rows].copy())
        played = action[rows].copy()
        return lambda theta: problem.loss(theta, frozen, played, answers).gradient

    return part(slice(runs)), part(slice(runs, None))
