"""Wrapped environments: what leaves is the message, and single equals vector."""

from __future__ import annotations

import itertools
import math
import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from dpb_gym import feedback as f
from dpb_gym import make_problem
from dpb_gym.errors import (
    ActionError,
    BudgetError,
    BudgetExceeded,
    HorizonExceeded,
    ParameterError,
)
from dpb_gym.feedback.layers import ORACLE_KEYS
from dpb_gym.local_privacy import LocalPrivacy
from dpb_gym.privacy import Budget, Composition, Guarantee
from dpb_gym.problems.kinds import kind_of
from dpb_gym.streams import AgentStreams

from .conftest import CASES, HORIZON, same, single, vector


def lane(value, i):
    if isinstance(value, dict):
        return {k: v[i] for k, v in value.items()}
    return value[i]


def actions_for(env, rounds, seed=0):
    env.action_space.seed(seed)
    return [env.action_space.sample() for _ in range(rounds)]


def test_gymnasiums_checker_passes(case):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # it says of every wrapped environment that it is wrapped
        warnings.filterwarnings("ignore", message=".*is different from the unwrapped version.*")
        warnings.filterwarnings("ignore", message=".*symmetric and normalized space.*")
        check_env(single(case))


@pytest.mark.parametrize("mode", ["NextStep", "SameStep", "Disabled"])
def test_every_lane_equals_a_single_environment(case, mode):
    """Three episodes, bit for bit: observations, rewards, infos and the harness's truth."""
    lanes, seed = 3, 11
    vec = vector(case, lanes, mode)
    singles = [single(case) for _ in range(lanes)]
    observation, infos = vec.reset(seed=seed)
    shown = [env.reset(seed=seed + i) for i, env in enumerate(singles)]
    assert all(same(lane(observation, i), shown[i][0]) for i in range(lanes))
    ended = np.zeros(lanes, bool)
    for action in actions_for(vec, 3 * HORIZON + 2):
        observation, reward, _, truncated, infos = vec.step(action)
        assert vec.observation_space.contains(observation)
        truth = vec.truth
        for i, env in enumerate(singles):
            if mode == "NextStep" and ended[i]:
                assert same(lane(observation, i), env.reset()[0])
                assert reward[i] == 0.0
                continue
            one = env.step(action[i])
            info, seen = infos, observation
            if mode == "SameStep" and truncated[i]:
                assert same(infos["final_obs"][i], one[0])
                info = infos["final_info"]
            else:
                assert same(lane(seen, i), one[0])
            assert reward[i] == one[1] and truncated[i] == one[3]
            for key, value in one[4].items():
                assert info[f"_{key}"][i] and same(info[key][i], value), key
            extra = {k for k in info if k[0] != "_" and info[f"_{k}"][i]} - one[4].keys()
            assert extra <= {"final_obs", "final_info"}
            assert {k: float(v[i]) for k, v in truth.items()} == {
                k: float(v) for k, v in env.truth.items()
            }
            if mode == "SameStep" and truncated[i]:
                assert same(lane(observation, i), env.reset()[0])
        ended = truncated
        if mode == "Disabled" and truncated.any():
            observation, _ = vec.reset(options={"reset_mask": truncated})
            for i in np.flatnonzero(truncated):
                assert same(lane(observation, i), singles[i].reset()[0])
            ended = np.zeros(lanes, bool)


def test_oracle_values_move_to_the_attribute_truth(case):
    env = single(case)
    env_id, kwargs, _, _ = CASES[case]
    bare = gym.make(env_id, horizon=HORIZON, **kwargs)
    env.reset(seed=3), bare.reset(seed=3)
    assert env.truth == {}
    for action in actions_for(env, HORIZON):
        info = env.step(action)[4]
        _, reward, _, _, known = bare.step(action)
        assert not set(info) & set(ORACLE_KEYS)
        assert all(env.truth[key] == known[key] for key in ORACLE_KEYS)
        if CASES[case][2] != "contexts":
            assert env.truth["reward"] == reward


@pytest.mark.slow
@pytest.mark.parametrize("case", ["choice", "purchase", "demand", "click"])
@pytest.mark.parametrize("debias", [False, True])
def test_all_outputs_are_epsilon_private(case, debias, monkeypatch):
    """Enumerates all messages for every true response of a round: observation, reward and info
    together have likelihood ratios of exactly e^epsilon. Any leak beside them is infinite."""
    base = CASES[case][3]()
    k, epsilon = base.categories, base.epsilon
    wrapped = single(case, debias=debias)
    assert wrapped.guarantee.epsilon(0.0) == epsilon
    problem, options = (
        wrapped.unwrapped.core.problem,
        4 if CASES[case][0] == "DPB/Assortment-v0" else 2,
    )
    action = actions_for(wrapped, 1, seed=4)[0]
    if case in ("choice", "purchase"):
        action = np.array([4, 1, 3])
    outputs = []
    n = 600 if k > 2 else 300  # cells of the uniform number that decides between truth and lie
    cells = list(itertools.product((np.arange(n) + 0.5) / n, (np.arange(k - 1) + 0.5) / (k - 1)))
    for truth in range(options):
        share: dict[str, float] = {}
        for numbers in cells[:: 7 if k > 2 else 1]:
            wrapped.reset(seed=9)
            genuine = problem.respond

            def respond(hidden, round_, action, truth=truth, genuine=genuine):
                feedback, expected = genuine(hidden, round_, action)
                reward = float(truth)
                if feedback.choice is not None:
                    revenues = round_.context.revenues
                    reward = float(revenues[0, action[0, truth - 1]]) if truth else 0.0
                    feedback = feedback._replace(choice=np.array([truth - 1]))
                elif feedback.demand is not None:
                    reward = float(action[0]) * truth
                    feedback = feedback._replace(demand=np.array([float(truth)]))
                return feedback._replace(reward=np.array([reward])), expected

            monkeypatch.setattr(problem, "respond", respond)
            monkeypatch.setattr(wrapped, "_draw", lambda lanes, u=numbers: np.array([u]))
            seen = wrapped.step(action)
            monkeypatch.undo()
            key = repr((seen[0].tobytes(), seen[1], sorted(seen[4].items())))
            share[key] = share.get(key, 0.0) + 1.0
        total = sum(share.values())
        outputs.append({key: count / total for key, count in share.items()})
    assert all(o.keys() == outputs[0].keys() for o in outputs), "an output betrays the truth"
    worst = max(math.log(a[key] / b[key]) for a in outputs for b in outputs for key in outputs[0])
    assert worst == pytest.approx(epsilon, abs=0.05)


def test_noise_streams_are_separate_from_the_environments(case):
    """Another mechanism, and none, leave what the environment draws alone."""
    env_id, kwargs, kind, _ = CASES[case]
    env, bare = single(case), gym.make(env_id, horizon=HORIZON, **kwargs)
    env.reset(seed=5), bare.reset(seed=5)
    for action in actions_for(env, HORIZON):
        seen, plain = env.step(action), bare.step(action)
        if kind != "contexts":
            assert same(seen[0], plain[0])
        assert env.truth["expected_reward"] == plain[4]["expected_reward"]


def test_a_rejected_action_draws_no_noise(case):
    env, twin = single(case), single(case)
    env.reset(seed=1), twin.reset(seed=1)
    bad = {"DPB/Pricing-v0": [7.0]}.get(CASES[case][0], 10**6)
    if "n_prices" in CASES[case][1]:
        bad = 99
    with pytest.raises(ActionError):
        env.step(bad)
    for action in actions_for(env, HORIZON):
        one, other = env.step(action), twin.step(action)
        assert same(one[0], other[0]) and one[1] == other[1] and same(one[4], other[4])
    with pytest.raises(HorizonExceeded):
        env.step(action)


def test_reset_with_the_same_seed_repeats_and_the_next_episode_does_not(case):
    env = single(case)
    actions = actions_for(env, HORIZON)

    def episode(**how):
        first = env.reset(**how)[0]
        return [first, *[env.step(a) for a in actions]]

    first, second, third = episode(seed=2), episode(), episode(seed=2)
    assert repr(first) == repr(third)
    assert repr(first) != repr(second)


def test_layers_have_separate_noise():
    """Two layers on one stream would share their noise, and the composition would be wrong."""
    env = gym.make("DPB/Pricing-v0", horizon=400, dim=2)
    env = f.PrivateResponse(env, f.GaussianResponse(1.0))
    env = f.PrivateContexts(env, f.GaussianContexts(1.0, 1, 1))
    observation, _ = env.reset(seed=0)
    features, responses = [], []
    while True:
        truth = np.clip(env.unwrapped.core.instance.context().features[0, 0], -1, 1)
        features.append(observation[0] - truth)
        observation, _, _, done, info = env.step(np.array([0.5]))
        responses.append(info["demand"] - env.truth["demand"])
        if done:
            break
    assert np.std(features) == pytest.approx(1.0, rel=0.15)
    assert np.std(responses) == pytest.approx(1.0, rel=0.15)
    for shift in (0, 1):
        pair = features[shift:], responses[: len(responses) - shift]
        assert abs(np.corrcoef(*pair)[0, 1]) < 0.2


@pytest.mark.parametrize("order", ["response first", "context first"])
def test_response_and_context_compose(order):
    response, context = f.RandomizedResponse(0.5), f.GaussianContexts(2.0, 1, 2)
    env = gym.make("DPB/Pricing-v0", horizon=5)
    vec = gym.make_vec("DPB/Pricing-v0", num_envs=2, horizon=5)
    both = Composition.of(response.event, context.event)
    for base, wrap, noise in (
        (env, f.PrivateResponse, f.PrivateContexts),
        (vec, f.VectorPrivateResponse, f.VectorPrivateContexts),
    ):
        if order == "response first":
            layered = noise(wrap(base, response), context)
        else:
            layered = wrap(noise(base, context), response)
        expected = Guarantee("local", "user-round", curve=both)
        assert layered.guarantee.epsilon(1e-5) == pytest.approx(expected.epsilon(1e-5))
        assert (layered.guarantee.notion, layered.guarantee.unit) == ("local", "user-round")
        layered.reset(seed=0)
        info = layered.step(layered.action_space.sample())[4]
        assert not set(info) & set(ORACLE_KEYS)
        assert {*ORACLE_KEYS, "reward", "demand"} <= set(layered.truth)


@pytest.mark.parametrize("many", [False, True])
def test_unobserved_rounds_send_noise(many):
    """In rejection replay silence would tell that the logged item is another one: delta = 1."""
    make = vector if many else single
    env = make("statistics-replay", 40) if many else make("statistics-replay")
    seen, silent = [], []
    for seed in range(1 if many else 40):
        env.reset(seed=seed)
        info = env.step(env.action_space.sample() * 0)[4]
        assert "observed" not in info and "_observed" not in info
        rows = np.atleast_1d(env.truth["observed"]).astype(bool)
        for gram, response, was in zip(
            np.reshape(info["gram"], (-1, 3, 3)), np.reshape(info["response"], (-1, 3)), rows
        ):
            (seen if was else silent).append([*gram[np.triu_indices(3)], *response])
    assert len(seen) > 2 and len(silent) > 20
    assert (np.array(silent) != 0).all()
    assert np.std(np.array(silent)[:, 6:]) == pytest.approx(1.0, rel=0.3)


@pytest.mark.parametrize("vector", [False, True])
def test_returns_summed_by_an_inner_wrapper_are_those_of_the_messages(vector):
    made = {"horizon": 5, "dim": 2}
    if vector:
        env = gym.make_vec("DPB/Recommendation-v0", num_envs=2, **made)
        env = gym.wrappers.vector.RecordEpisodeStatistics(env)
        private = f.VectorPrivateResponse(env, f.RandomizedResponse(0.1))
    else:
        env = gym.wrappers.RecordEpisodeStatistics(gym.make("DPB/Recommendation-v0", **made))
        private = f.PrivateResponse(env, f.RandomizedResponse(0.1))
    private.reset(seed=0)
    action = np.zeros(2, int) if vector else 0
    sent, true = 0.0, 0.0
    for _ in range(5):
        _, reward, _, _, info = private.step(action)
        sent, true = sent + reward, true + private.truth["reward"]
    assert np.asarray(info["episode"]["r"]) == pytest.approx(np.asarray(sent))
    assert np.any(sent != true)
    env.reset(seed=0)
    assert "regret" in env.step(action)[-1], "without the wrapper nothing is taken out"


def test_private_contexts_alone_give_no_guarantee():
    env = f.PrivateContexts(gym.make("DPB/Pricing-v0"), f.GaussianContexts(1.0, 1, 2))
    assert not env.guarantee.private


def test_the_last_customer_gets_noise_once():
    """A second noisy copy of the same features would double the cost."""
    for case in ("contexts", "contexts-assortment", "contexts-dict"):
        env = single(case)
        observation, _ = env.reset(seed=0)
        for action in actions_for(env, HORIZON):
            before = observation
            observation, _, _, done, _ = env.step(action)
        assert done and same(before, observation)


def test_wrong_combinations_are_rejected():
    pricing = gym.make("DPB/Pricing-v0")
    assortment = gym.make("DPB/Assortment-v0", n_items=6, capacity=3, revenues="random")
    rec = gym.make("DPB/Recommendation-v0", dim=3)
    rr, budget = f.RandomizedResponse(1.0), Budget.zcdp(1.0)
    with pytest.raises(ParameterError, match="already covers"):
        f.PrivateResponse(f.PrivateResponse(pricing, rr), rr)
    with pytest.raises(ParameterError, match="already covers"):
        f.PrivateStatistics(f.PrivateResponse(rec, rr), f.GaussianStatistics(1.0, 3))
    with pytest.raises(ParameterError, match="already covers"):
        f.CentralCurator(f.PrivateResponse(rec, rr), Budget.zcdp(1.0))
    with pytest.raises(ParameterError, match="unequal revenues"):
        f.PrivateResponse(assortment, rr)
    with pytest.raises(ParameterError, match="4 categories"):
        f.PrivateResponse(assortment, f.RandomizedResponse(1.0, 3))
    with pytest.raises(ParameterError, match="two categories"):
        f.PrivateResponse(pricing, f.RandomizedResponse(1.0, 3))
    with pytest.raises(ParameterError, match="Gaussian or Laplace"):
        f.PrivateResponse(gym.make("DPB/Pricing-v0", demand="gaussian"), rr)
    with pytest.raises(ParameterError, match="dim=3"):
        f.PrivateStatistics(rec, f.GaussianStatistics(1.0, 4))
    with pytest.raises(ParameterError, match="recommendation"):
        f.PrivateStatistics(pricing, f.GaussianStatistics(1.0, 3))
    with pytest.raises(ParameterError, match="recommendation"):
        f.CentralCurator(pricing, Budget.zcdp(1.0))
    replay = gym.make("DPB/MovieLensReplay-v0", dim=3, protocol="replay")
    with pytest.raises(ParameterError, match="logged item"):
        f.PrivateContexts(replay, f.GaussianContexts(1.0, 5, 3))
    with pytest.raises(ParameterError, match="vectors=5, dim=3"):
        f.PrivateContexts(rec, f.GaussianContexts(1.0, 5, 2))
    with pytest.raises(ParameterError, match="dpb-gym"):
        f.PrivateResponse(gym.make("CartPole-v1"), rr)
    with pytest.raises(ParameterError, match="RandomizedResponse"):
        f.PrivateResponse(pricing, f.GaussianContexts(1.0, 1, 2))
    vec = gym.make_vec("DPB/Pricing-v0", num_envs=2)
    vec = gym.make_vec("DPB/Recommendation-v0", num_envs=2, dim=3)
    for one, many in (
        (lambda e: f.PrivateResponse(e, rr), lambda e: f.VectorPrivateResponse(e, rr)),
        (lambda e: f.CentralCurator(e, budget), lambda e: f.VectorCentralCurator(e, budget)),
    ):
        with pytest.raises(ParameterError, match="version of this wrapper"):
            one(vec)
        with pytest.raises(ParameterError, match="version of this wrapper"):
            many(rec)


def test_a_curators_budget_may_be_text():
    rec = gym.make("DPB/Recommendation-v0", dim=3)
    as_text, plain = f.CentralCurator(rec, "rho=1"), f.CentralCurator(rec, Budget.zcdp(1.0))
    assert str(as_text.guarantee) == str(plain.guarantee)
    for nothing in (None, "none"):
        with pytest.raises(BudgetError, match="needs a budget"):
            f.CentralCurator(rec, nothing)


def test_randomized_response_rejects_non_binary_answers():
    env = gym.make("DPB/Recommendation-v0", reward="gaussian", horizon=5)
    env = f.PrivateResponse(env, f.RandomizedResponse(1.0))
    env.reset(seed=0)
    with pytest.raises(ParameterError, match="whole numbers"):
        env.step(0)


def test_spec_contains_the_wrapper():
    env = single("demand", debias=True)
    again = gym.make(env.spec)
    assert isinstance(again, f.PrivateResponse) and again.debias
    env.reset(seed=8), again.reset(seed=8)
    action = np.array([0.7])
    assert env.step(action)[1] == again.step(action)[1]


def test_answers_may_be_rows_of_numbers(monkeypatch):
    env = f.PrivateResponse(gym.make("DPB/Recommendation-v0", dim=3), f.RandomizedResponse(1.0))
    core = env.unwrapped.core
    genuine = core.problem.respond

    def respond(*round_):
        feedback, expected = genuine(*round_)
        return feedback._replace(answer=np.array([[0.25, 0.5]])), expected

    monkeypatch.setattr(core.problem, "respond", respond)
    monkeypatch.setattr(core, "response", "answer")
    env.reset(seed=0)
    *_, info = env.step(0)
    np.testing.assert_array_equal(env.truth["answer"], [0.25, 0.5])
    assert "answer" not in info


class Silent(f.GaussianResponse):
    """A mechanism of another package, whose event is its author's."""

    def privatise(self, values, numbers):
        return np.asarray(values, np.float64)


def test_a_mechanism_of_another_package_is_declared():
    env = f.PrivateResponse(gym.make("DPB/Pricing-v0", horizon=5), Silent(1.0))
    for guarantee in (Silent(1.0).guarantee, env.guarantee):
        assert guarantee.basis.startswith("declared (the mechanism Silent of ")
    own = f.PrivateResponse(gym.make("DPB/Pricing-v0", horizon=5), f.GaussianResponse(1.0))
    assert own.guarantee.basis == f.GaussianResponse(1.0).guarantee.basis == "computed"


def test_an_agent_behind_a_mechanism_of_another_package_is_declared():
    problem = make_problem("DPB/Pricing-v0", horizon=5)
    for mechanism, start in ((Silent(1.0), "declared"), (f.GaussianResponse(1.0), "computed")):
        agent = LocalPrivacy("random", mechanism)
        agent.set_up(problem.info, AgentStreams([0]), Budget.zcdp(0.5))
        assert agent.curator.guarantee.basis.startswith(start)


def test_the_guarantee_says_that_sold_out_items_are_left_out():
    """They follow from purchases that the response hides."""
    env = gym.make("DPB/Assortment-v0", horizon=5, n_items=4, capacity=2, stock=2)
    wrapped = f.PrivateResponse(env, f.RandomizedResponse(1.0, 3))
    clauses = env.unwrapped.core.problem.info.provisos
    assert clauses and wrapped.guarantee.provisos == clauses


def test_changed_attributes_of_a_mechanism_are_charged():
    """A mechanism is computed from its arguments, and so is its cost."""
    changed = f.RandomizedResponse(0.1)
    changed.epsilon = 20.0
    env = f.PrivateResponse(gym.make("DPB/Pricing-v0", horizon=5), changed)
    assert env.guarantee.epsilon(0.0) == 20.0
    agent = LocalPrivacy("random", changed)
    with pytest.raises(BudgetExceeded, match="above the budget"):
        info = make_problem("DPB/Pricing-v0", horizon=5).info
        agent.set_up(info, AgentStreams([0]), Budget.approx(1.0, 1e-5))


@pytest.mark.parametrize(
    ("env", "kwargs", "vectors", "clause"),
    [
        ("DPB/Pricing-v0", {"dim": 3}, 1, ""),
        ("DPB/Assortment-v0", {"n_items": 4, "capacity": 2, "revenues": "random"}, 4, "revenues"),
        ("DPB/Assortment-v0", {"n_items": 4, "capacity": 2, "revenues": "equal"}, 4, ""),
        ("DPB/Recommendation-v0", {"interactions_per_user": 2}, 5, "user ids"),
        ("DPB/Recommendation-v0", {"available": 0.5}, 5, "what is available"),
    ],
)
def test_the_guarantee_names_the_parts_of_a_context_without_noise(env, kwargs, vectors, clause):
    made = gym.make(env, horizon=5, **kwargs)
    shape = kind_of(made.unwrapped.core.problem.info.kind).feature_shape(
        made.unwrapped.core.problem.info
    )
    wrapped = f.PrivateContexts(made, f.GaussianContexts(1.0, vectors, shape[-1]))
    wrapped = f.PrivateResponse(wrapped, f.GaussianResponse(1.0))
    assert wrapped.guarantee.unit == "user-round"
    expected = (f"of a context the features only: {clause} without noise",) if clause else ()
    assert wrapped.guarantee.provisos == expected
