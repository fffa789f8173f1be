"""Devices: what they are built from, what they draw, and what they refuse."""

from __future__ import annotations

import copy
import json
import pickle
import re
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpb_gym
from dpb_gym import devices
from dpb_gym.devices import Device
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.portable import fill_normals
from dpb_gym.privacy import CountingShuffler, SimulatedAggregator
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.privacy.shuffler import HEADER
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.streams import BlockDraws, fill_uniforms

AGENTS = {
    "one-pass-pricing": "DPB/Pricing-v0",
    "one-pass-mnl": "DPB/Assortment-v0",
    "one-pass-linear-joint": "DPB/Recommendation-v0",
}
TRUSTS = ("local", "aggregator", "shuffler")
# exact in single precision, so that copies of it are found in every array
MARK = float(np.float32(0.48213))


def served(agent, budget, noise="seeded", horizon=60, **options):
    problem = dpb_gym.make_problem(AGENTS[agent], horizon=horizon)
    options = {"noise": noise, "seed": 1, "warm": False, **options}
    return dpb_gym.serve(agent, budget, problem, **options)


def sums_of(agent):
    return behind(agent.curator.releasers[0])


def features(session, rng):
    info = session.problem
    shape = {"pricing": (info.dim - 1,), "assortment": (info.n_items, info.dim)}
    return rng.random(shape.get(info.kind, (info.n_candidates, info.dim))) / np.sqrt(info.dim)


def response_to(session, action, rng):
    if session.problem.kind == "pricing":
        return int(rng.random() < 1.0 - action)
    if session.problem.kind == "assortment":
        return rng.choice([None, *action])
    return float(rng.random())


class Shop:
    """A split session with its customers; records what the releaser publishes."""

    def __init__(self, session, seed=0):
        self.session, self.rng = session, np.random.default_rng(seed)
        self.sums, self.shuffler = sums_of(session.agent), CountingShuffler()
        self.published = []

    def one(self, mark=None):
        """Let one customer come; return the device."""
        device = self.session.device(simulation=True)
        x = features(self.session, self.rng)
        if mark is not None:
            x[...] = mark
        action = device.decide(x)
        message = device.message(response_to(self.session, action, self.rng))
        before = self.sums.releases
        if "bits" not in message:
            self.session.receive(message)
        elif message["bits"]:
            batch = self.shuffler.submit(message)
            if batch is not None:
                self.session.receive_batch(batch)
        if self.sums.releases > before:
            self.published.append(self.sums.value[0].tolist())
        return device


def numbers_in(value, seen=None):
    """Return all numbers and numeric arrays that an object holds, as flat arrays."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        return [value.astype(float).ravel()]
    if isinstance(value, (int, float)):
        return [np.array([float(value)])]
    parts = []
    if isinstance(value, dict):
        parts = list(value.values())
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = list(value)
    elif not type(value).__module__.startswith(("dpb_gym", "dpb_agents")):
        return []
    slots = {s for c in type(value).__mro__ for s in getattr(c, "__slots__", ())}
    parts += [getattr(value, name) for name in slots if hasattr(value, name)]
    parts += list(getattr(value, "__dict__", {}).values())
    parts += [behind(value)] if behind(value) is not value else []
    return [array for part in parts for array in numbers_in(part, seen)]


@pytest.mark.slow
@pytest.mark.parametrize("noise", ["seeded", "system"])
@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_device_is_configuration_and_releases(agent, trust, noise):
    """Every number of `public` is named here, or was a value of the releaser."""
    if noise == "system":
        pytest.importorskip("opendp")
    budget = f"rho=40@{trust}"
    band = {"list_price": 0.5, "max_spread": 0.5} if agent == "one-pass-pricing" else {}
    shop = Shop(served(agent, budget, noise, **band))
    for _ in range(40):
        shop.one()
    device = shop.session.device(simulation=True)
    public, sums = copy.deepcopy(device.public), shop.sums
    ends = sums.schedule.ends.tolist()
    assert len(shop.published) == sums.releases > 0
    assert public.pop("releases") == [
        {"round": end, "devices": int(size), "sum": values}
        for end, size, values in zip(ends, sums.schedule.sizes, shop.published)
    ]
    assert public.pop("rounds") == sums.rounds
    assert public.pop("decision") == (None if trust == "shuffler" else 41)
    problem = public.pop("problem")
    assert ProblemInfo.from_dict(problem) == shop.session.problem
    assert public == {
        "format": devices.FORMAT,
        "agent": agent,
        "parameters": {},
        "budget": budget,
        "noise": noise,
        "price_band": list(shop.session._state["band"]) if band else None,
    }
    # a pickle has nothing else, and neither has the object before it decides
    again = pickle.loads(pickle.dumps(device))
    assert again.public == device.public and device.__reduce__()[1] == (device.public,)
    assert set(vars(device)) == {
        "public", "decision", "_lock", "_process", "_round", "_finished"
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("agent", AGENTS)
def test_no_context_of_a_customer_leaves_its_device(agent, trust, monkeypatch):
    """Looks for a marked number in all of the session, and in the next device."""
    # memory that is not initialised may hold what other arrays of this process had
    monkeypatch.setattr(np, "empty", np.zeros)
    monkeypatch.setattr(np, "empty_like", np.zeros_like)
    devices._replicas.clear()
    shop = Shop(served(agent, f"rho=40@{trust}"))
    own = shop.one(MARK)
    arrays = numbers_in(own._round)
    assert any(np.isin(MARK, array) for array in arrays), "the search finds it on the device"
    for _ in range(20):
        shop.one(MARK)
    following = shop.session.device(simulation=True)
    following._agent  # noqa: B018 (makes the agent)
    everything = numbers_in(vars(shop.session)) + numbers_in(vars(following))
    everything += numbers_in(devices._replicas)
    assert len(everything) > 100
    assert not any(np.isin(MARK, array) for array in everything)
    assert not sums_of(following._agent)._own.any()


@pytest.mark.slow
@pytest.mark.parametrize("trust", TRUSTS)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_device_decides_as_the_server_would(agent, trust):
    """Same state and, with the same exploring draws, the same action at every round."""
    shop = Shop(served(agent, f"rho=40@{trust}", horizon=120))
    kinds = set()
    for t in range(45):
        server = shop.session.agent
        device = shop.session.device(simulation=True)
        own = device._agent
        for mine, theirs in zip(own.state, server.state, strict=True):
            assert np.array_equal(mine, theirs)
        assert own.rounds == server.rounds and np.array_equal(own._records, server._records)
        for one in (server, own):
            fill = fill_uniforms if one.plan.law == "uniforms" else fill_normals
            if one.plan.dim:
                one._numbers = BlockDraws([np.random.default_rng(t)], (one.plan.dim,), fill)
        x = features(shop.session, shop.rng)
        action = device.decide(x)
        context, decided = device._round
        assert np.array_equal(decided, server.act(context))
        kinds.add(str(action))
        shop.one()
    assert shop.sums.releases > 1 and len(kinds) > 1


def test_devices_of_one_message_draw_their_own_numbers():
    """Exploring draws and messages are each of the device's own generator."""
    for noise in ("seeded", "system"):
        if noise == "system":
            pytest.importorskip("opendp")
        shop = Shop(served("one-pass-pricing", "rho=40@local", noise))
        for _ in range(40):
            shop.one()
        kept = json.dumps(shop.session.device(simulation=True).public)
        draws, messages = set(), []
        for _ in range(4):
            device = Device(json.loads(kept))
            draws.add(tuple(device._agent._numbers.take(1).ravel()))
            device.decide([0.1, 0.2])
            messages.append(device.message(1)["values"])
        assert len(draws) == 4
        for i in range(4):
            for j in range(i):
                assert (np.array(messages[i]) != np.array(messages[j])).all()


@pytest.mark.parametrize("budget", ["rho=1@local", "eps=2,delta=1e-6@local"])
@pytest.mark.parametrize("noise", ["seeded", "system"])
def test_the_server_cannot_replay_a_message(budget, noise):
    """It keeps what it sends, and tries both responses and the noise of its own copy."""
    if noise == "system":
        pytest.importorskip("opendp")
    session = served("one-pass-pricing", budget, noise)
    kept = pickle.dumps(session.device(simulation=True))
    phone = pickle.loads(kept)
    phone.decide([0.3711, 0.8222])
    message, true = np.array(phone.message(1)["values"]), sums_of(phone._agent)._own[0]
    twin = sums_of(pickle.loads(kept)._agent)
    noise_of_twin = twin._mechanism.of(np.zeros((1, len(true))), twin._noise)[0]
    assert np.abs(message - noise_of_twin)[: len(true)].max() > 0.05
    for response in (0, 1):
        other = pickle.loads(kept)
        other.decide([0.3711, 0.8222])
        assert not np.allclose(other.message(response)["values"], message)


def test_an_earlier_device_has_the_earlier_policy():
    """Replicas are cached: neither order nor cache matters."""
    shop, kept = Shop(served("one-pass-pricing", "rho=40@local")), []
    for _ in range(30):
        shop.one()
        device = shop.session.device(simulation=True)
        kept.append((device.public, shop.session.agent.state.theta.copy()))
    rng = np.random.default_rng(3)
    for k in rng.permutation(len(kept)):
        if k % 3 == 0:
            devices._replicas.clear()
        public, theta = kept[k]
        own = Device(public)._agent
        assert np.array_equal(own.state.theta, theta) and own.rounds == k + 1
    assert len(devices._replicas) <= devices.MOST_REPLICAS
    other = copy.deepcopy(kept[-1][0])
    other["releases"][0]["sum"][-1] += 1.0
    assert not np.array_equal(Device(other)._agent.state.theta, kept[-1][1])
    assert np.array_equal(Device(kept[-1][0])._agent.state.theta, kept[-1][1])


def test_a_process_repeats_new_messages_only(monkeypatch):
    """Building a device takes one step per message; the next one, those since then."""
    shop, steps = Shop(served("one-pass-pricing", "rho=40@local")), []
    repeated = devices.message_round
    monkeypatch.setattr(devices, "message_round", lambda *a: (steps.append(a), repeated(*a))[1])
    for _ in range(20):
        shop.one()
    steps.clear()
    devices._replicas.clear()
    for expected in (20, 0):
        Device(shop.session.device(simulation=True).public)._agent  # noqa: B018 (makes it)
        assert len(steps) == expected
        steps.clear()
    shop.one()
    Device(shop.session.device(simulation=True).public)._agent  # noqa: B018 (makes it)
    assert len(steps) == 1


@pytest.mark.slow
def test_lost_devices_of_an_aggregator_are_counted_on_the_device():
    """The noise of a batch without some devices is known to the device too."""
    session = served("one-pass-pricing", "rho=40@aggregator", horizon=300, window=40)
    sums = sums_of(session.agent)
    session.aggregate_with(SimulatedAggregator((0,)))
    shop = Shop(session)
    with pytest.warns(RuntimeWarning, match="nothing of it was released"):
        for _ in range(250):
            shop.one()
    devices_ = [release["devices"] for release in sums.past]
    sizes = sums.schedule.sizes.tolist()
    assert devices_ == [size - 1 for size in sizes[: len(devices_)]]
    own = session.device(simulation=True)._agent
    assert sums_of(own).schedule.scales.tolist() == sums.schedule.scales.tolist()
    assert np.array_equal(own.state.theta, session.agent.state.theta)


def test_the_page_lists_the_fields_of_a_device_and_of_its_messages():
    text = (Path(__file__).parents[2] / "docs" / "trust.md").read_text(encoding="utf-8")
    table = text.split("| field | value |")[1].split("\n\n")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines()[2:]]
    named = [field for name, _ in rows for field in re.findall("`([a-z_]+)`", name)]
    assert sorted(named) == sorted(devices.FIELDS)
    (release,) = (value for name, value in rows if "releases" in name)
    assert set(re.findall("`([a-z]+)`", release)) == set(devices.RELEASE)
    said = text.split("A device's message has ")[1].split("It has no decision number")[0]
    assert set(re.findall("`([a-z_]+)`", said)) == {*HEADER, "bits", "once"}
    said = text.split("A message for `@local` or `@aggregator` has ")[1].split(".")[0]
    named = set(re.findall("`([a-z]+)`", said))
    for budget, fields in (
        ("rho=1@aggregator", named),
        ("rho=1@local", named - {"modulus"}),
    ):
        device = served("one-pass-pricing", budget).device(simulation=True)
        device.decide([0.1, 0.2])
        assert set(device.message(1)) == fields


class TestUse:
    def device(self, budget="rho=1@local"):
        return served("one-pass-pricing", budget).device(simulation=True)

    def test_it_decides_once_and_makes_one_message(self):
        device = self.device()
        with pytest.raises(ParameterError, match="not decided"):
            device.message(1)
        with pytest.raises(ParameterError, match="features"):
            device.decide([0.1])
        device.decide([0.1, 0.2])
        with pytest.raises(AgentError, match="decided already"):
            device.decide([0.1, 0.2])
        for wrong in (2, None, "yes"):
            with pytest.raises(ParameterError, match="demand"):
                device.message(wrong)
        device.message(1)
        with pytest.raises(ParameterError, match="already"):
            device.message(1)

    def test_it_stays_where_its_customer_is(self, monkeypatch):
        device = self.device()
        copy.deepcopy(device).decide([0.1, 0.2])
        with monkeypatch.context() as child:
            child.setattr("os.getpid", lambda: -5)
            with pytest.raises(AgentError, match="parent process goes on"):
                device.decide([0.1, 0.2])
            Device(device.public).decide([0.1, 0.2])
        device.decide([0.1, 0.2])
        for move in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(AgentError, match="cannot move"):
                move(device)
        monkeypatch.setattr("os.getpid", lambda: -5)
        with pytest.raises(AgentError, match="fork"):
            device.message(1)

    def test_two_threads_make_one_message(self):
        device, made, refused = self.device("rho=1@local"), [], []
        device.decide([0.1, 0.2])
        start = threading.Barrier(4)

        def send():
            start.wait()
            try:
                made.append(device.message(1))
            except ParameterError as error:
                refused.append(error)

        threads = [threading.Thread(target=send) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert (len(made), len(refused)) == (1, 3)

    def test_it_states_the_guarantee_that_it_applies(self):
        public = self.device().public
        assert Device(public).guarantee.rho == pytest.approx(1.0)
        weaker = Device({**public, "budget": "rho=900@local"})
        assert weaker.guarantee.rho == pytest.approx(900.0)
        assert sums_of(weaker._agent).sigma == pytest.approx(np.sqrt(1 / 1800))

    def test_arrays_among_the_parameters_arrive(self):
        mean = np.array([0.1, -0.2, 0.3])
        session = served("one-pass-pricing", "rho=1@local", prior_mean=mean)
        device = Device(json.loads(json.dumps(session.device(simulation=True).public)))
        # the first coefficient is that of the level
        assert device._agent.state.theta.tolist() == [[0.0, *mean.tolist()]]

    def test_infinite_bounds_are_strict_json(self):
        problem = dpb_gym.make_problem("DPB/Pricing-v0", demand="gaussian", horizon=60)
        session = dpb_gym.serve(
            "one-pass-pricing", "rho=1@local", problem, noise="seeded", warm=False
        )
        public = session.device(simulation=True).public
        assert json.loads(json.dumps(public, allow_nan=False)) == public
        device = Device(public)
        device.decide([0.1, 0.2])
        session.receive(device.message(0.7))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)


class TestForgedMessages:
    @pytest.fixture(scope="class")
    @classmethod
    def public(cls):
        shop = Shop(served("one-pass-pricing", "rho=40@local"))
        for _ in range(12):
            shop.one()
        return shop.session.device(simulation=True).public

    def tried(self, public):
        """Return the agent of a device, or None if it was refused by a documented error."""
        try:
            device = Device(public)
            device.decide([0.1, 0.2])
        except ParameterError:
            return None
        return device._agent

    @pytest.mark.slow
    @settings(max_examples=60, deadline=None)
    @given(data=st.data(), value=JSON)
    def test_a_changed_field_is_refused_or_another_device(self, public, data, value):
        path = data.draw(st.sampled_from(sorted(devices.FIELDS)))
        inner = data.draw(st.sampled_from(["", "problem", "releases"]))
        forged = copy.deepcopy(public)
        if inner == "problem":
            forged["problem"][data.draw(st.sampled_from(sorted(forged["problem"])))] = value
        elif inner == "releases":
            place = data.draw(st.integers(0, len(forged["releases"]) - 1))
            name = data.draw(st.sampled_from(devices.RELEASE))
            forged["releases"][place][name] = value
        else:
            forged[path] = value
        self.tried(forged)
        assert self.tried(public) is not None

    @settings(max_examples=40, deadline=None)
    @given(value=JSON)
    def test_other_values_are_refused(self, value):
        assert self.tried(value) is None

    @pytest.mark.parametrize(
        "change",
        [
            {"format": "dpb-gym device, version 0"},
            {"seed": 3},
            {"agent": "no-such-agent"},
            {"agent": "ucb"},
            {"budget": "rho=1"},
            {"budget": "none"},
            {"budget": "rho=1@aggregator"},
            {"noise": "quiet"},
            {"parameters": {"clipp": 3.0}},
            {"parameters": {"clip": -3.0}},
            {"problem": {}},
            {"price_band": [0.1]},
            {"price_band": [0.5, 0.4]},
            {"price_band": [2.0, 3.0]},
            {"decision": 0},
            {"rounds": 10**9},
            {"rounds": 3},
            {"releases": []},
        ],
    )
    def test_what_cannot_be_is_refused(self, public, change):
        assert self.tried({**public, **change}) is None

    def test_releases_follow_the_plan_of_the_budget(self, public):
        for name, wrong in (("round", 7), ("devices", 99), ("sum", [0.0]), ("sum", None)):
            releases = copy.deepcopy(public["releases"])
            releases[1][name] = wrong
            assert self.tried({**public, "releases": releases}) is None
        for wrong in (float("nan"), float("inf")):
            releases = copy.deepcopy(public["releases"])
            releases[0]["sum"][0] = wrong
            assert self.tried({**public, "releases": releases}) is None
