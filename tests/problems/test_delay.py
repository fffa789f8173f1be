"""Delays: text form, distributions, the queue, and dependence on the seed alone."""

from __future__ import annotations

import numpy as np
import pytest

from dpb_gym.envs.registration import make_problem
from dpb_gym.errors import ParameterError
from dpb_gym.problems.delay import Arrivals, Delay, Delivery
from dpb_gym.problems.kinds import kind_of


def origins(text, horizon, seeds=(0, 1, 2)):
    """Return origins of arriving responses ``(horizon, B)`` and numbers of pending responses."""
    arrivals = Arrivals(Delay.parse(text), horizon, list(seeds))
    rows, waiting = [], []
    for _ in range(horizon):
        arrivals.turn()
        rows.append(arrivals.origin.copy())
        waiting.append(arrivals.waiting)
    return np.array(rows), np.array(waiting)


@pytest.mark.parametrize(
    "text",
    ["fixed=50", "geometric=2.5,lost=0.1", "pareto=10,cap=1000,shape=1.2,lost=0.05,window=200"],
)
def test_text_form_round_trips(text):
    assert str(Delay.parse(text)) == text
    assert Delay.parse(Delay.parse(text)) == Delay.parse(text)


def test_a_number_is_a_fixed_delay():
    assert Delay.parse(7) == Delay.parse(np.int64(7)) == Delay.parse(" fixed = 7 ")
    assert Delay.parse(None) is None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (-1, "0..1000000"),
        (1.5, "a number of rounds"),
        (True, "a number of rounds"),
        ("soon", "geometric=50"),
        ("fixed=1.5", "integer"),
        ("geometric=0", "(0.0"),
        ("geometric=nan", "finite"),
        ("geometric=5,cap=9", "have a cap"),
        ("pareto=5", "have a cap"),
        ("geometric=5,shape=2", "have a shape"),
        ("geometric=5,lost=1", "lost"),
        ("geometric=5,lost=0.1,lost=0.2", "lost="),
        ("lost=0.1", "then cap="),
        ("fixed=5,window=-1", "window"),
        ([5], "a number of rounds"),
    ],
)
def test_invalid_values_are_rejected(value, says):
    with pytest.raises(ParameterError, match=says.replace("(", r"\(").replace(".", r"\.")):
        make_problem("DPB/Pricing-v0", horizon=10, delay=value)


def test_fixed_delay_is_a_shift():
    arrived, _ = origins(5, 40)
    wanted = np.maximum(np.arange(1, 41) - 5, 0)
    assert (arrived == wanted[:, None]).all()
    assert (origins(0, 9)[0] == np.arange(1, 10)[:, None]).all()
    assert (origins(50, 20)[0] == 0).all()


@pytest.mark.parametrize("text", ["geometric=20", "pareto=5,cap=300", "geometric=10,lost=0.3"])
def test_each_response_arrives_once_in_no_round_before_its_own(text):
    arrived, _ = origins(text, 600)
    for lane in arrived.T:
        came = lane[lane > 0]
        assert len(set(came.tolist())) == len(came)
        assert (lane <= np.arange(1, 601)).all()


def test_delays_follow_their_distributions():
    """Compare tails with formulas, and drawn delays with the tails."""
    tails = Delay.parse("geometric=4").tails(10_000)
    assert abs(tails.sum() - 4) < 1e-9  # the mean
    tails = Delay.parse("pareto=10,cap=30,shape=2").tails(10_000)
    assert len(tails) == 30 and abs(tails[9] - 0.25) < 1e-12
    for text, wanted in (("geometric=4", 4.0), ("pareto=2,cap=8,shape=1", None)):
        delay = Delay.parse(text)
        arrivals = Arrivals(delay, 20_000, [3])
        queue = arrivals._queues[0]
        drawn = np.array([arrivals._late(queue) for _ in range(20_000)])
        mean = delay.tails(20_000).sum() if wanted is None else wanted
        assert abs(drawn.mean() - mean) < 5 * drawn.std() / np.sqrt(len(drawn))


def test_lost_and_window():
    arrived, waiting = origins("geometric=5,lost=0.25", 4000)
    share = (arrived > 0).mean()
    assert abs(share - 0.75) < 0.02
    # lost responses keep the queue from growing
    assert waiting.max() < 40
    late, _ = origins("geometric=5,window=0", 4000)
    own = late == np.arange(1, 4001)[:, None]
    assert (own | (late == 0)).all() and abs(own.mean() - 1 / 6) < 0.02


def test_backlog_is_the_running_maximum_of_pending_responses():
    """With one delivery per round, the backlog is a running maximum of responses due."""
    horizon, delay = 3000, Delay.parse("geometric=20")
    arrivals = Arrivals(delay, 10**6, [4])
    draws = Arrivals(delay, 10**6, [4])
    ends, most = [], 0
    for t in range(1, horizon + 1):
        arrivals.turn()
        ends.append(t + draws._late(draws._queues[0]))
        most = max(most, sum(end > t for end in ends[-400:]))
        assert arrivals.waiting[0] == most
    assert 20 < most < 50


def test_arrivals_depend_on_seed_and_episode_only():
    together, _ = origins("geometric=9", 300, [5, 6, 7])
    alone, _ = origins("geometric=9", 300, [6])
    assert (together[:, 1] == alone[:, 0]).all()
    arrivals = Arrivals(Delay.parse("geometric=9"), 300, [6])
    for _ in range(10):
        arrivals.turn()
    arrivals.restart(0, 6, 0)
    again = []
    for _ in range(300):
        arrivals.turn()
        again.append(arrivals.origin[0])
    assert (np.array(again) == alone[:, 0]).all()
    other = Arrivals(Delay.parse("geometric=9"), 300, [6], [1])
    other.turn()
    assert other._queues[0].waiting != arrivals._queues[0].waiting


@pytest.mark.parametrize("env", ["Assortment", "Pricing", "Recommendation"])
def test_delivery_returns_context_action_and_feedback_of_the_origin(env):
    problem = make_problem(f"DPB/{env}-v0", horizon=60, delay="geometric=6,lost=0.1")
    instance = problem.instance([1, 2])
    post = Delivery(problem, [1, 2])
    rng = np.random.default_rng(0)
    kind, info = kind_of(problem.kind), problem.info
    kept = []
    nothing = 0
    for t in range(1, 61):
        context = instance.context()
        action = kind.random(info, rng.random((2, *kind.action_shape(info))))
        feedback = instance.respond(action).feedback
        copied = {k: np.array(v) for k, v in context._asdict().items() if v is not None}
        kept.append((copied, action.copy(), [None if v is None else v.copy() for v in feedback]))
        post.open(context)
        seen, came, told = post.deliver(action, feedback)
        assert seen.t == t
        for b, origin in enumerate(post.arrivals.origin):
            assert told.observed[b] == (origin > 0)
            if origin == 0:
                nothing += 1
                assert not seen.features[b].any() and told.reward[b] == 0.0
                assert (came[b] == kind.nothing).all()
                assert told.choice is None or told.choice[b] == -1
                continue
            then, acted, response = kept[origin - 1]
            assert (seen.features[b] == then["features"][b]).all()
            assert (came[b] == acted[b]).all()
            assert told.reward[b] == response[0][b]
            if told.choice is not None:
                assert told.choice[b] == response[1][b]
        if t < 60:
            instance.advance()
    assert 10 < nothing < 60
