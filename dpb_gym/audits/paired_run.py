"""Runs of two neighbouring worlds in one batch: fixed customers, one of them exchanged."""

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
from dpb_gym.audits.residuals import check_residuals, stacked
from dpb_gym.audits.worlds import Pair, World, answer, audit_form, check_pair
from dpb_gym.feedback.local_mechanisms import NORMAL
from dpb_gym.privacy import Guarantee
from dpb_gym.privacy.noise import QuietNoise
from dpb_gym.privacy.releasers.releaser import Releaser, behind
from dpb_gym.privacy.releasers.sums import Sum
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
    """Observations of the attacker in all runs, first world first.

    Attributes:
        guarantee: Guarantee of the agent's curator; None without a budget.
        scores: Log-likelihood ratio of all releases ``(2 runs,)``; None if the
            distribution of a releaser is unknown, or the claim is local.
        views: Numbers of the actions and of messages ``(2 runs, q)``, by name.
        quiet: Releasers that never released, and rounds of the target whose response never came.
        boundary: Description of what was released.
        power: Squared distance of the two worlds in units of the noise, over all releases; for
            messages an estimate, infinite if those of one world are empty.
        residuals: Result of `check_residuals`; None if no releaser has additive noise.
        uneven: Where the number of records depends on the data; empty if nowhere. Then there are
            no scores.
    """

    guarantee: Guarantee | None
    scores: Array | None
    views: dict[str, Array]
    quiet: int
    boundary: str
    power: float
    residuals: tuple[str, bool] | None = None
    uneven: str = ""


def _attended(run: AgentRun, problem: Problem, streams: AgentStreams, factor: float) -> Agent:
    """Return an agent that has begun, of whose releasers an audit sees every record."""
    agent = run.spec.make()
    agent.set_up(problem.info, streams, run.budget, noise=QuietNoise(streams.noise, factor))
    agent.curator.rounds.attend()
    for releaser in releasers(agent):
        if isinstance(releaser, Sum):
            releaser.refuses_long = True
    return agent


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
    scored: bool = True,
) -> Observed:
    """Run an agent on two neighbouring worlds, `runs` times each, as one batch.

    Contexts and potential outcomes of all customers but the target are those of replicate `seed`
    in every run; the agent's random numbers and noise differ.

    Args:
        run: The agent and its budget.
        problem: The problem; its horizon is played to the end.
        pair: The target in both worlds.
        targets: Rounds of the target, ascending.
        seed: Seed of customers and agents.
        runs: Runs in each world.
        part: Part of the agents' seeds: 0 for pilot runs, 1 for the runs that count.
        factor: Factor of the standard deviation of all noise; below 1 for a control.
        scored: Whether the two worlds are compared; False: only the residuals are computed.
    """
    problem = pair.of(problem)
    first = seeds_from(seed, part)
    streams = AgentStreams(range(first, first + 2 * runs), "audit")
    agent = _attended(run, problem, streams, factor)
    taps, messages = _taps(agent, runs, factor, scored)
    instance = problem.instance([seed])
    check_pair(pair, instance.context().features.shape[1:])
    hidden = {name: np.repeat(value, 2 * runs, axis=0) for name, value in instance.hidden.items()}
    seen: list[Array] = []
    released_at = 0
    flat = [tap for lane in taps for tap in lane]
    delivery = Delivery(problem, [seed])
    elsewhere: dict[int, tuple[Agent, Told]] = {}
    for t in range(1, problem.horizon + 1):
        drawn = instance.round().each(partial(np.repeat, repeats=2 * runs, axis=0))
        target = t in targets
        if target and flat and scored:
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
            seen.append(audit_form(problem.kind).numbers(context, checked))
        delivery.open(context)
        delivered = delivery.deliver(problem.played(action, 2 * runs), feedback)
        origin = t if delivery.arrivals is None else int(delivery.arrivals.origin[0])
        for message in messages:
            message.target = origin in targets
        with agent.curator.round(t):
            if origin in elsewhere:
                double, other = elsewhere.pop(origin)
                _record(flat, double if origin == t else _double(agent, streams, flat), other)
            agent.observe(*delivered)
        for tap in flat:
            tap.settle()
        if agent.curator.private and any(tap.uneven for tap in flat):
            return _uneven(agent, t)
        if not released_at and any(tap.releases for tap in flat):
            released_at = len(seen)
        if t < problem.horizon:
            instance.advance()
    if not scored:
        residuals = _residuals([*taps, messages] if messages else taps)
        return Observed(agent.curator.guarantee, None, {}, 0, "", math.inf, residuals)
    # actions before the first release cannot depend on the target's record
    late = seen[min(released_at, max(0, len(seen) - 1)) :]
    return _observed(agent, taps, messages, late, len(elsewhere))


def _uneven(agent: Agent, t: int) -> Observed:
    """Return what is known of runs whose worlds have different numbers of records in round t."""
    text = f"data reach the number of records of round {t}"
    return Observed(agent.curator.guarantee, None, {}, 0, text, math.inf, uneven=text)


def seeds_from(seed: int, part: int) -> int:
    """Return the first of the agents' seeds: of pilot runs (part 0) or of the audit (part 1)."""
    return (2 * seed + part) << 24


def _observed(
    agent: Agent,
    taps: list[list[Tap]],
    messages: list[MessageTap],
    late: list[Array],
    unanswered: int,
) -> Observed:
    """Collect observations of the taps, the messages, and the actions of rounds `late`."""
    flat = [tap for lane in taps for tap in lane]
    actions = [late[i] for i in spread(len(late), MOST_ACTIONS)]
    views = {"actions": np.concatenate(actions, axis=1)} if actions else {}
    parts = [part for message in messages for part in message.messages]
    if parts:
        views["message"] = np.concatenate(parts, axis=1)
    known = flat and not messages and len(flat) == len(releasers(agent))
    # for messages, whether they are empty in exactly one world
    sent = [np.split(np.asarray(message.any(axis=1)), 2) for message in parts]
    silent = any(abs(one.mean() - other.mean()) > 0.5 for one, other in sent)
    apart = math.inf if silent else sum(_distance(*np.split(message, 2)) for message in parts)
    laws = [[tap.law() for tap in lane] for lane in taps]
    first, mus = (taps[0], [mu for _, mu in laws[0]]) if taps else ([], [])
    return Observed(
        agent.curator.guarantee,
        np.concatenate([np.sum([r for r, _ in lane], axis=0) for lane in laws]) if known else None,
        views,
        sum(not tap.releases for tap in first) + unanswered,
        _boundary(agent, first, mus, messages),
        sum(mu**2 for mu in mus) if known else apart,
        _residuals([*taps, messages] if messages else taps),
    )


def _distance(one: Array, other: Array) -> float:
    """Return an estimate of the squared distance of the means in units of the noise."""
    gap = one.mean(axis=0) - other.mean(axis=0)
    variance = one.var(axis=0) + other.var(axis=0)
    seen = variance > 0
    return max(0.0, float((2.0 * gap[seen] ** 2 / variance[seen] - 2.0 / len(one)).sum()))


def _residuals(taps: Sequence[Sequence[Tap | MessageTap]]) -> tuple[str, bool] | None:
    """Test the residuals of all releasers together; taps are those of batches or replicates."""
    lanes: list[Array] = []
    names: list[str] = []
    for lane in taps:
        residuals = [tap.residuals() for tap in lane]
        lanes.append(np.concatenate([rows for rows, _ in residuals], axis=1))
        names = max(names, [name for _, some in residuals for name in some], key=len)
    values = stacked(lanes) if lanes else np.empty((0, 0))
    return None if np.isnan(values).all() else check_residuals(values, names)


def releasers(agent: Agent) -> list[Releaser]:
    """Return the releasers of a batch agent, or of every copy of a `SingleAgent`."""
    curator = agent.curator
    return [behind(h) for one in (curator, *curator.parts.values()) for h in one.releasers]


def _taps(
    agent: Agent, runs: int, factor: float, scored: bool = True
) -> tuple[list[list[Tap]], list[MessageTap]]:
    """Return taps of sums per batch or replicate, and taps of messages."""
    towards = np.concatenate([np.ones(runs), -np.ones(runs)])
    curator = agent.curator
    messages = [MessageTap(r, factor) for r in map(behind, curator.releasers) if hasattr(r, "send")]
    parts = [(part, towards[i : i + 1]) for i, part in curator.parts.items()]
    taps = [
        [Tap(r, own, exchanged=scored) for r in map(behind, one.releasers) if can_tap(r)]
        for one, own in parts or [(curator, towards)]
    ]
    return [lane for lane in taps if lane], messages


def _double(agent: Agent, streams: AgentStreams, taps: Sequence[Tap]) -> Agent:
    """Return a copy of the agent that decides with the same random numbers.

    Its records go to the taps, so the releasers' noise is shared, not copied. Generators are
    copied by state, which is much faster than `copy.deepcopy`.
    """
    curator = agent.curator
    memo: dict[int, Any] = {id(one): one for one in (curator, *curator.parts.values())}
    for tap in taps:
        memo |= noise_of(tap.releaser)
    for rng in (*streams.agent, *streams.noise):
        twin = memo[id(rng)] = np.random.Generator(np.random.SFC64(_ANY_SEED))
        twin.bit_generator.state = rng.bit_generator.state
    return copy.deepcopy(agent, memo)


def _elsewhere(
    double: Agent, problem: Problem, pair: Pair, drawn: Round, runs: int
) -> tuple[Agent, Told]:
    """Return a copy of the agent that meets the target of the other world, and the outcome."""
    worlds = (pair.second, pair.first)
    context = _exchanged(drawn, worlds, runs).context
    action = double.act(context)
    checked = problem.check_action(action, 2 * runs)
    return double, (context, action, _answers(worlds, problem, context, checked, runs))


def _record(taps: Sequence[Tap], double: Agent, told: Told) -> None:
    """Give every releaser the target's record of the other world."""
    for tap in taps:
        tap.capturing = True
    double.observe(*told)
    for tap in taps:
        tap.capturing = False


def _boundary(agent: Agent, taps: list[Tap], mus: list[float], messages: list[MessageTap]) -> str:
    parts = [
        f"{tap.releaser.what} ({type(tap.releaser).__name__}, {tap.releases} releases, mu {mu:.3g})"
        for tap, mu in zip(taps, mus)
    ]
    parts += [f"{m.releaser.what} ({len(m.messages)} of the target)" for m in messages]
    parts += [
        f"{r.what} ({type(r).__name__}, of unknown distribution: it defines no log_density, so "
        "actions are compared)"
        for r in releasers(agent)[: len(releasers(agent)) // max(1, len(agent.curator.parts))]
        if not (can_tap(r) or hasattr(r, "send"))
    ]
    return "; ".join(parts) or "no releaser: actions only"


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


class MessageTap:
    """Record of the target's message for local claims.

    Args:
        releaser: Releaser that sends the messages.
        factor: Factor of the noise: of its normal numbers, or of the distance of its uniform
            numbers from 1/2, which makes a nearly fair bit 1 / factor times as informative.
    """

    def __init__(self, releaser: Any, factor: float) -> None:
        self.releaser = releaser
        draw, self._normal = releaser.numbers.next, releaser.mechanism.numbers == NORMAL
        centre = 0.0 if self._normal else 0.5
        self.target = False
        self.messages: list[Array] = []
        self._numbers: list[Array] = []

        def drawn() -> Array:
            numbers = draw()
            self._numbers.append(np.array(numbers))
            return np.asarray(centre + factor * (numbers - centre))

        releaser.numbers.next = drawn
        self._send = releaser.send
        releaser.send = self._on_send

    def residuals(self) -> tuple[Array, list[str]]:
        """Return the random numbers of all messages as standard normals; see `Tap.residuals`."""
        from scipy.special import ndtri

        numbers = np.concatenate([part.reshape(len(part), -1) for part in self._numbers], axis=1)
        names = ["random numbers of messages"] * numbers.shape[1]
        return numbers if self._normal else np.clip(ndtri(numbers), -9.0, 9.0), names

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
    """Return at most `most` of the indices 0..count-1, dense at first, then sparser."""
    if count <= most:
        return list(range(count))
    first = most // 2
    rest = np.geomspace(first + 1, count, most - first).round().astype(int) - 1
    return sorted({*range(first), *rest.tolist()})
