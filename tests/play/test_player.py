"""The player: many rounds at once, replicates, checkpoints, silence, delays and users."""

from __future__ import annotations

import copy
import hashlib
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import dpb_gym
from dpb_gym.errors import AgentError
from dpb_gym.play import Algorithm, Functions, Offer
from dpb_gym.play.player import Player
from dpb_gym.problems.delay import Delivery
from dpb_gym.problems.rounds import Context, Feedback
from dpb_gym.registry import agent_spec
from dpb_gym.streams import AgentStreams

GAMES = {
    "pricing": ("one-pass-pricing", "DPB/Pricing-v0", {}),
    "assortment": (
        "one-pass-mnl",
        "DPB/Assortment-v0",
        {"n_items": 6, "capacity": 2, "dim": 3},
    ),
    "uneven": (
        "one-pass-mnl",
        "DPB/Assortment-v0",
        {"n_items": 6, "capacity": 2, "dim": 3, "revenues": "random", "available": 0.6},
    ),
    "recommendation": ("lin-ucb", "DPB/Recommendation-v0", {"dim": 4, "n_candidates": 5}),
    "batches": ("adaprivate-ucb", "DPB/Recommendation-v0", {"dim": 4, "n_candidates": 5}),
}
BUDGETS = {"recommendation": [None], "batches": ["rho=20"]}
PAIRS = [(game, budget) for game in GAMES for budget in BUDGETS.get(game, [None, "rho=20"])]
BOTH = ["pricing", "assortment"]


def assert_equal(one, other):
    for own, its in zip(one.state, other.state, strict=True):
        np.testing.assert_array_equal(own, its)


@pytest.mark.parametrize(("game", "budget"), PAIRS)
@pytest.mark.parametrize("seeds", [[3], [3, 4, 5]])
def test_many_rounds_at_once_equal_single_rounds(run, game, budget, seeds):
    one, other = (run(*GAMES[game], budget, seeds) for _ in range(2))
    expected = one.singly(240)
    np.testing.assert_array_equal(other.together(240), expected)
    assert_equal(one, other)
    np.testing.assert_array_equal(one.agent._records, np.full(len(seeds), 240.0))
    np.testing.assert_array_equal(other.agent._records, one.agent._records)
    assert any(np.abs(part).sum() > 0 for part in one.state)
    assert len(np.unique(expected.reshape(240, -1), axis=0)) > 3


def test_an_integer_parameter_is_a_float_in_compiled_functions(run):
    """Otherwise numba compiles every function of the agent once more."""
    types = []
    for zeta in (4, 4.0):
        game = run("one-pass-pricing", "DPB/Pricing-v0", {})
        agent = game.agent
        agent.set_up(replace(game.problem.info, zeta=zeta), AgentStreams([3]))
        types.append([type(value) for value in agent.known])
    assert types[0] == types[1]


@pytest.mark.parametrize(("game", "budget"), PAIRS)
def test_a_replicate_equals_the_run_alone(run, game, budget):
    batch = run(*GAMES[game], budget, [3, 4, 5, 6])
    actions = batch.together(150)
    for b, seed in ((0, 3), (2, 5)):
        alone = run(*GAMES[game], budget, [seed])
        np.testing.assert_array_equal(alone.together(150)[:, 0], actions[:, b])
        for own, its in zip(alone.state, batch.state):
            np.testing.assert_array_equal(own[0], its[b])


@pytest.mark.parametrize(("game", "budget"), PAIRS)
def test_a_run_goes_on_after_a_checkpoint(run, game, budget, tmp_path):
    whole, broken = (run(*GAMES[game], budget) for _ in range(2))
    expected = whole.singly(240)
    parts = [broken.together(77), broken.singly(20)]
    broken.saved(tmp_path / "one")
    parts += [broken.singly(30), broken.together(60)]
    broken.saved(tmp_path / "two")
    parts.append(broken.together(53))
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert_equal(whole, broken)


@pytest.mark.parametrize(("game", "budget"), PAIRS)
@pytest.mark.parametrize("started", [0, 40])
def test_a_copy_plays_on_with_a_state_of_its_own(run, game, budget, started):
    own = run(*GAMES[game], budget)
    own.singly(started)
    twin = copy.deepcopy(own)
    actions = own.singly(80)
    np.testing.assert_array_equal(twin.singly(80), actions)
    assert_equal(own, twin)


def spy(agent):
    """Return a list that gets values, rows and the time of every recorded round."""
    seen, record = [], agent._record

    def recorded(contexts, actions, responses, observed, z):
        values, rows, others = record(contexts, actions, responses, observed, z)
        kept = tuple(part.copy() for part in contexts)  # the next context may overwrite them
        seen.append((agent.rounds + 1, kept, actions[0].copy(), values[0], rows[0].copy()))
        return values, rows, others

    agent._record = recorded
    return seen


def scrambled(feedback, rng):
    """Other responses."""
    changed = {"reward": rng.random(len(feedback.reward))}
    if feedback.choice is not None:
        changed["choice"] = rng.integers(-1, 2, len(feedback.reward))
    if feedback.demand is not None:
        changed["demand"] = rng.random(len(feedback.reward))
    return feedback._replace(**changed)


@pytest.mark.parametrize(("game", "budget"), PAIRS)
def test_a_missing_response_is_an_empty_round(run, game, budget):
    """Its row is zero, and what the feedback would hold has no effect."""
    runs, played = [], []
    for other in (False, True):
        rng, scramble = np.random.default_rng(0), np.random.default_rng(1)
        runs.append(run(*GAMES[game], budget))
        seen = spy(runs[-1].agent)
        masks = []

        def change(context, feedback, rng=rng, scramble=scramble, masks=masks, other=other):
            masks.append(rng.random(2) < 0.6)
            if other:
                wrong = scrambled(feedback, scramble)
                feedback = type(feedback)(
                    *(
                        a if a is None else np.where(masks[-1], a, b)
                        for a, b in zip(feedback, wrong)
                    )
                )
            return context, feedback._replace(observed=masks[-1])

        played.append(runs[-1].singly(160, change))
        np.testing.assert_array_equal(runs[-1].agent._records, np.sum(masks, axis=0))
        for mask, (_, _, _, values, rows) in zip(masks, seen):
            assert not rows[~mask].any() and not values[~mask].any()
            assert rows[mask].any(axis=-1).all() or not mask.any()
    np.testing.assert_array_equal(*played)
    assert_equal(*runs)


@pytest.mark.parametrize("game", BOTH)
def test_a_late_response_is_recorded_with_the_state_of_its_arrival(run, game):
    """The context and the action are those of then, round and state those of now."""
    name, env_id, kwargs = GAMES[game]
    one = run(name, env_id, {**kwargs, "delay": 7}, "rho=20")
    agent, delivery, seen = one.agent, Delivery(one.problem, [3, 4]), spy(one.agent)
    past = {}
    for t in range(1, 120):
        context = one.instance.context()
        delivery.open(context)
        action = np.array(agent.act(context))
        past[t] = context, action
        feedback, _ = one.instance.answer(action)
        state = type(agent.state)(*(part.copy() for part in agent.state))
        given = delivery.deliver(action, feedback, 0)
        agent.observe(*given)
        _, contexts, played, _, rows = seen[-1]
        if t <= 7:
            assert not rows.any()
            one.instance.advance()
            continue
        np.testing.assert_array_equal(contexts[0][0], past[t - 7][0].features)
        np.testing.assert_array_equal(played, past[t - 7][1])
        for b in (0, 1):
            lane = type(state)(*(part[b] for part in state))
            assert np.isfinite(rows[b]).all() and rows[b].any()
            if game == "assortment":  # records of prices draw random numbers
                x = tuple(np.float64(part[0, b]) for part in contexts)
                row = agent.algorithm.functions.record(
                    agent.known, lane, t, Offer(*x), played[b], given[2].choice[b], np.zeros((0, 0))
                )
                np.testing.assert_array_equal(row, rows[b])
        one.instance.advance()


@pytest.mark.parametrize("game", BOTH)
def test_rounds_beyond_the_limit_of_a_user_are_empty(run, game):
    name, env_id, kwargs = GAMES[game]
    kwargs = {**kwargs, "returning": 10}
    runs, played = [], []
    for other in (False, True):
        counts, scramble = np.zeros((2, 10), int), np.random.default_rng(1)
        own = run(name, env_id, kwargs, "rho=20", max_rounds_per_user=4)
        assert not own.agent.stretches

        def change(context, feedback, counts=counts, scramble=scramble, other=other):
            lanes = np.arange(2)
            late = counts[lanes, context.users] >= 4
            counts[lanes, context.users] += 1
            if other:
                wrong = scrambled(feedback, scramble)
                feedback = type(feedback)(
                    *(a if a is None else np.where(late, b, a) for a, b in zip(feedback, wrong))
                )
            return context, feedback

        played.append(own.singly(120, change))
        runs.append(own)
        assert counts.max() > 4
    np.testing.assert_array_equal(*played)
    assert_equal(*runs)


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from conftest import Run
from test_player import GAMES, digest
for game in ("pricing", "assortment", "recommendation"):
    print(game, digest(Run, game))
"""


def digest(run, game):
    """Return a digest of the actions and the state of a short run."""
    own = run(*GAMES[game], None if game == "recommendation" else "rho=300", [3], horizon=60)
    actions = np.concatenate([own.together(20), own.singly(15)])
    parts = [actions.tobytes(), *(np.ascontiguousarray(part).tobytes() for part in own.state)]
    return hashlib.sha256(b"".join(parts)).hexdigest()


@pytest.mark.slow
def test_without_a_compiler_the_bits_are_the_same(run):
    folder = os.path.dirname(__file__)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, folder],
        env=os.environ | {"NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    digests = dict(line.split() for line in done.stdout.splitlines())
    assert digests == {
        game: digest(run, game) for game in ("pricing", "assortment", "recommendation")
    }


def test_a_plan_must_be_made_with_the_curator(run):
    class NoPlan(Algorithm):
        """Returns sums of its own."""

        functions = Functions(None, None, None)

        def plan(self, problem, curator):
            return object()

        def start(self, problem, sums):
            return ()

    own = run(*GAMES["pricing"])
    agent = Player(NoPlan())
    with pytest.raises(AgentError, match=r"NoPlan.plan must return a Plan"):
        agent.set_up(own.problem.info, agent_spec("one-pass-pricing").streams([0]))


def test_fewer_candidates_than_planned_are_chosen_from():
    """Compiled loops read as many candidates as a context has; another dimension is refused."""
    problem = dpb_gym.make_problem("DPB/Recommendation-v0", dim=3, n_candidates=9, horizon=50)
    agent = dpb_gym.make_agent("lin-ucb")
    agent.set_up(problem.info, AgentStreams([0, 1]))
    rng = np.random.default_rng(0)
    for t in range(1, 40):
        m = int(rng.integers(1, 13))
        context = Context(t, rng.normal(size=(2, m, 3)).astype(np.float32))
        action = agent.act(context)
        assert (action < m).all()
        agent.observe(context, action, Feedback(np.ones(2)))
    with pytest.raises(AgentError, match=r"features of a customer must have shape \('any', 3\)"):
        agent.act(Context(40, np.zeros((2, 5, 4), np.float32)))


def test_another_context_between_a_decision_and_its_response_has_no_effect(run):
    one, other = (run(*GAMES["recommendation"]) for _ in range(2))
    for own in (one, other):
        for _ in range(5):
            context = own.instance.context()
            action = own.agent.act(context)
            if own is other:
                # its features take the memory of those of the decision
                own.agent.probabilities(context._replace(features=context.features[:, ::-1]))
            own.agent.observe(context, action, own.instance.respond(action).feedback)
            own.instance.advance()
    assert_equal(one, other)


def test_contexts_in_double_precision_are_not_copied(run):
    own = run(*GAMES["recommendation"])
    context = own.instance.context()
    features = np.float64(context.features)
    [seen] = own.agent._contexts(context._replace(features=features))
    assert np.shares_memory(seen, features)
    assert not seen.flags.writeable
