"""Rounds that are answered at once equal rounds that are answered one by one."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

import dpb_gym
from dpb_gym.errors import ActionError, DPBError
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.problems.kinds import kind_of

SEEDS = [4, 5, 6]
ROUNDS = 40
PROBLEMS = {
    "pricing": ("DPB/Pricing-v0", {}),
    "gaussian": ("DPB/Pricing-v0", {"demand": "gaussian", "dim": 2}),
    "assortment": ("DPB/Assortment-v0", {"n_items": 7, "capacity": 3, "dim": 2}),
    "uneven": ("DPB/Assortment-v0", {"n_items": 7, "capacity": 3, "revenues": "random"}),
    "masks": ("DPB/Assortment-v0", {"n_items": 7, "capacity": 2, "available": 0.5}),
    "drift": ("DPB/Pricing-v0", {"drift": "abrupt,changes=3"}),
    "types": ("DPB/Assortment-v0", {"n_items": 7, "capacity": 3, "types": 2}),
    "users": ("DPB/Pricing-v0", {"returning": 9}),
}


def made(name, horizon=200):
    env_id, kwargs = PROBLEMS[name]
    return dpb_gym.make_problem(env_id, horizon=horizon, **kwargs)


def actions_of(problem, rounds, rng):
    """Random prices, or slates that may have holes."""
    info = problem.info
    if info.kind == "pricing":
        return rng.uniform(size=(rounds, len(SEEDS)))
    slates = [rng.permutation(info.n_items)[: info.capacity] for _ in range(rounds * len(SEEDS))]
    slates = np.array(slates).reshape(rounds, len(SEEDS), -1)
    slates[:, :, 0] = np.where(rng.random((rounds, len(SEEDS))) < 0.2, -1, slates[:, :, 0])
    return slates


def response(problem):
    name = kind_of(problem.kind).response
    return lambda feedback: getattr(feedback, name)


def offered(instance, actions, t):
    """Replace items that a round does not offer by -1."""
    mask = instance.context().available
    if mask is None:
        return actions[t]
    lanes = np.arange(len(SEEDS))[:, None]
    return np.where(mask[lanes, actions[t]], actions[t], -1)


@pytest.mark.parametrize("name", PROBLEMS)
def test_folded_rounds_equal_single_rounds(name):
    problem = made(name)
    actions = actions_of(problem, ROUNDS, np.random.default_rng(1))
    single, expected = problem.instance(SEEDS), []
    for t in range(ROUNDS):
        actions[t] = offered(single, actions, t)
        context, best = single.context(), single.oracle()[1].copy()
        feedback, value = single.answer(actions[t])
        expected.append((context, best, feedback, value.copy()))
        single.advance()
    instance, t = problem.instance(SEEDS), 0
    while t < ROUNDS:
        stretch = instance.move(min(17, ROUNDS - t))
        view = stretch.view()
        n = view.shape[0]
        assert n > 1 and view.context.t == t + 1
        half = n // 2
        parts = [
            view.answer(slice(a, b), actions[t + a : t + b], response(problem))
            for a, b in ((0, half), (half, n))
        ]
        for i, (context, best, feedback, value) in enumerate(expected[t : t + n]):
            np.testing.assert_array_equal(stretch.best[i], best)
            np.testing.assert_array_equal(view.expected[i], value)
            np.testing.assert_array_equal(view.rewards[i], feedback.reward)
            for own, other in zip(view.context[1:], context[1:]):
                assert (own is None) == (other is None)
                if own is not None:
                    np.testing.assert_array_equal(own[i], other)
                    assert not own.flags.writeable
        played, responses, seen = (np.concatenate(parts_) for parts_ in zip(*parts))
        np.testing.assert_array_equal(played, actions[t : t + n])
        wanted = [response(problem)(feedback) for _, _, feedback, _ in expected[t : t + n]]
        np.testing.assert_array_equal(responses, wanted)
        assert seen.all()
        t += n
        instance.advance()


def test_a_band_of_prices_is_played():
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=50)
    instance = problem.instance(SEEDS)
    stretch = instance.move(10)
    view = stretch.view()
    actions = np.full((view.shape[0], 3), 0.4)
    _, responses, _ = view.answer(slice(0, view.shape[0]), actions, lambda f: f.demand)
    expected, observed, rewards = stretch.outcome(view, actions, "agent")
    np.testing.assert_array_equal(rewards, 0.4 * responses)
    assert observed is None and expected.shape == rewards.shape


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("pricing", 1.5, r"price 1\.5 of replicate 1"),
        ("pricing", np.nan, "price nan of replicate 1"),
        ("assortment", 7, "replicate 1"),
        ("assortment", -2, "replicate 1"),
    ],
)
def test_errors_name_round_and_replicate(name, value, text):
    problem = made(name)
    actions = actions_of(problem, 20, np.random.default_rng(2))
    actions[7, 1] = value
    instance = problem.instance(SEEDS)
    stretch = instance.move(20)
    view = stretch.view()
    view.answer(slice(0, 5), actions[:5], response(problem))
    with pytest.raises(ActionError, match=text) as caught:
        view.answer(slice(5, 12), actions[5:12], response(problem))
    assert (caught.value.replicate, caught.value.round) == (1, 8)


class Level(NamedTuple):
    level: float


class Nothing(NamedTuple):
    nothing: Any


@jit
def act(c, s, t, x, z):
    return 2.0 if t == 23 and x[0] > c.level else 0.5


@jit
def record(c, s, t, x, price, y, z):
    return s.nothing


@jit
def learn(c, s, released, t):
    pass


def test_a_run_names_the_round_and_the_seed():
    """The replicate of the largest feature in round 23 asks a price of 2."""
    problem = made("pricing", 60)
    instance = problem.instance(SEEDS)
    for _ in range(22):
        instance.advance()
    first = instance.context().features[:, 0].astype(float)
    b = int(first.argmax())
    between = np.sort(first)[-2:].mean()

    class Dear(Algorithm):
        """Asks too much once."""

        functions = Functions(act, record, learn)
        State = Nothing

        def plan(self, problem, curator):
            return Plan(curator.batch_sum(1, clip=1.0), every=100)

        def start(self, problem, sums):
            return Level(float(between)), Nothing(np.zeros(1))

    dpb_gym.register_agent("dear", supports=["pricing"])(Dear)
    with pytest.raises(DPBError, match=rf"in round 23 \(play\).*seed {SEEDS[b]}\b.*price 2"):
        dpb_gym.evaluate(
            "DPB/Pricing-v0", ["dear"], horizon=60, replicates=3, seed=4, checkpoints=[60],
            progress=False,
        )  # fmt: skip
