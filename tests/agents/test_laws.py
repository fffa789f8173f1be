"""Laws over every built-in agent and environment id: relabelling, silence and transport.

Interruption over every agent is in tests/harness/running/test_unfinished.py.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

import dpb_gym
from dpb_gym.customer_rounds import context_of, empty_round, feedback_of, locked
from dpb_gym.envs.registration import ENVIRONMENTS
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.problems.kinds import kind_of
from dpb_gym.registry import agent_specs, shortcoming
from dpb_gym.serving import Session, shown_action
from dpb_gym.streams import AgentStreams

ARENAS: dict[str, tuple[str, dict[str, Any]]] = {
    "assortment": (
        "DPB/Assortment-v0",
        {"n_items": 8, "capacity": 3, "dim": 3, "revenues": "random"},
    ),
    "assortment-pricing": ("DPB/AssortmentPricing-v0", {"n_items": 6, "capacity": 2, "dim": 4}),
    "pricing": ("DPB/Pricing-v0", {}),
    "recommendation": (
        "DPB/Recommendation-v0",
        {"dim": 4, "n_arms": 12, "n_candidates": 6, "interactions_per_user": 2},
    ),
    "multi-armed": ("DPB/MultiArmed-v0", {"n_arms": 5}),
}
BUDGET = Budget.zcdp(50.0)
SEEDS = [3, 4]


def pairs() -> list[tuple[str, str]]:
    """Return every built-in agent with the arenas that it plays."""
    combinations = []
    for arena, (env_id, kwargs) in ARENAS.items():
        info = dpb_gym.make_problem(env_id, horizon=50, **kwargs).info
        for name, spec in agent_specs().items():
            ours = spec.entry_point.startswith("dpb_agents")
            if arena == "multi-armed" and not spec.fixed_arms:
                continue
            if ours and not shortcoming(spec, info):
                combinations.append((arena, name))
    return combinations


PAIRS = pairs()


def problem_of(arena: str, rounds: int) -> Any:
    env_id, kwargs = ARENAS[arena]
    return dpb_gym.make_problem(env_id, horizon=rounds, **kwargs)


def budget_of(name: str) -> Budget | None:
    return None if agent_specs()[name].budget == "never" else BUDGET


# ------------------------------------------------------------------ relabelling

POSITIONS = {
    "random": "draws positions",
    "ppo": "a network sees positions",
    "dqn": "a network sees positions",
    "oracle": "knows the numbers of arms",
    "private-single-action": "has items and places as actions",
}
"""Agents whose choice depends on the order of items, with the reason."""
LISTED = [pair for pair in PAIRS if pair[0] != "pricing" and pair[1] not in POSITIONS]
SHORT: dict[str, dict[str, Any]] = {"dpmnl": {"explore": 20}, "dpmnl-approx": {"explore": 20}}
"""Parameters with which agents end their random slates soon."""


def relabelled(context: Any, order: Any) -> Any:
    """Return the context with items or candidates in another order."""
    parts = ("features", "revenues", "arms", "available")
    old = {name: getattr(context, name) for name in parts}
    return context._replace(**{k: v if v is None else v[:, order] for k, v in old.items()})


def random_action(info: Any, rng: Any, replicates: int = len(SEEDS)) -> Any:
    """Return an action of each replicate."""
    if info.kind == "pricing":
        return rng.uniform(0.2, 0.8, replicates)
    if info.kind == "recommendation":
        return rng.integers(0, info.n_candidates, replicates)
    slates = np.array([rng.permutation(info.n_items)[: info.capacity] for _ in range(replicates)])
    if info.kind == "assortment":
        return slates
    offers = np.full((replicates, info.n_items), -1.0)
    np.put_along_axis(offers, slates, rng.uniform(0.2, 0.8, slates.shape), 1)
    return offers


def twins(arena: str, name: str, budget: Budget | None, rounds: int) -> tuple[Any, Any, Any]:
    """Return two equal agents and the environment."""
    problem = problem_of(arena, rounds)
    made = []
    for _ in range(2):
        agent = agent_specs()[name].make(**SHORT.get(name, {}))
        agent.attach(problem.instance(SEEDS))
        agent.set_up(problem.info, AgentStreams(SEEDS), budget)
        made.append(agent)
    return made[0], made[1], problem.instance(SEEDS)


@pytest.mark.parametrize(("arena", "name"), LISTED)
def test_items_in_another_order_give_the_same_decisions(arena: str, name: str) -> None:
    """Twins learn from the same random actions, one of them with its items in another order.

    Ties are broken by position from the agent's stream, so decisions are compared in the last
    quarter, where there are none.
    """
    rounds = 200
    one, other, instance = twins(arena, name, budget_of(name), rounds)
    info = instance.problem.info
    rng = np.random.default_rng(0)
    many = info.n_items or info.n_candidates
    order = rng.permutation(many)
    for t in range(rounds):
        if arena == "recommendation":
            order = rng.permutation(many)
        place = np.argsort(order)
        context = locked(instance.context())
        moved = relabelled(context, order)
        chosen = np.array(one.act(context))
        answer = np.array(other.act(moved))
        action = random_action(info, rng)
        told = instance.respond(action).feedback
        if arena == "assortment-pricing":  # offers and choices are by item
            answer = answer[:, place] >= 0
            chosen = chosen >= 0  # prices have random shocks by position
            theirs = action[:, order]
            bought = np.where(told.choice < 0, -1, place[told.choice])
            heard = told._replace(choice=bought)
        else:
            answer = np.sort(np.where(answer >= 0, order[answer], -1))
            chosen = np.sort(chosen)
            theirs = place[action]
            heard = told
        if t >= 3 * rounds // 4:
            np.testing.assert_array_equal(chosen, answer)
        one.observe(context, action, told)
        other.observe(moved, theirs, heard)
        if t < rounds - 1:
            instance.advance()


FIXED_AXES = {
    "random": "has no features",
    "lin-ts": "draws a vector",
    "ts-mnl": "draws a vector",
    "ts-pricing": "draws a vector",
    "one-pass-linear": "draws a vector",
    "one-pass-pricing": "draws a vector",
    "resolving-pricing": "draws a vector",
    "response-pricing": "its law of the features is a fixed set of points",
    "fixed-price": "has no features",
}
"""Agents whose decisions differ in other coordinates, with the reason; `DRAWN` has their law."""
COORDINATES = [
    (arena, name)
    for arena, name in PAIRS
    if name not in {**POSITIONS, **FIXED_AXES, "sac": "a network sees positions"}
    and agent_specs()[name].budget != "required"
    and arena not in ("multi-armed", "assortment-pricing")
]


@pytest.mark.parametrize(("arena", "name"), COORDINATES)
def test_coordinates_in_another_order_give_the_same_decisions(arena: str, name: str) -> None:
    """Twins without a budget, as noise is drawn by coordinate; one with its features permuted."""
    rounds = 200
    one, other, instance = twins(arena, name, None, rounds)
    rng = np.random.default_rng(0)
    axes = rng.permutation(instance.context().features.shape[-1])
    if (axes == np.arange(len(axes))).all():
        axes = axes[::-1]
    for t in range(rounds):
        context = locked(instance.context())
        moved = context._replace(features=np.ascontiguousarray(context.features[..., axes]))
        chosen = np.array(one.act(context))
        answer = np.array(other.act(moved))
        if t >= 3 * rounds // 4:
            np.testing.assert_allclose(np.sort(chosen), np.sort(answer), rtol=1e-3)
        action = random_action(instance.problem.info, rng)
        told = instance.respond(action).feedback
        one.observe(context, action, told)
        other.observe(moved, action, told)
        if t < rounds - 1:
            instance.advance()


DRAWN = [
    (arena, name)
    for arena, name in PAIRS
    if name not in (*POSITIONS, "fixed-price", "response-pricing", "sac")
    and (agent_specs()[name].budget != "never" or name in FIXED_AXES)
    and arena not in ("multi-armed", "assortment-pricing")
]
"""Agents that draw vectors, or noise by coordinate: the law of their rewards is the same."""


ROUNDS = {"pricing": 400, "assortment": 400}
"""Rounds until agents have learnt."""
EARLY: dict[str, dict[str, Any]] = {
    name: {"batch": 30}
    for name in ("adaprivate-ts", "adaprivate-ucb", "adaprivate-adaptive", "adaprivate-amp",
                 "adaprivate-user-ts", "adaprivate-user-ucb")
}  # fmt: skip
"""Parameters with which agents release early."""
SHARP = (
    "one-pass-linear", "one-pass-pricing", "one-pass-mnl", "lin-ts", "adaprivate-ucb",
    "local-lin-ucb", "jdp-lin-ucb", "dgs-lin-ucb", "dpmnl", "ts-mnl",
)  # fmt: skip


def rewards(arena: str, name: str, budget: Budget | None, start: int, shown: Any) -> Any:
    """Return the expected rewards of an agent that sees changed contexts.

    Averaged over the last quarter, of each of 48 replicates.

    Args:
        start: Seed of the agent's first replicate; customers are the same for all.
        shown: Function of a context.
    """
    rounds, seeds = ROUNDS.get(arena, 150), range(48)
    instance = problem_of(arena, rounds).instance(seeds)
    agent = agent_specs()[name].make(**EARLY.get(name, SHORT.get(name, {})))
    agent.attach(instance)
    agent.set_up(instance.problem.info, AgentStreams([start + seed for seed in seeds]), budget)
    expected = np.zeros((rounds, len(seeds)))
    for t in range(rounds):
        context = shown(instance.context())
        action = agent.act(context)
        feedback, expected[t] = instance.answer(action)
        agent.observe(context, action, feedback)
        if t < rounds - 1:
            instance.advance()
    return expected[3 * rounds // 4 :].mean(axis=0)


def better(arena: str, name: str, shown: Any) -> float:
    """Return by how many standard errors an agent that sees changed contexts is better."""
    budget = budget_of(name)
    one = rewards(arena, name, budget, 0, lambda context: context)
    other = rewards(arena, name, budget, 1000, shown)
    difference = other - one
    if not difference.any():
        return 0.0
    return float(np.sqrt(len(one)) * difference.mean() / difference.std(ddof=1))


def rotated(context: Any) -> Any:
    """Return the context with its coordinates in another order."""
    return context._replace(features=np.roll(context.features, 1, axis=-1))


def blinded(context: Any) -> Any:
    """Return the context without most of its coordinates."""
    features = context.features.copy()
    features[..., :-1] = 0.0
    return context._replace(features=features)


@pytest.mark.parametrize(("arena", "name"), DRAWN)
def test_coordinates_in_another_order_leave_the_law_of_rewards(arena: str, name: str) -> None:
    assert abs(better(arena, name, rotated)) < 4.5


@pytest.mark.parametrize(("arena", "name"), [pair for pair in DRAWN if pair[1] in SHARP])
def test_this_law_sees_an_agent_that_neglects_coordinates(arena: str, name: str) -> None:
    assert better(arena, name, blinded) < -4.5


# ------------------------------------------------------------------ silence


def response_to(kind: str, action: Any, number: float) -> Any:
    """Return a response in the form of `Session.observe`."""
    if kind.startswith("assortment"):
        items = list(action)
        return items[0] if items and number < 0.6 else None
    return int(number < 0.6)


def contexts_of(arena: str, rounds: int) -> list[Any]:
    instance = problem_of(arena, rounds).instance([5])
    contexts = []
    for t in range(rounds):
        contexts.append(instance.context())
        if t < rounds - 1:
            instance.advance()
    return contexts


def given(context: Any) -> dict[str, Any]:
    """Return the arguments of `Session.decide`."""
    row = {
        "features": context.features[0],
        "revenues": None if context.revenues is None else context.revenues[0],
        "arms": None if context.arms is None else context.arms[0],
    }
    if context.users is not None:
        row["user"] = int(context.users[0])
    return row


def serve(arena: str, name: str, rounds: int) -> Session:
    info = problem_of(arena, rounds).info
    return dpb_gym.serve(name, budget_of(name), info, noise="seeded", seed=1, warm=False)


SERVED = [pair for pair in PAIRS if not agent_specs()[pair[1]].uses_oracle]


LATE = [pair for pair in SERVED if agent_specs()[pair[1]].delayed_feedback]


@pytest.mark.parametrize(("arena", "name"), [pair for pair in SERVED if pair not in LATE])
def test_agents_that_need_every_response_say_so(arena: str, name: str) -> None:
    first, second, *_ = contexts_of(arena, 3)
    session = serve(arena, name, 3)
    session.decide(**given(first))
    with pytest.raises(AgentError, match="needs every response in its own round: observe 1"):
        session.decide(**given(second))


@pytest.mark.parametrize(("arena", "name"), LATE)
def test_lost_responses_are_empty_rounds(arena: str, name: str) -> None:
    """Responses that never come, are dropped, or are refused, against an agent without them."""
    rounds = 40
    contexts = contexts_of(arena, rounds)
    rng = np.random.default_rng([len(arena), *name.encode()])
    lost = rng.random(rounds) < rng.uniform(0.1, 0.9)
    numbers = rng.random(rounds)
    plays = []
    for way in ("never", "drop", "refuse"):
        session, actions = serve(arena, name, rounds), []
        for t, context in enumerate(contexts):
            decision, action = session.decide(**given(context))
            actions.append(action)
            response = response_to(session.problem.kind, action, numbers[t])
            if not lost[t]:
                session.observe(decision, response)
            elif way == "drop":
                session.drop(decision)
            elif way == "refuse":
                with pytest.raises(ParameterError):
                    session.observe(decision, "none of these")
        plays.append(actions)
    assert all(repr(play) == repr(plays[0]) for play in plays)
    assert repr(by_hand(arena, name, contexts, lost, numbers)) == repr(plays[0])


def by_hand(arena: str, name: str, contexts: list[Any], lost: Any, numbers: Any) -> list[Any]:
    """Return the actions of an agent that observes an empty round for each lost response."""
    session = serve(arena, name, len(contexts))
    agent, info = session.agent, session.problem
    kind, past, actions = kind_of(info.kind), None, []
    for t, row in enumerate(contexts):
        words = given(row)
        context = context_of(info, t + 1, words.pop("features"), **words)
        if t:
            record = empty_round(info, context, False) if lost[t - 1] else past
            with agent.curator.round(t):
                agent.observe(record[0]._replace(t=t), *record[1:])
        action = np.array(kind.played(info, kind.check_action(info, agent.act(context), 1)))
        actions.append(shown_action(info, action))
        response = response_to(info.kind, actions[-1], numbers[t])
        past = context, action, feedback_of(info, context, action, response)
    return actions


# ------------------------------------------------------------------ transport


@pytest.mark.parametrize(("arena", "name"), SERVED)
def test_a_session_goes_on_from_its_file(arena: str, name: str, tmp_path: Path) -> None:
    rounds = 30
    contexts = contexts_of(arena, rounds)
    numbers = np.random.default_rng(0).random(rounds)
    plays = []
    path = tmp_path / "a \xdf\U0001f600"
    for moved in (False, True):
        session, actions = serve(arena, name, rounds), []
        for t, context in enumerate(contexts):
            if moved and t == 17:
                session.save(path)
                session = Session.load(path)
            decision, action = session.decide(**given(context))
            session.observe(decision, response_to(session.problem.kind, action, numbers[t]))
            actions.append(action)
        plays.append(repr(actions))
    assert plays[0] == plays[1]


@pytest.mark.parametrize("env_id", sorted(ENVIRONMENTS))
@pytest.mark.parametrize("way", ["json", "pickle"])
def test_the_spec_of_every_id_makes_the_same_environment(env_id: str, way: str) -> None:
    env = gym.make(env_id, horizon=np.int64(6))
    if way == "json":
        spec = EnvSpec.from_json(env.spec.to_json())
    else:
        spec = pickle.loads(pickle.dumps(env.spec))
    again = gym.make(spec)
    seen = []
    for made in (env, again):
        made.action_space.seed(2)
        rows = [np.ravel(made.reset(seed=1)[0])]
        for _ in range(6):
            observation, reward, *ends, _ = made.step(made.action_space.sample())
            rows.append(np.append(np.ravel(observation), [reward, *ends]))
        seen.append(np.concatenate(rows))
    np.testing.assert_array_equal(*seen)


@pytest.mark.parametrize("name", sorted(agent_specs()))
def test_the_spec_of_every_agent_is_pickled(name: str) -> None:
    spec = agent_specs()[name]
    assert pickle.loads(pickle.dumps(spec)) == spec
