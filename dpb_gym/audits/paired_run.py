"""Plays both worlds in one batch: frozen customers, one of them exchanged."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np

from dpb_gym.agent import Agent
from dpb_gym.audits.likelihood_ratio import Tap, can_tap, noise_of
from dpb_gym.audits.worlds import Pair, World, answer, check_pair
from dpb_gym.feedback.local_mechanisms import NORMAL
from dpb_gym.privacy import Guarantee
from dpb_gym.privacy.noise import QuietNoise
from dpb_gym.privacy.releasers.base import Releaser
from dpb_gym.problems.base import Array, Context, Feedback, Problem, Round
from dpb_gym.problems.delay import Delivery
from dpb_gym.streams import AgentStreams
from dpb_gym.suites.spec import AgentRun

MOST_ACTIONS = 16
PILOT_RUNS = 16
_ANY_SEED = np.random.SeedSequence(0)
Worlds = tuple[World, World]
Told = tuple[Context, Array, Feedback]


@dataclass(frozen=True)
class Observed:
    """What the attacker sees of all runs, the first world's first.

    Attributes:
        guarantee: What the agent's curator says; None without a budget.
        scores: Log-likelihood ratio of all releases ``(2 runs,)``; None if some releaser's law
            is not known here, or the claim is local.
        views: Numbers of the actions and of messages ``(2 runs, q)``, by name.
        quiet: Releasers that never released, and rounds of the target whose response never came.
        boundary: What was released, in words.
        power: Squared distance of the two worlds in units of the noise, over all releases; of
            messages only whether one world's are empty, which is infinite.
    """

    guarantee: Guarantee | None
    scores: Array | None
    views: dict[str, Array]
    quiet: int
    boundary: str
    power: float


def play(
    run: AgentRun,
    problem: Problem,
    pair: Pair,
    targets: Sequence[int],
    *,
    seed: int,
    runs: int = PILOT_RUNS,
    part: int = 0,
    factor: float = 1.0,
) -> Observed:
    """Runs an agent on two neighbouring worlds, `runs` times each, as one batch.

    Contexts and potential outcomes of all customers but the target are the same in every run,
    those of the replicate `seed`; the agent's randomness and its noise differ.

    Args:
        run: The agent and its budget.
        problem: The problem; its horizon is played to the end.
        pair: Who the target is in either world.
        targets: Her rounds, ascending.
        seed: Seed of customers and agents.
        runs: Runs in each world.
        part: Which of the agents' seeds, 0 or 1: those of pilots are not counted again.
        factor: Of the standard deviation of all noise; below 1 for a control that must fail.
    """
    problem = pair.of(problem)
    agent = run.spec.make()
    first = seeds_from(seed, part)
    streams = AgentStreams(range(first, first + 2 * runs), "audit")
    agent.set_up(problem.info, streams, run.budget, noise=QuietNoise(streams.noise, factor))
    taps, messages = _taps(agent, runs, factor)
    instance = problem.instance([seed])
    check_pair(pair, instance.context().features.shape[1:])
    hidden = {name: np.repeat(value, 2 * runs, axis=0) for name, value in instance.hidden.items()}
    seen: list[Array] = []
    released_at = 0
    flat = [tap for lane in taps for tap in lane]
    post = Delivery(problem, [seed])
    elsewhere: dict[int, tuple[Agent, Told]] = {}
    for t in range(1, problem.horizon + 1):
        drawn = instance.round().each(partial(np.repeat, repeats=2 * runs, axis=0))
        target = t in targets
        if target and flat:
            elsewhere[t] = _elsewhere(_double(agent, streams, flat), problem, pair, drawn, runs)
        worlds = pair.at(t, target)
        round_ = _exchanged(drawn, worlds, runs) if worlds else drawn
        context = round_.context
        action = agent.act(context)
        checked = problem.check_action(action, 2 * runs)
        if worlds:
            feedback = _answers(worlds, problem, context, checked, runs)
        else:
            feedback, _ = problem.respond(hidden, round_, checked)
        if not target or agent.curator.notion == "central":
            seen.append(_numbers(problem.info.kind, context, checked))
        post.open(context)
        told = post.deliver(action, feedback)
        origin = t if post.arrivals is None else int(post.arrivals.origin[0])
        for message in messages:
            message.target = origin in targets
        if origin in elsewhere:  # every releaser learns the target's record in the other world
            double, other = elsewhere.pop(origin)
            for tap in flat:
                tap.capturing = True
            (double if origin == t else _double(agent, streams, flat)).observe(*other)
            for tap in flat:
                tap.capturing = False
        agent.observe(*told)
        if not released_at and any(tap.releases for tap in flat):
            released_at = len(seen)
        if t < problem.horizon:
            instance.advance()
    late = seen[min(released_at, max(0, len(seen) - 1)) :]
    return _observed(agent, taps, messages, late, len(elsewhere))


def seeds_from(seed: int, part: int) -> int:
    """The first of the agents' seeds of an audit: of pilots, or what is counted (part 1)."""
    return (2 * seed + part) << 24


def _observed(
    agent: Agent,
    taps: list[list[Tap]],
    messages: list[MessageTap],
    late: list[Array],
    unanswered: int,
) -> Observed:
    """What was seen: the taps', the messages', and the actions of the rounds that are `late`."""
    flat = [tap for lane in taps for tap in lane]
    actions = [late[i] for i in spread(len(late), MOST_ACTIONS)]
    views = {"actions": np.concatenate(actions, axis=1)} if actions else {}
    found = [part for message in messages for part in message.messages]
    if found:
        views["message"] = np.concatenate(found, axis=1)
    known = flat and not messages and len(flat) == len(releasers(agent))
    # of messages only whether they are empty in one world and not in the other
    sent = [np.split(np.asarray(message.any(axis=1)), 2) for message in found]
    silent = any(abs(one.mean() - other.mean()) > 0.5 for one, other in sent)
    laws = [[tap.law() for tap in lane] for lane in taps]
    first, mus = (taps[0], [mu for _, mu in laws[0]]) if taps else ([], [])
    return Observed(
        agent.curator.guarantee,
        np.concatenate([np.sum([r for r, _ in lane], axis=0) for lane in laws]) if known else None,
        views,
        sum(not tap.releases for tap in first) + unanswered,
        _boundary(first, mus, messages),
        sum(mu**2 for mu in mus) if known else math.inf if silent else 0.0,
    )


def releasers(agent: Agent) -> list[Releaser]:
    """Those of the batch, and of every copy of a `SingleAgent`."""
    curator = agent.curator
    return [*curator.releasers, *(r for part in curator.parts.values() for r in part.releasers)]


def _taps(agent: Agent, runs: int, factor: float) -> tuple[list[list[Tap]], list[MessageTap]]:
    """Taps of the batch, or of each replicate of a `SingleAgent`; and those of messages."""
    towards = np.concatenate([np.ones(runs), -np.ones(runs)])
    curator = agent.curator
    messages = [MessageTap(r, factor) for r in curator.releasers if hasattr(r, "send")]
    taps = [[Tap(r, towards) for r in curator.releasers if can_tap(r)]]
    if curator.parts:
        taps = [
            [Tap(r, towards[i : i + 1]) for r in part.releasers if can_tap(r)]
            for i, part in curator.parts.items()
        ]
    return [lane for lane in taps if lane], messages


def _double(agent: Agent, streams: AgentStreams, taps: Sequence[Tap]) -> Agent:
    """A copy that decides with the same random numbers.

    What it gives to its releasers goes to the taps, so their noise is shared, not copied; and to
    copy a generator's state is far quicker than `copy.deepcopy` of it.
    """
    memo: dict[int, Any] = {}
    for tap in taps:
        memo |= noise_of(tap.releaser)
    for rng in (*streams.agent, *streams.noise):
        twin = memo[id(rng)] = np.random.Generator(np.random.SFC64(_ANY_SEED))
        twin.bit_generator.state = rng.bit_generator.state
    return copy.deepcopy(agent, memo)


def _elsewhere(
    double: Agent, problem: Problem, pair: Pair, drawn: Round, runs: int
) -> tuple[Agent, Told]:
    """A double of the agent that met the target in the other world of each run, and what came of
    it."""
    worlds = (pair.second, pair.first)
    context = _exchanged(drawn, worlds, runs).context
    action = double.act(context)
    checked = problem.check_action(action, 2 * runs)
    return double, (context, action, _answers(worlds, problem, context, checked, runs))


def _boundary(taps: list[Tap], mus: list[float], messages: list[MessageTap]) -> str:
    parts = [
        f"{tap.releaser.what} ({type(tap.releaser).__name__}, {tap.releases} releases, mu {mu:.3g})"
        for tap, mu in zip(taps, mus)
    ]
    parts += [f"{m.releaser.what} ({len(m.messages)} of the target)" for m in messages]
    return "; ".join(parts) or "no releaser found: actions only"


def _exchanged(round_: Round, worlds: Worlds, runs: int) -> Round:
    features = round_.context.features.copy()
    for world, rows in zip(worlds, (slice(runs), slice(runs, None))):
        if world.features is not None:
            features[rows] = world.features
    return round_.showing(features=features)


def _answers(
    worlds: Worlds, problem: Problem, context: Context, action: Array, runs: int
) -> Feedback:
    halves = []
    for world, rows in zip(worlds, (slice(runs), slice(runs, None))):
        part = context.each(itemgetter(rows))
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


class MessageTap:
    """Keeps the target's message in local claims.

    Args:
        releaser: Sends the messages.
        factor: Of the noise in them: of its normal numbers, or of the distance of its uniform
            ones from 1/2, by which a random bit that is nearly fair says 1 / factor times as much.
    """

    def __init__(self, releaser: Any, factor: float) -> None:
        self.releaser = releaser
        draw = releaser.numbers.next
        centre = 0.0 if releaser.mechanism.numbers == NORMAL else 0.5
        if factor != 1.0:
            releaser.numbers.next = lambda: centre + factor * (draw() - centre)
        self.target = False
        self.messages: list[Array] = []
        self._send = releaser.send
        releaser.send = self._on_send

    def _on_send(self, *args: Any, **kwargs: Any) -> Any:
        sent = self._send(*args, **kwargs)
        if self.target:
            parts = [value.reshape(len(value), -1) for value in _arrays(sent)]
            self.messages.append(np.concatenate(parts, axis=1).astype(np.float64))
        return sent


def _arrays(value: Any) -> list[Array]:
    if isinstance(value, np.ndarray):
        return [value]
    if isinstance(value, (list, tuple)):
        return [array for item in value for array in _arrays(item)]
    return []


def spread(count: int, most: int) -> list[int]:
    """At most `most` of the indices 0..count-1: the first ones, then ever sparser, the last."""
    if count <= most:
        return list(range(count))
    first = most // 2
    rest = np.geomspace(first + 1, count, most - first).round().astype(int) - 1
    return sorted({*range(first), *rest.tolist()})
