"""Sessions: equality with the harness, late responses, files, threads, bad values."""

from __future__ import annotations

import copy
import json
import pickle
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpb_gym
from dpb_gym.errors import (
    AgentError,
    BudgetError,
    CheckpointError,
    DataError,
    DPBError,
    HorizonExceeded,
    ParameterError,
)
from dpb_gym.privacy import Account, CountingShuffler, ZCDPEvent
from dpb_gym.problems.rounds import ProblemInfo

T = 80
SHOP = ProblemInfo("recommendation", T, 2, (0.0, 1.0), n_candidates=3)


class Notebook(dpb_gym.Agent):
    """Agent that plays candidates in rotation and records its observations."""

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.told: list[Any] = []

    def act(self, context: Any) -> Any:
        time.sleep(1e-5)  # other threads may come in here
        return np.array([context.t % 3])

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        assert len(action) == len(feedback.reward) == 1
        row = (context.t, float(context.features[0, 0, 0]), int(action[0]))
        self.told.append((*row, float(feedback.reward[0])) if feedback.observed[0] else context.t)


def offer(number: float) -> np.ndarray:
    return np.full((3, 2), number)


@pytest.mark.parametrize(
    ("env_id", "agent", "kwargs"),
    [
        ("DPB/Pricing-v0", "one-pass-pricing", {}),
        ("DPB/Assortment-v0", "one-pass-mnl", {"n_items": 12, "capacity": 3, "dim": 4}),
        ("DPB/Recommendation-v0", "one-pass-linear", {"dim": 4}),
        ("DPB/Recommendation-v0", "lin-ts", {"dim": 4}),
        ("DPB/MultiArmed-v0", "ucb", {"n_arms": 5}),
    ],
)
def test_immediate_responses_equal_the_harness(env_id: str, agent: str, kwargs: Any) -> None:
    budget = None if agent in ("lin-ts", "ucb") else "rho=2"
    run = dpb_gym.evaluate(
        env_id, [(agent, budget)], horizon=T, replicates=1, seed=7, env_kwargs=kwargs
    )
    problem = dpb_gym.make_problem(env_id, horizon=T, **kwargs)
    session = dpb_gym.serve(agent, budget, problem, noise="seeded", seed=7)
    instance, reward, regret = problem.instance([7]), 0.0, 0.0
    for t in range(1, T + 1):
        context = instance.context()
        revenues = None if context.revenues is None else context.revenues[0]
        arms = None if context.arms is None else context.arms[0]
        decision, action = session.decide(context.features[0], revenues=revenues, arms=arms)
        assert decision == session.decisions == t and session.pending == (t,)
        if problem.kind == "assortment":
            action = action + [-1] * (3 - len(action))
        outcome = instance.respond(np.array([action]))
        feedback = outcome.feedback
        if problem.kind == "assortment":
            session.observe(t, None if feedback.choice[0] < 0 else action[feedback.choice[0]])
        else:
            told = feedback.reward if feedback.demand is None else feedback.demand
            session.observe(t, told[0])
        reward, regret = reward + feedback.reward[0], regret + outcome.regret[0]
        if t < T:
            instance.advance()
    assert run.final_reward(agent).tolist() == [reward]
    assert run.final_regret(agent).tolist() == [regret]
    with pytest.raises(HorizonExceeded, match="planned for 80 decisions"):
        session.decide(context.features[0], revenues=revenues, arms=arms)


def test_a_session_without_a_budget_is_saved_and_loaded(tmp_path: Path) -> None:
    session = dpb_gym.serve("lin-ucb", None, SHOP, warm=False)  # with the default noise
    session.decide(offer(1))
    session.save(tmp_path / "shop.session")
    assert dpb_gym.Session.load(tmp_path / "shop.session").pending == (1,)


def test_late_responses_have_their_own_context_and_action() -> None:
    session = dpb_gym.serve(Notebook, None, SHOP)
    ids = [session.decide(offer(k)) for k in (10, 20, 30)]
    assert ids == [(1, 1), (2, 2), (3, 0)]
    session.observe(3, 0.3)
    session.observe(1, 0.1)
    assert session.pending == (2,)
    session.decide(offer(40))
    session.decide(offer(50))
    session.drop(2)
    session.decide(offer(60))
    assert session.agent.told == [1, 2, (3, 30.0, 0, 0.3), (4, 10.0, 1, 0.1), 5], "one a round"
    assert session.pending == (4, 5, 6)
    for bad, message in ((3, "was answered or dropped already"), (2, "dropped"), (7, "never made")):
        with pytest.raises(ParameterError, match=message):
            session.observe(bad, 0.5)
    for nothing in (0, -1, 1.5, "1", None, True):
        with pytest.raises(ParameterError, match="decision must be"):
            session.observe(nothing, 0.5)


def test_late_responses_reach_agents_of_one_stream_with_their_own_action() -> None:
    told = []

    class Alone(dpb_gym.SingleAgent):
        def act(self, context: Any) -> int:
            return int(context.t % 3)

        def observe(self, context: Any, action: Any, feedback: Any) -> None:
            told.append((float(context.features[0, 0]), int(action), float(feedback.reward)))

    session = dpb_gym.serve(Alone, None, SHOP)
    for k in (10, 20, 30):
        session.decide(offer(k))
    session.observe(1, 0.25)
    session.decide(offer(40))
    session.observe(3, 0.75)
    session.decide(offer(50))
    assert told == [(10.0, 1, 0.25), (30.0, 0, 0.75)]


def test_unavailable_items_are_not_offered() -> None:
    session = dpb_gym.serve("random", None, replace(SHOP, masked=True), seed=3)
    for k in range(20):
        assert session.decide(offer(k), available=[False, True, False])[1] == 1
    assert {session.decide(offer(k))[1] for k in range(30)} == {0, 1, 2}
    for bad in ([1, 1], [2, 0, 0], "x"):
        with pytest.raises(ParameterError, match="available"):
            session.decide(offer(1), available=bad)
    with pytest.raises(ParameterError, match="masked=True"):
        dpb_gym.serve("random", None, SHOP).decide(offer(1), available=[1, 1, 1])


def test_responses_become_rewards() -> None:
    class Same(Notebook):
        answer: Any

        def act(self, context: Any) -> Any:
            return self.answer

        def observe(self, context: Any, action: Any, feedback: Any) -> None:
            self.told.append(feedback)

    shelf = ProblemInfo("assortment", T, 1, (0.0, 1.0), n_items=4, capacity=3)
    shop = dpb_gym.serve(type("Slate", (Same,), {"answer": np.array([[3, 1, -1]])}), None, shelf)
    for item in (1, None):
        decision, slate = shop.decide(np.ones((4, 1)), revenues=[0.5, 0.25, 1.0, 0.75])
        assert slate == [3, 1]
        shop.observe(decision, item)
    shop.decide(np.ones((4, 1)), revenues=np.zeros(4))
    assert [float(one.reward[0]) for one in shop.agent.told] == [0.25, 0.0]
    assert [int(one.choice[0]) for one in shop.agent.told] == [1, -1]
    stall = ProblemInfo("pricing", T, 2, (0.0, 1.0), demand="logistic")
    shop = dpb_gym.serve(type("Price", (Same,), {"answer": np.array([0.4])}), None, stall)
    for sold in (True, 0):
        shop.observe(shop.decide([1.0])[0], sold)
    shop.decide([1.0])
    assert [float(one.reward[0]) for one in shop.agent.told] == [0.4, 0.0]


@pytest.mark.parametrize(
    ("agent", "info", "features", "responses"),
    [
        ("random", SHOP, offer(1), (1.5, -0.1, np.nan, None, "1", [0.2])),
        ("random", "DPB/Pricing-v0", [0.1, 0.2], (0.5, 2, -1, np.inf, None, "yes")),
        (
            "random",
            replace(dpb_gym.make_problem("DPB/Assortment-v0").info, n_items=6, capacity=2, dim=1),
            np.ones((6, 1)),
            (6, 1.5, -1, True, "soup", np.nan),
        ),
    ],
)
def test_invalid_values_do_not_change_the_session(
    agent: str, info: Any, features: Any, responses: Any
) -> None:
    session = dpb_gym.serve(agent, None, info, seed=1)
    twin = dpb_gym.serve(agent, None, info, seed=1)
    more = {"revenues": np.ones(6)} if session.problem.kind == "assortment" else {}
    good = np.asarray(features, float)
    for bad in (good * np.nan, good[:-1], good[None], "x", None, good * 1e40, good + 1j):
        with pytest.raises(ParameterError, match="features"):
            session.decide(bad, **more)
    for wrong in ({"revenues": -good[..., 0]}, {"revenues": "x"}):
        with pytest.raises(ParameterError, match="revenues"):
            session.decide(features, **wrong)
    assert session.decisions == 0
    first = session.decide(features, **more)
    assert first == twin.decide(features, **more)
    for response in responses:
        with pytest.raises(ParameterError):
            session.observe(1, response)
    assert session.pending == (1,)
    if more:
        outside = next(item for item in range(6) if item not in first[1])
        with pytest.raises(ParameterError, match=f"item {outside} was not offered"):
            session.observe(1, outside)
    for one in (session, twin):
        one.observe(1, None if more else 1)
    assert session.decide(features, **more) == twin.decide(features, **more)


def test_a_session_is_saved_once_with_pending_decisions(tmp_path: Any) -> None:
    def play(session: Any, rounds: int) -> list[Any]:
        actions = []
        for _ in range(rounds):
            x = np.random.default_rng(session.decisions).normal(size=(3, 2))
            decision, action = session.decide(x)
            if decision % 3:
                session.observe(decision, 0.5)
            actions.append(action)
        return actions

    whole = dpb_gym.serve("one-pass-linear", "rho=3", SHOP, noise="seeded", seed=4)
    session = dpb_gym.serve("one-pass-linear", "rho=3", SHOP, noise="seeded", seed=4)
    play(whole, 30), play(session, 30)
    session.save(tmp_path / "session")
    with pytest.raises(AgentError, match="handed over"):
        session.decide(offer(1))
    later = dpb_gym.Session.load(tmp_path / "session")
    assert later.pending == whole.pending == tuple(range(3, 31, 3))
    for one in (later, whole):
        one.observe(6, 1.0)
    assert play(later, 40) == play(whole, 40) and later.guarantee == whole.guarantee
    with pytest.raises(CheckpointError, match="loaded before"):
        dpb_gym.Session.load(tmp_path / "session")
    whole.agent.save(tmp_path / "again")
    plain = dpb_gym.make_agent("random")
    plain.set_up(SHOP, dpb_gym.agent_spec("random").streams([0]))
    plain.save(tmp_path / "agent")
    with pytest.raises(CheckpointError, match="but no session"):
        dpb_gym.Session.load(tmp_path / "agent")


def test_system_noise_is_the_default_and_fresh_after_loading(tmp_path: Any) -> None:
    pytest.importorskip("opendp")
    session = dpb_gym.serve("adaprivate-ucb", "rho=1", SHOP, batch=5)
    assert session.agent.curator.system_noise and session.guarantee is not None
    for k in range(4):
        session.observe(session.decide(offer(k))[0], 0.5)
    session.save(tmp_path / "session")
    assert b"PCG64DXSM" not in (tmp_path / "session").read_bytes(), "no generator of noise"
    seen = []
    for rehearsal in (False, True):
        later = dpb_gym.Session.load(tmp_path / "session", rehearsal=rehearsal)
        for k in range(4, 12):
            later.observe(later.decide(offer(k))[0], 0.5)
        (releaser,) = later.agent.curator.releasers
        seen.append(np.array(releaser.value))
        assert (later.guarantee is not None and later.guarantee.private) != rehearsal
    assert (seen[0] != seen[1]).all(), "the same customers, other noise"


def test_a_file_with_system_noise_has_no_generator_but_that_of_exploration(tmp_path: Any) -> None:
    pytest.importorskip("opendp")

    def generators(value: Any, path: str = "") -> list[str]:
        if not isinstance(value, (dict, list)):
            return []
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        generator = isinstance(value, dict) and isinstance(value.get("generator"), dict)
        here = [path] if generator else []
        return here + [place for key, part in parts for place in generators(part, f"{path}/{key}")]

    places = {}
    for noise in ("seeded", "system"):
        seed = 1 if noise == "seeded" else None
        session = dpb_gym.serve("one-pass-linear", "rho=1", SHOP, noise=noise, seed=seed)
        session.save(tmp_path / noise)
        _, text, *_ = (tmp_path / noise).read_bytes().split(b"\n")
        places[noise] = generators(json.JSONDecoder().raw_decode(text.decode("latin-1"))[0])
    assert any("/_noise/" in place for place in places["seeded"])
    assert len(places["system"]) == 1 and "/_numbers/" in places["system"][0]


@pytest.mark.slow
@pytest.mark.parametrize("trust", ["", "@aggregator", "@shuffler", "@local"])
@pytest.mark.parametrize(
    ("agent", "env", "response"),
    [
        ("one-pass-pricing", "DPB/Pricing-v0", True),
        ("one-pass-mnl", "DPB/Assortment-v0", None),
        ("one-pass-linear", "DPB/Recommendation-v0", 1.0),
        ("one-pass-linear-joint", "DPB/Recommendation-v0", 1.0),
    ],
)
def test_recommended_agents_serve_under_every_trust_model(
    agent: str, env: str, response: Any, trust: str, tmp_path: Any
) -> None:
    """With noise of the operating system; without a trusted curator on devices, if it can."""
    pytest.importorskip("opendp")
    problem = dpb_gym.make_problem(env, horizon=60)
    instance = problem.instance([0])
    session = dpb_gym.serve(agent, f"rho=40{trust}", problem.info, warm=False)
    assert session.guarantee.rho == pytest.approx(40.0, rel=0.01)
    shuffler = CountingShuffler()
    for _ in range(60):
        context = instance.context()
        given = {"revenues": context.revenues[0]} if context.revenues is not None else {}
        if trust and agent != "one-pass-linear":
            device = session.device(simulation=True)
            device.decide(context.features[0], **given)
            message = device.message(response)
            if trust != "@shuffler":
                session.receive(message)
            elif batch := shuffler.submit(message) if message["bits"] else None:
                session.receive_batch(batch)
        else:
            decision, _ = session.decide(context.features[0], **given)
            session.observe(decision, response)
        instance.advance() if context.t < 60 else None
    assert session.agent.curator.system_noise
    theta = session.agent.state.theta
    assert np.isfinite(theta).all() and theta.any()
    session.save(tmp_path / "session")
    assert b"PCG64DXSM" not in (tmp_path / "session").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["assortment", "pricing", "recommendation"])
def test_agents_serve_with_system_noise_or_are_named_on_the_page(kind: str) -> None:
    pytest.importorskip("opendp")
    page = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
    listed = page.split('These agents need `noise="seeded"`', 1)[1].split("\n\n", 1)[0]
    named = set(re.findall(r"`([\w-]+)`", listed))
    served = set()
    for name, spec in dpb_gym.registry.agent_specs().items():
        if spec.budget == "never" or kind not in spec.supports:
            continue
        fixed = "DPB/MultiArmed-v0" if spec.fixed_arms else f"DPB/{kind.capitalize()}-v0"
        info = dpb_gym.make_problem(fixed, horizon=500).info
        if "user" in name:
            info = replace(info, max_interactions=4)
        try:
            assert dpb_gym.serve(name, "rho=1", info).guarantee.rho <= 1.0
            served.add(name)
        except ParameterError:
            assert name in named
    assert served and not served & named


@pytest.mark.slow
def test_the_guarantee_names_what_the_problem_leaves_out() -> None:
    def line(agent: str, problem: Any) -> str:
        return str(dpb_gym.serve(agent, "rho=1", problem, noise="seeded", seed=1).guarantee)

    seats = dpb_gym.make_problem("DPB/Pricing-v0", horizon=T, stock=20)
    for agent in ("resolving-pricing", "one-pass-pricing"):
        assert "the same items are sold out" in line(agent, seats)
    loans = dpb_gym.from_log("synthetic-loans", "pricing", features=["term"], horizon=T)
    assert "coefficients, zeta, counts, the quoted prices" in line("one-pass-pricing", loans)
    films = dpb_gym.from_log("synthetic-movielens", "recommendation", horizon=T)
    assert "features are raw" in line("one-pass-linear", films)
    assert line("one-pass-linear", "DPB/Recommendation-v0").endswith(
        "delta=1e-05; a saved session continues once on this machine"
    )


def test_threads_share_a_session() -> None:
    session = dpb_gym.serve(Notebook, None, replace(SHOP, horizon=400))

    def customer(number: int) -> list[int]:
        decisions = []
        for k in range(40):
            decision, action = session.decide(offer(1000 * number + k))
            assert action == decision % 3
            session.observe(decision, 0.5)
            decisions.append(decision)
        return decisions

    with ThreadPoolExecutor(8) as pool:
        made = sorted(n for decisions in pool.map(customer, range(8)) for n in decisions)
    assert made == list(range(1, 321)) and session.pending == ()
    told = [row for row in session.agent.told if isinstance(row, tuple)]
    assert len(session.agent.told) == 319 and len({x for _, x, _, _ in told}) == len(told)


def test_unsuitable_arguments_are_rejected() -> None:
    for arguments, error, message in (
        (("oracle", None, SHOP), AgentError, "hidden state"),
        (("dpmnl", "rho=1", SHOP), AgentError, "supports assortment"),
        (("adaprivate-ucb", None, SHOP), AgentError, "needs a budget"),
        (("random", "rho=1", SHOP), AgentError, "takes no budget"),
        (("one-pass-linear", "rho=-1", SHOP), BudgetError, "rho"),
        (("one-pass-linear", "rho=1", 5), ParameterError, "ProblemInfo"),
    ):
        with pytest.raises(error, match=message):
            dpb_gym.serve(*arguments)
    with pytest.raises(DPBError, match="noise"):
        dpb_gym.serve("one-pass-linear", "rho=1", SHOP, noise="loud")


WARM = """
import sys, dpb_gym
from dpb_gym.kernel_cache import spent
info = dpb_gym.make_problem("DPB/Recommendation-v0", horizon=10_000, dim=4).info
session = dpb_gym.serve("adaprivate-ts", "rho=2", info, noise="seeded", seed=1, batch=70)
before = spent.wall
for _ in range(75):
    decision, _ = session.decide([[0.1] * 4] * info.n_candidates)
    session.observe(decision, 1)
print(spent.wall - before, session.decisions)
"""


def test_no_decision_waits_for_a_kernel(forks: Any, tmp_path: Path) -> None:
    """All kernels of a session are compiled and loaded by `serve`, also those of releases."""
    done = forks.run(WARM, cwd=tmp_path)
    assert done.stdout.split() == ["0.0", "75"], done.stderr


PRICES = ProblemInfo("pricing", 400, 2, (0.0, 1.0), demand="logistic", zeta=4.0)


def sell(session: Any, users: Any, later: Any = 1) -> list[float]:
    """Serve customers who buy below 0.4 and return the prices.

    From the fourth round on customer 0 has the demand `later`; None is never observed.
    """
    prices = []
    for t, user in enumerate(users):
        number, price = session.decide([(-1.0) ** t], user=user)
        prices.append(price)
        demand = later if user == 0 and t > 3 else int(price < 0.4)
        if demand is not None:
            session.observe(number, demand)
    return prices


def priced(tmp_path: Any, name: str, budget: str = "rho=5", **options: Any) -> Any:
    account = Account(tmp_path / name, lifetime="rho=20")
    return dpb_gym.serve(
        "one-pass-pricing", budget, PRICES, noise="seeded", seed=4, account=account, **options
    )


@pytest.mark.slow
def test_a_customer_whose_lifetime_is_spent_is_served_and_not_learnt_from(tmp_path: Any) -> None:
    # rho 5 a record: her second record brings her to 20, the third would to 45
    users = [0 if t % 3 == 0 else t for t in range(400)]
    prices = [sell(priced(tmp_path, str(later)), users, later) for later in (0, 1, None)]
    assert prices[0] == prices[1] == prices[2] and len(set(prices[0])) > 200
    account = Account(tmp_path / "0")
    assert [account.spent(0), account.spent(1), account.spent(3)] == pytest.approx([20, 5, 0])
    free = dpb_gym.serve("one-pass-pricing", "rho=5", PRICES, noise="seeded", seed=4)
    assert sell(free, users, 0) != prices[0], "without an account her records count"


def test_a_response_whose_charge_fails_is_charged_by_the_next_decision(tmp_path: Any) -> None:
    """A full disk must not lose a response, nor the agent's count of its rounds."""

    def prices(session: Any, failing: bool) -> list[float]:
        charges, admit, quoted = session._charges, session._charges.admit_persons, []
        for t in range(60):
            if failing and t % 7 == 3:
                charges.admit_persons = lambda persons: (_ for _ in ()).throw(DataError("full"))
                with pytest.raises(DataError, match="full"):
                    session.decide([(-1.0) ** t], user=t)
                charges.admit_persons = admit
            number, price = session.decide([(-1.0) ** t], user=t)
            assert number == t + 1
            quoted.append(price)
            session.observe(number, int(price < 0.4))
        return quoted

    whole, failing = (priced(tmp_path, name, "rho=20") for name in ("whole", "failing"))
    assert prices(failing, True) == prices(whole, False)
    assert failing.account.summary() == whole.account.summary()
    assert failing.lost == ()


def test_charges_are_on_the_disk_before_a_decision_depends_on_them(tmp_path: Any) -> None:
    session = priced(tmp_path, "people", "rho=20")
    account, waited = session.account, 0
    releaser = session.agent.curator.releasers[0]
    for t in range(150):
        before = releaser.releases
        number, _ = session.decide([0.5], user=t)
        if releaser.releases > before:
            assert not account._uncommitted, "the decision above used the release"
        waited += account._uncommitted
        session.observe(number, 1)
    assert waited > 50, "most rounds wait for the next release"
    assert releaser.releases > 2
    failing = priced(tmp_path, "failing", "rho=20")
    failing._charges.commit = lambda: 1 / (not failing.account._uncommitted)
    for t in range(2):  # neither a decision after a failed write nor the next one is made
        with pytest.raises(ZeroDivisionError):
            sell(failing, range(100 * t, 100 * t + 100))
        assert failing.decisions == failing.agent.curator.releasers[0].schedule.ends[0]
    session.decide([0.5], user=151)
    session.save(tmp_path / "session")
    assert not account._uncommitted
    # the second session of an account knows what the first has spent
    again = dpb_gym.Session.load(tmp_path / "session")
    sell(again, [0, 1, 200])
    again.decide([0.5], user=0)
    assert [again.account.spent(user) for user in (0, 1, 200, 201)] == pytest.approx(
        [20, 20, 20, 0]
    )


def test_users_may_be_texts_and_prices_are_those_of_numbers(tmp_path: Any) -> None:
    users = [0, 1, 0, 2, 3, 0, 0] * 9
    names = [("Ana", "bob", "Zoë", "7")[user] for user in users]
    by_number, by_name = priced(tmp_path, "numbers"), priced(tmp_path, "names")
    prices = sell(by_number, users, 1)
    assert sell(by_name, names, 1) == prices
    spent = [by_number.account.spent(user) for user in range(4)]
    assert [by_name.account.spent(name) for name in ("Ana", "bob", "Zoë", 7)] == spent
    assert spent[0] == pytest.approx(20)
    # a refused decision gives no number
    state = repr(by_name._state["persons"])
    with pytest.raises(ParameterError, match="features"):
        by_name.decide([0.5, 0.5], user="new")
    for session, other in ((by_name, 5), (by_number, "Ana")):
        with pytest.raises(ParameterError, match="all numbers or all texts"):
            session.decide([0.5], user=other)
    with pytest.raises(ParameterError, match="user must"):
        by_name.decide([0.5], user="a\nb")
    assert repr(by_name._state["persons"]) == state and by_name.decisions == len(users)


@dpb_gym.register_agent(
    "punctual", supports=["pricing"], protects=("joint", "user-round"), delayed_feedback=False
)
class Punctual(dpb_gym.SingleAgent):
    """An agent that needs every response."""

    def begin(self) -> None:
        self.sums = self.curator.batch_sum(1, clip=1.0)


class LateCharges(dpb_gym.Agent):
    """Agent that charges a release of its own after its first response, in `at`."""

    protects = ("anticipating", "user-round")
    at = "observe"

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.charged = False
        curator.charge(ZCDPEvent(0.01), what="in begin")

    def charge(self, where: str) -> None:
        if where == self.at and not self.charged:
            self.charged = True
            self.cheat()

    def cheat(self) -> None:
        self.curator.charge(ZCDPEvent(0.4), what="later")

    def act(self, context: Any) -> Any:
        if context.t > 1:
            self.charge("act")
        return np.array([0.5])

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        self.charge("observe")


@pytest.mark.parametrize("where", ["act", "observe", "never"])
def test_an_agent_that_charges_later_makes_no_decision_with_an_account(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """The account charges customers what the guarantee cost when the session began."""
    monkeypatch.setattr(LateCharges, "at", where)
    account = Account(tmp_path / "people", lifetime="rho=1")
    options: dict[str, Any] = {"noise": "seeded", "seed": 1, "warm": False}
    session = dpb_gym.serve(LateCharges, "rho=0.5", PRICES, account=account, **options)
    first, _ = session.decide([0.3], user=7)
    session.observe(first, True)
    if where == "never":
        session.decide([0.3], user=7)
        assert session.decisions == 2 and account.spent(7) == 0.01
        return
    for _ in range(2):
        with pytest.raises(AgentError, match="after the session began"):
            session.decide([0.3], user=7)
    assert session.decisions == 1
    with pytest.raises(CheckpointError, match="not the one that the account"):
        dpb_gym.Session.restored(
            session.snapshot(), session.continuation(), "a snapshot", account=account
        )
    alone = dpb_gym.serve(LateCharges, "rho=0.5", PRICES, **options)
    for _ in range(2):
        alone.observe(alone.decide([0.3])[0], True)
    alone.decide([0.3])
    assert alone.guarantee is not None and alone.guarantee.rho == pytest.approx(0.41)


class LateDisclosure(LateCharges):
    def cheat(self) -> None:
        self.curator.disclose("raw rewards")


def test_an_agent_that_discloses_makes_no_decision_with_an_account(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LateDisclosure, "at", "observe")
    account = Account(tmp_path / "people", lifetime="rho=1")
    session = dpb_gym.serve(
        LateDisclosure, "rho=0.5", PRICES, account=account, noise="seeded", seed=1, warm=False
    )
    first, _ = session.decide([0.3], user=7)
    session.observe(first, True)
    for _ in range(2):
        with pytest.raises(AgentError, match="disclosed data, after the session began"):
            session.decide([0.3], user=7)
    assert session.decisions == 1


def test_an_account_needs_users_a_budget_and_an_agent_that_can_skip(tmp_path: Any) -> None:
    session = priced(tmp_path, "people")
    with pytest.raises(ParameterError, match="user must be"):
        session.decide([0.5])
    account = session.account
    with pytest.raises(AgentError, match="needs every response"):
        dpb_gym.serve("punctual", "rho=1", PRICES, account=account)
    with pytest.raises(AgentError, match="no budget"):
        dpb_gym.serve("one-pass-pricing", None, PRICES, account=account)
    with pytest.raises(BudgetError, match="does not follow"):
        dpb_gym.serve("one-pass-linear", "rho=1", SHOP, noise="seeded", account=account)


class Failing(Notebook):
    """A `Notebook` that fails on the response to its second decision."""

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        super().observe(context, action, feedback)
        if context.features[0, 0, 0] == 2.0:
            raise ZeroDivisionError("of the agent")


def test_a_response_that_the_agent_fails_on_is_named_and_never_given_again() -> None:
    session = dpb_gym.serve(Failing, None, SHOP, warm=False)
    for number in (1.0, 2.0):
        session.observe(session.decide(offer(number))[0], 0.5)
    with pytest.raises(
        AgentError, match=r"failed on the response to decision 2, .* ZeroDivisionErr"
    ):
        session.decide(offer(3.0))
    assert session.lost == (2,) and session.decisions == 2
    decision, _ = session.decide(offer(4.0))
    assert decision == 3 and session.lost == (2,)
    seen = [row[1] for row in session.agent.told if isinstance(row, tuple)]  # type: ignore[attr-defined]
    assert seen == [1.0, 2.0], "once each, because a sum may hold it already"


def test_features_outside_the_declared_bounds_are_reported() -> None:
    session = dpb_gym.serve("greedy-pricing", None, "DPB/Pricing-v0", warm=False)
    number, _ = session.decide([1.0, -1.0])
    assert session.disclosure(number)["features_outside_bounds"] is False
    session.observe(number, 1)
    with pytest.warns(RuntimeWarning, match="decision 2: features exceed the declared bound 1 "):
        number, price = session.decide([7.0, 0.0])
    told = session.disclosure(number)
    assert told["features_outside_bounds"] and told["action"] == price
    assert (told["decision"], told["agent"], told["guarantee"]) == (2, "greedy-pricing", None)
    with pytest.raises(ParameterError, match="decision 9 was never made"):
        session.disclosure(9)


def test_prices_of_two_customers_differ_by_at_most_the_limit(tmp_path: Any) -> None:
    limit: dict[str, Any] = {"list_price": 0.45, "max_spread": 0.1, "warm": False}
    limit |= {"noise": "seeded", "seed": 3}
    session = dpb_gym.serve("one-pass-pricing", "rho=5", "DPB/Pricing-v0", **limit)
    free = dpb_gym.serve("one-pass-pricing", "rho=5", "DPB/Pricing-v0", **limit | dict.fromkeys(
        ("list_price", "max_spread")))  # fmt: skip
    prices: dict[Any, list[float]] = {session: [], free: []}
    rng = np.random.default_rng(0)
    for t in range(300):
        for one, charged in prices.items():
            number, price = one.decide([0.3 * (t % 3), -0.2])
            charged.append(price)
            if one is session and t == 0:
                told = one.disclosure(number)
            one.observe(number, rng.random() < 1.0 - price)
    ratios = {one: max(charged) / min(charged) for one, charged in prices.items()}
    assert ratios[session] <= 1.1 + 1e-9 and ratios[free] > 1.5
    assert told["price_band"] == pytest.approx((0.45 / 1.1**0.5, 0.45 * 1.1**0.5))
    session.save(tmp_path / "session")
    again = dpb_gym.Session.load(tmp_path / "session")
    low, high = told["price_band"]
    assert all(low <= again.decide([0.0, 0.0])[1] <= high for _ in range(40))


def test_a_device_has_the_limit_of_prices() -> None:
    session = dpb_gym.serve(
        "one-pass-pricing", "rho=1@local", "DPB/Pricing-v0", noise="seeded", warm=False,
        list_price=0.4, max_spread=0.0,
    )  # fmt: skip
    device = session.device(simulation=True)
    assert device.decide([0.0, 0.0]) == pytest.approx(0.4)
    session.receive(device.message(1))


@pytest.mark.parametrize(
    ("problem", "given"),
    [
        ("DPB/Pricing-v0", {"max_spread": 0.1}),
        ("DPB/Pricing-v0", {"list_price": 0.1}),
        ("DPB/Recommendation-v0", {"list_price": 0.1, "max_spread": 0.1}),
        ("DPB/Pricing-v0", {"list_price": 0.1, "max_spread": -0.1}),
        ("DPB/Pricing-v0", {"list_price": 99.0, "max_spread": 0.1}),
    ],
)
def test_an_incomplete_limit_of_prices_is_refused(problem: str, given: Any) -> None:
    agent = "one-pass-pricing" if "Pricing" in problem else "one-pass-linear"
    with pytest.raises(ParameterError, match=r"list_price|max_spread"):
        dpb_gym.serve(agent, "rho=1", problem, noise="seeded", **given)


def test_equal_revenues_need_not_be_given():
    problem = dpb_gym.make_problem("DPB/Assortment-v0", n_items=6, capacity=2, dim=2, horizon=9)
    assert problem.info.equal_revenues
    features = np.random.default_rng(0).uniform(-0.5, 0.5, (6, 2))
    slates = []
    for given in ({}, {"revenues": np.ones(6)}):
        session = dpb_gym.serve("greedy-mnl", None, problem, seed=1, warm=False)
        slates.append(list(session.decide(features, **given)[1]))
    assert slates[0] == slates[1]


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_session_is_not_copied_in_memory(copied):
    """A shallow copy would share the agent, and count rounds of its own."""
    session = dpb_gym.serve(
        "one-pass-pricing", "rho=1", "DPB/Pricing-v0", noise="seeded", seed=1, warm=False
    )
    with pytest.raises(AgentError, match="a session cannot be copied: it goes on once"):
        copied(session)
    decision, price = session.decide([0.3, 0.8])
    session.observe(decision, price < 0.5)
