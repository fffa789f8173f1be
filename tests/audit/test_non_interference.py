"""Non-interference: with its releases held fixed, no raw record of the past reaches an action.

That is the billboard lemma's premise, tested on every private agent of the registry: a run is
repeated with the same contexts and the same releases (or messages), but with other responses
in every round, and other customers in half of them. The actions of the remaining customers
must be the same, bit for bit.
"""

from __future__ import annotations

import numpy as np
import pytest

from dpb_agents.recommendation.linear import LinearPolicy
from dpb_gym import Budget, make_problem
from dpb_gym.agent import agent_specs
from dpb_gym.evaluation.audit.taps import boundary, is_releaser, wrap
from dpb_gym.streams import AgentStreams

BUDGET = Budget.zcdp(20.0)
SEEDS = [4, 5, 6]
ROUNDS = 640
KINDS = {
    "assortment": ("DPB/Assortment-v0", {"n_items": 10, "capacity": 3, "dim": 3}),
    "pricing": ("DPB/Pricing-v0", {}),
    "recommendation": ("DPB/Recommendation-v0", {"dim": 4}),
}
CASES = [
    (name, kind)
    for name, spec in agent_specs().items()
    if spec.budget != "never" and not spec.uses_oracle
    for kind in spec.supports
]


def test_there_is_something_to_test():
    assert len(CASES) >= 6


def output_method(thing):
    return "release" if is_releaser(thing) else "send"


def record(things):
    """Keeps what every releaser gives out."""
    kept = []
    for _, thing in things:
        outputs = []
        kept.append(outputs)

        def keep(original, *args, outputs=outputs, **kwargs):
            out = original(*args, **kwargs)
            outputs.append(out.copy() if isinstance(out, np.ndarray) else out)
            return out

        wrap(thing, output_method(thing), keep)
    return kept


def replay(things, kept):
    """Gives the kept outputs out again, whatever goes in."""
    assert len(things) == len(kept)
    remaining = []
    for (name, thing), outputs in zip(things, kept):
        left = iter(outputs)
        remaining.append(left)

        def again(original, *args, name=name, left=left, **kwargs):
            out = next(left, None)
            assert out is not None, f"{name}: more releases than before; raw records decide when"
            return out.copy() if isinstance(out, np.ndarray) else out

        wrap(thing, output_method(thing), again)
    return remaining


def other_response(kind, feedback, action, rng):
    """A response that is possible for the action, and mostly another one."""
    B = len(feedback.reward)
    if kind == "recommendation":
        return feedback._replace(reward=1.0 - feedback.reward)
    if kind == "pricing":
        demand = 1.0 - feedback.demand
        return feedback._replace(demand=demand, reward=action * demand)
    choice = (feedback.choice + 1 + rng.integers(1, action.shape[1] + 1, B)) % (
        action.shape[1] + 1
    ) - 1
    choice = np.where(action[np.arange(B), np.maximum(choice, 0)] < 0, -1, choice)
    return feedback._replace(choice=choice, reward=(choice >= 0).astype(np.float64))


def run(make, kind, change=None, kept=None, rounds=ROUNDS):
    """Plays; `change` exchanges responses, and in its victims' rounds the customer."""
    env_id, kwargs = KINDS[kind]
    problem = make_problem(env_id, horizon=rounds, **kwargs)
    agent, instance = make(), problem.instance(SEEDS)
    agent.set_up(problem.info, AgentStreams(SEEDS), BUDGET)
    things = boundary(agent)
    assert things, "a private agent without a boundary"
    outputs = record(things) if kept is None else replay(things, kept)
    public = agent.guarantee.unit == "reward"
    rng = np.random.default_rng(7)
    victims = rng.random(rounds + 1) < 0.5
    actions = {}
    for t in range(1, rounds + 1):
        context = instance.context()
        if change and victims[t] and not public:
            context = context._replace(features=np.ascontiguousarray(-context.features[:, ::-1]))
        action = np.array(agent.act(context))
        if public or not victims[t]:
            actions[t] = action.copy()
        feedback = instance.respond(action).feedback
        if change:
            feedback = other_response(kind, feedback, action, rng)
        agent.observe(context, action, feedback)
        if t < rounds:
            instance.advance()
    if kept is not None:
        assert not any(list(left) for left in outputs), "fewer releases than before"
    return actions, outputs


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_raw_records_change_no_action(name, kind):
    spec = agent_specs()[name]
    actions, kept = run(spec.make, kind)
    assert any(kept), "nothing was ever released"
    changed, _ = run(spec.make, kind, change=True, kept=kept)
    for t, action in actions.items():
        assert np.array_equal(action, changed[t]), f"round {t}"
    # the records that were exchanged do matter once the releases may follow them
    free, _ = run(spec.make, kind, change=True)
    assert any(not np.array_equal(action, free[t]) for t, action in actions.items())


class Peeking(LinearPolicy):
    """Counts raw rewards beside its releaser."""

    def observe(self, context, action, feedback):
        super().observe(context, action, feedback)
        self._response = self._response + 1e-3 * feedback.reward[:, None]


class Scheming(LinearPolicy):
    """Lets a raw reward decide when to release."""

    def observe(self, context, action, feedback):
        if context.t == 1:
            self._interval += int(feedback.reward.sum())
        super().observe(context, action, feedback)


@pytest.mark.parametrize("leaky", [Peeking, Scheming])
def test_leaks_are_found(leaky):
    def make():
        return leaky(rule="ucb", batch=40)

    actions, kept = run(make, "recommendation", rounds=200)
    try:
        changed, _ = run(make, "recommendation", change=True, kept=kept, rounds=200)
    except AssertionError as error:
        assert "releases than before" in str(error) or "more releases" in str(error)
        return
    assert any(not np.array_equal(action, changed[t]) for t, action in actions.items())
