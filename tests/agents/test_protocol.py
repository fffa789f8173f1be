"""The agent protocol and the registry."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import dpb_gym
from dpb_gym.errors import AgentError, ParameterError, UnknownNameError
from dpb_gym.problems.base import Feedback
from dpb_gym.registry import agent_spec, agent_specs, check_supported, make_agent
from dpb_gym.streams import AgentStreams


@pytest.fixture(autouse=True)
def clean_registry(monkeypatch):
    from dpb_gym import registry

    agent_specs()
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))


def begin(agent, env_id="DPB/Recommendation-v0", seeds=(0, 1), **kwargs):
    problem = dpb_gym.make_problem(env_id, horizon=20, **kwargs)
    agent.set_up(problem.info, AgentStreams(seeds))
    return problem, problem.instance(seeds)


def test_specs_can_be_pickled():
    for name, spec in agent_specs().items():
        if "<locals>" in spec.entry_point:  # of another test
            continue
        again = pickle.loads(pickle.dumps(spec))
        assert again == spec and again.name == name
        assert again.maker is spec.maker
        assert spec.summary, f"{name} has no docstring"


def test_a_parameter_at_its_default_keeps_the_random_numbers():
    plain = agent_spec("lin-ucb")
    same, other = (agent_spec("lin-ucb", alpha=x) for x in (plain.defaults["alpha"], 7.5))
    keys = [spec.streams([1], None).configuration for spec in (plain, same, other)]
    assert keys[0] == keys[1] != keys[2]


def test_parameters_are_checked():
    assert agent_spec("lin-ucb", alpha=0.5).params["alpha"] == 0.5
    with pytest.raises(ParameterError, match=r"unexpected keyword argument 'alhpa'.*alpha"):
        make_agent("lin-ucb", alhpa=0.5)


def test_unknown_agents_get_close_matches():
    with pytest.raises(UnknownNameError, match="did you mean 'lin-ucb'"):
        make_agent("linucb")
    with pytest.raises(KeyError):
        make_agent("linucb")


def test_support_and_budget_are_checked():
    info = dpb_gym.make_problem("DPB/Pricing-v0").info
    with pytest.raises(AgentError, match="supports recommendation, not pricing"):
        check_supported(agent_spec("lin-ucb"), info, False)
    info = dpb_gym.make_problem("DPB/Recommendation-v0").info
    with pytest.raises(AgentError, match="takes no budget"):
        check_supported(agent_spec("lin-ucb"), info, True)
    with pytest.raises(AgentError, match="needs a budget"):
        check_supported(agent_spec("adaprivate-ts"), info, False)
    check_supported(agent_spec("adaprivate-ts"), info, True)


@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("My_Agent", {"supports": ["pricing"]}),
        ("my agent", {"supports": ["pricing"]}),
        ("", {"supports": ["pricing"]}),
        ("fine", {"supports": ["prices"]}),
        ("fine", {"supports": []}),
        ("fine", {"supports": ["pricing"], "budget": "maybe"}),
    ],
)
def test_bad_registrations(name, kwargs):
    with pytest.raises(AgentError):
        dpb_gym.register_agent(name, **kwargs)(type("X", (dpb_gym.SingleAgent,), {}))


@pytest.mark.parametrize("name", [3, "", "x/y", "a b", "one_pass", "Upper", "-a", "a\n"])
def test_agent_names_are_valid_in_files_and_commands(name):
    with pytest.raises(AgentError, match="lower-case and hyphenated"):
        dpb_gym.register_agent(name, supports=["pricing"])


def test_what_an_agent_protects_is_a_pair():
    with pytest.raises(AgentError, match=r"protects=\('central', 'reward'\)"):
        dpb_gym.register_agent("a", supports=["pricing"], protects="reward")


def test_only_agents_register_and_names_are_unique():
    with pytest.raises(AgentError, match="must derive"):
        dpb_gym.register_agent("not-an-agent", supports=["pricing"])(dict)
    with pytest.raises(AgentError, match="already registered"):
        dpb_gym.register_agent("random", supports=["pricing"])(
            type("Another", (dpb_gym.SingleAgent,), {})
        )


class Echo(dpb_gym.SingleAgent):
    """Agent that records its observations."""

    def __init__(self, arm=0):
        self.arm = arm

    def begin(self):
        self.seen = []

    def act(self, context):
        return self.arm

    def observe(self, context, action, feedback):
        self.seen.append((context.features.copy(), action, feedback))


def test_a_single_agent_is_batched():
    dpb_gym.register_agent("echo", supports=["recommendation"])(Echo)
    agent = make_agent("echo", arm=2)
    _, instance = begin(agent)
    context = instance.context()
    action = agent.act(context)
    assert action.tolist() == [2, 2]
    outcome = instance.respond(action)
    agent.observe(context, action, outcome.feedback)
    for i, copy in enumerate(agent.copies):
        features, arm, feedback = copy.seen[0]
        np.testing.assert_array_equal(features, context.features[i])
        assert arm == 2 and feedback.reward == outcome.feedback.reward[i]
        assert feedback.choice is None
    assert agent.copies[0].rng is not agent.copies[1].rng


class Long(dpb_gym.SingleAgent):
    """Add directions of length 3."""

    def begin(self):
        self.sums = self.curator.running_sum(self.problem.dim, reward=(0.0, 1.0))

    def act(self, context):
        return int((context.features @ self.sums.value).argmax())

    def observe(self, context, action, feedback):
        x = context.features[action].astype(float)
        self.sums.add(feedback.reward, along=3.0 * x / np.linalg.norm(x))


@pytest.mark.slow
def test_an_audit_refuses_long_directions_that_a_run_clips():
    """Of agents that protect contexts, for which an error in a run would depend on them."""
    options = {"supports": ["recommendation"], "protects": ("joint", "user-round")}
    dpb_gym.register_agent("long", **options)(Long)
    dpb_gym.evaluate("DPB/Recommendation-v0", {"m": ("long", "rho=1")}, horizon=9, replicates=2)
    with pytest.raises(AgentError, match="record 1 of replicate 0 has length 3; at most 1"):
        dpb_gym.audit("long", "rho=1", runs=50, horizon=8)


def test_single_agents_do_not_observe_unobserved_rounds():
    dpb_gym.register_agent("echo", supports=["recommendation"])(Echo)
    agent = make_agent("echo")
    _, instance = begin(agent)
    context = instance.context()
    action = agent.act(context)
    agent.observe(context, action, Feedback(np.zeros(2), observed=np.array([True, False])))
    assert [len(copy.seen) for copy in agent.copies] == [1, 0]


def test_short_slates_are_padded_and_bad_ones_named():
    class Slates(dpb_gym.SingleAgent):
        """Offers a fixed list."""

        slate = (3, 1)

        def act(self, context):
            return list(self.slate)

    dpb_gym.register_agent("slates", supports=["assortment"])(Slates)
    agent = make_agent("slates")
    _, instance = begin(agent, "DPB/Assortment-v0", n_items=6, capacity=4)
    assert agent.act(instance.context()).tolist() == [[3, 1, -1, -1]] * 2
    for bad in ((0, 1, 2, 3, 4), (0.5,), ("a",)):
        Slates.slate = bad
        with pytest.raises(AgentError, match="at most 4"):
            agent.act(instance.context())


def test_begin_resets_the_state():
    dpb_gym.register_agent("echo", supports=["recommendation"])(Echo)
    agent = make_agent("echo")
    begin(agent)
    first = agent.copies
    begin(agent, seeds=(5,))
    assert len(agent.copies) == 1 and agent.copies[0] not in first


class Summing(dpb_gym.SingleAgent):
    """Sums features, where it observes anything."""

    protects = ("joint", "user-round")

    def begin(self):
        self.sums = self.curator.batch_sum(self.problem.dim, clip=1.0)

    def act(self, context):
        return 0

    def observe(self, context, action, feedback):
        self.sums.add(context.features[0])
        self.sums.release()


@pytest.mark.slow
def test_single_agents_cannot_protect_which_rounds_are_observed():
    """Its releases would reveal these rounds, in which it is not called."""
    replay = {"env_kwargs": {"dim": 2, "protocol": "replay"}, "horizon": 20, "replicates": 2}
    with pytest.raises(AgentError, match="register it with partial_feedback=False"):
        dpb_gym.evaluate(
            "DPB/MovieLensReplay-v0", {"a": (Summing, "rho=1")}, progress=False, **replay
        )
    dpb_gym.evaluate("DPB/MovieLensReplay-v0", {"a": Summing}, progress=False, **replay)
    replay["env_kwargs"]["protocol"] = "matrix"
    dpb_gym.evaluate("DPB/MovieLensReplay-v0", {"a": (Summing, "rho=1")}, progress=False, **replay)


def test_a_private_agent_without_protects_is_told_so():
    with pytest.raises(AgentError, match=r"register it with what it protects, e.g. protects=\("):
        dpb_gym.evaluate("DPB/Pricing-v0", {"a": ("random", "rho=1")}, horizon=5, replicates=2)


@pytest.mark.parametrize("budget", ["rho=1", None])
@pytest.mark.parametrize("limit", [None, 2])
def test_a_second_record_in_a_round_is_told_in_that_round(limit, budget):
    """A limit is of a user's rounds, and a horizon of all rounds."""

    class Twice(dpb_gym.SingleAgent):
        protects = ("central", "user-rewards" if limit else "reward")

        def begin(self):
            options = {"limit": limit} if limit else {}
            self.sums = self.curator.running_sum(
                2, clip=1.0, horizon=200 if limit else None, **options
            )

        def act(self, context):
            return 0

        def observe(self, context, action, feedback):
            for _ in range(2 if context.t >= 3 else 1):
                self.sums.add([0.1, 0.2], **({"users": [0]} if limit else {}))

    def play():
        dpb_gym.evaluate("DPB/Recommendation-v0", {"a": (Twice, budget)}, horizon=9, replicates=2)

    with pytest.raises(AgentError, match=r"round 3 .*2 records in one round"):
        play()


@pytest.mark.parametrize("budget", ["rho=1", None])
def test_a_second_record_of_a_batched_agent_is_told_in_that_round(budget):
    class Twice(dpb_gym.Agent):
        protects = ("central", "reward")

        def begin(self, problem, streams, curator):
            self.sums = curator.running_sum(2, clip=1.0)

        def act(self, context):
            return np.zeros(len(context.features), np.int64)

        def observe(self, context, action, feedback):
            for _ in range(2 if context.t == 3 else context.t > 3):
                self.sums.add(np.full((len(action), 2), 0.1))

    with pytest.raises(AgentError, match=r"round 3\b.*2 records in one round"):
        dpb_gym.evaluate("DPB/Recommendation-v0", {"a": (Twice, budget)}, horizon=9, replicates=2)
