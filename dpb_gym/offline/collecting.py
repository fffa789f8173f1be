"""Collect logs from simulated problems."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.agent import Agent
from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import AgentError, ParameterError, shown
from dpb_gym.offline.array_checks import distribution
from dpb_gym.offline.targets import frozen_choices, frozen_shares, stated_shares
from dpb_gym.problems.base import Array, Context, Instance, Outcome, Problem
from dpb_gym.problems.delay import Delivery
from dpb_gym.streams import check_seed

Behaviour = Agent | Callable[[Context], Array] | None
Columns = dict[str, Array]
Decide = Callable[..., tuple[Array, Columns]]
LOGS: dict[str, Any] = {}
"""Log classes by kind of problem; `Log` subclasses add themselves."""
# Separates the logging policy's random stream from the replicate's streams.
_LOGGING_KEY = 0x10661D6
PRICE_WINDOW = 0.1
"""An agent's price is logged with a uniform price within this distance of it."""


def collect(
    problem: Problem | str,
    rounds: int,
    seeds: Sequence[int],
    behaviour: Behaviour = None,
    skip: int = 0,
    exploration: float = 0.2,
    samples: int = 20,
    minimum_propensity: float | None = None,
    learn: bool = False,
    **kwargs: Any,
) -> list[Any]:
    """Log `rounds` rounds of a problem, one log per seed.

    Logs of recommendations contain the expected reward of every candidate
    (`LoggedData.expected`), to compare estimates with the truth.

    Args:
        problem: A problem with ``horizon >= skip + rounds``, or an environment id, whose horizon
            is then set to that.
        rounds: Rounds to log, at least 2.
        seeds: One per log; the seed fixes the hidden parameters of its replicate.
        behaviour: The logging policy: None for uniform candidates, sets of `capacity` items, or
            prices; an agent with one replicate per seed, which does not learn while it logs; or
            a function from the `Context` to probabilities ``(B, m)``, slates ``(B, K)`` or
            prices ``(B,)``.
        skip: Rounds before the log.
        exploration: An agent's choices, and a function's slates and prices, are mixed with this
            share of uniform ones, in (0, 1], so that every choice has a positive probability.
            Other prices vary within `PRICE_WINDOW`.
        samples: Number of choices of a random agent per round. One of them is drawn and logged,
            so propensities are exact.
        minimum_propensity: Lower bound of a function's probabilities of candidates, or of those
            of an agent that learns; see `LoggedData`. For uniform and mixed choices it is known.
        learn: Whether the agent learns while it logs, as in a run. Its choices are logged with
            the probabilities of `Agent.probabilities`.
        **kwargs: Parameters of the environment, if `problem` is an id.

    Returns:
        Per seed a `LoggedData`, `SlateLog` or `PriceLog`, by the problem's kind.

    Raises:
        ParameterError: If an argument is out of range, or the problem cannot be logged.
    """
    exploration = validation.real("exploration", exploration, 0.0, 1.0, open_low=True)
    name = str(problem) if isinstance(problem, str) else type(problem).__name__
    seeds = [check_seed(seed) for seed in seeds]
    made, instance = _started(problem, rounds, skip, seeds, kwargs)
    form = LOGS[made.kind]
    decide = form.decide
    if validation.flag("learn", learn):
        decide = _learning(behaviour)
    ask = None if learn else _asking(form.by_candidate, behaviour, len(seeds), samples)
    if behaviour is None:
        exploration = 1.0
    elif form.by_candidate and not isinstance(behaviour, Agent):
        exploration = 0.0
    post = Delivery(made, seeds)
    generators = [np.random.default_rng([seed, skip, _LOGGING_KEY]) for seed in seeds]
    logged: dict[str, list[Array]] = {}
    for i in range(rounds):
        context = instance.context()
        given = None if ask is None else ask(context)
        action, columns = decide(made, context, given, exploration, generators)
        outcome = instance.respond(action)
        response = _response(made, instance, action, outcome)
        # before the agent learns, which may change its arrays
        for key, column in {**context._asdict(), **columns, **response}.items():
            if key != "t" and column is not None:
                logged.setdefault(key, []).append(np.array(column))
        if learn:
            post.open(context)
            delivered = post.deliver(action, outcome.feedback)
            with behaviour.curator.round():  # type: ignore[union-attr]
                behaviour.observe(*delivered)  # type: ignore[union-attr]
        if i < rounds - 1:
            instance.advance()
    stacked = {key: np.stack(column, axis=1) for key, column in logged.items()}
    least = minimum_propensity
    if least is None and not learn and (behaviour is None or isinstance(behaviour, Agent)):
        least = exploration / (made.info.n_candidates or 1)
    return [
        LOGS[made.kind].of_rounds(
            made, {key: column[b] for key, column in stacked.items()}, least, name
        )
        for b in range(len(seeds))
    ]


def _started(
    problem: Problem | str, rounds: int, skip: int, seeds: Sequence[int], kwargs: dict[str, Any]
) -> tuple[Problem, Instance]:
    """Return the problem, and its replicates in the first round after `skip`."""
    rounds = validation.integer("rounds", rounds, 2) + validation.integer("skip", skip, 0)
    if isinstance(problem, str):
        made = make_problem(problem, **{"horizon": rounds, **kwargs})
    elif kwargs:
        raise ParameterError(f"parameters {', '.join(kwargs)} need an environment id")
    else:
        made = problem
    if made.kind not in LOGS:
        raise ParameterError(f"no logs are made of {made.kind} problems")
    if made.info.partial_feedback:
        raise ParameterError(
            "logs are made of problems that answer every round (protocol='matrix')"
        )
    if made.horizon < rounds:
        raise ParameterError(f"the problem has {made.horizon} rounds, {rounds} are needed")
    instance = made.instance(seeds)
    for _ in range(skip):
        instance.advance()
    return made, instance


def _learning(agent: Any) -> Decide:
    """Return the decision function of an agent that learns while it logs."""
    if not isinstance(agent, Agent):
        raise ParameterError(f"learn=True needs an agent that was set up, got {shown(agent)}")
    agent.curator.rounds.attend()

    def decide(made: Problem, context: Context, *_: Any) -> tuple[Array, Columns]:
        shares = stated_shares(agent, context) if LOGS[made.kind].by_candidate else None
        stated = None if shares is None else np.array(shares)  # `act` may change the agent's array
        if stated is None:
            raise ParameterError(
                f"{agent.class_name} does not say the probabilities of its choices "
                f"(Agent.probabilities) in a {made.kind} problem: learn=False"
            )
        action = np.array(made.check_action(agent.act(context), len(context.features)))
        return action, {"actions": action, "behaviour": stated}

    return decide


def _asking(
    by_candidate: bool, behaviour: Behaviour, B: int, samples: int
) -> Callable[[Context], Array] | None:
    """Return a function from contexts to the logging policy's choices; None for uniform choices.

    An agent's choices are ``(S, B, ...)``, its shares of candidates ``(1, B, m)``, and the values
    of a behaviour function ``(1, B, ...)``.
    """
    if behaviour is None:
        return None
    if isinstance(behaviour, Agent) and not by_candidate:
        return frozen_choices(behaviour, B, samples)
    policy = frozen_shares(behaviour, B, samples) if isinstance(behaviour, Agent) else behaviour
    if not callable(policy):
        raise ParameterError(f"behaviour must be None, a function or an agent, got {behaviour!r}")
    return lambda context: np.asarray(policy(context))[None]


def _response(made: Problem, instance: Instance, action: Array, outcome: Outcome) -> Columns:
    feedback = outcome.feedback
    if feedback.choice is not None:
        bought = feedback.choice[:, None] == np.arange(action.shape[1])
        return {"rewards": np.where(bought, feedback.reward[:, None], 0.0)}
    if feedback.demand is not None:
        return {"rewards": feedback.reward}
    m = made.info.n_candidates or 0
    each = [instance.respond(np.full(len(action), k)).expected for k in range(m)]
    return {"rewards": feedback.reward, "expected": np.stack(each, axis=1)}


Generators = Sequence[np.random.Generator]


def draw_candidates(
    made: Problem, context: Context, given: Array | None, mixed: float, random: Generators
) -> tuple[Array, Columns]:
    """Draw and log one candidate per replicate, with its probability."""
    B, m, _ = context.features.shape
    shares = np.full((B, m), mixed / m)
    if given is not None:
        shares += (1.0 - mixed) * distribution("behaviour", given[0], (B, m))
    action = np.array([one.choice(m, p=row) for row, one in zip(shares, random)], np.int64)
    return action, {"actions": action, "behaviour": shares}


def draw_sets(
    made: Problem, context: Context, given: Array | None, mixed: float, random: Generators
) -> tuple[Array, Columns]:
    """Draw and log one set of K items per replicate, with its probability."""
    B, m, _ = context.features.shape
    K = made.info.capacity or 0
    given = np.arange(K)[None, None].repeat(B, 1) if given is None else given.astype(np.int64)
    sizes = (np.diff(np.sort(given, axis=2), axis=2) > 0).all() and (given >= 0).all()
    if given.shape[1:] != (B, K) or not sizes:
        raise AgentError(f"the logging policy must show {K} different items in every round")
    action = np.empty((B, K), np.int64)
    for b, one in enumerate(random):
        uniform = one.random()
        pick = one.random()
        own = one.permutation(m)[:K]
        action[b] = own if uniform < mixed else given[int(pick * len(given)), b]
    held = (given[:, :, :, None] == action[None, :, None, :]).any(axis=2)
    columns = {
        "actions": action,
        "slate": mixed / math.comb(m, K) + (1.0 - mixed) * held.all(axis=2).mean(axis=0),
        "marginals": mixed * K / m + (1.0 - mixed) * held.mean(axis=0),
    }
    return action, columns


def draw_prices(
    made: Problem, context: Context, given: Array | None, mixed: float, random: Generators
) -> tuple[Array, Columns]:
    """Draw and log one price per replicate, with its density."""
    B = len(context.features)
    given = np.zeros((1, B)) if given is None else given
    if given.shape[1:] != (B,) or not (given.min() >= 0 and given.max() <= 1):
        raise AgentError("the logging policy must name one price in [0, 1] per replicate")
    low = np.maximum(given - PRICE_WINDOW, 0.0)
    high = np.minimum(given + PRICE_WINDOW, 1.0)
    action = np.empty(B)
    for b, one in enumerate(random):
        uniform, pick, place = one.random(3)
        s = int(pick * len(given))
        start, end = (0.0, 1.0) if uniform < mixed else (low[s, b], high[s, b])
        action[b] = start + place * (end - start)
    near = ((low <= action) & (action <= high)) / (high - low)
    return action, {"prices": action, "densities": mixed + (1.0 - mixed) * near.mean(axis=0)}
