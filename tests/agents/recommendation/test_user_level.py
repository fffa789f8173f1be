"""User-level privacy of AdaPrivate: sensitivity to one user, cost, and guarantee."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpb_agents.recommendation.adaprivate import AdaPrivateUserUCB
from dpb_gym import make_agent, make_problem
from dpb_gym.agent import Agent
from dpb_gym.audits import audit
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import ParameterError
from dpb_gym.privacy import Budget, LifetimeClip, UserSum
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.streams import AgentStreams

ENV = "DPB/Recommendation-v0"


def begun(budget, replicates=1, k=5, **params):
    problem = make_problem(ENV, horizon=100, interactions_per_user=k)
    agent = make_agent("adaprivate-user-ts", **params)
    agent.set_up(problem.info, AgentStreams(range(replicates)), budget)
    return agent


# C = clip sqrt(k) h, and never more than k rewards can differ
@pytest.mark.parametrize(
    ("params", "k", "sensitivity", "clipped"),
    [
        ({}, 10, 2 * math.sqrt(10), True),
        ({}, 4, 4.0, False),  # 2 sqrt(4) = 4: clipping gains nothing
        ({"centre": True}, 10, math.sqrt(10), True),
        ({"centre": True}, 4, 2.0, True),
        ({"centre": True}, 1, 1.0, False),
        ({"centre": True, "clip": 0.5}, 10, 0.5 * math.sqrt(10), True),
        ({"clip": None}, 10, 10.0, False),
        ({"clip": None, "centre": True}, 4, 4.0, False),
        ({"max_rounds_per_user": 3, "clip": None}, 10, 3.0, False),
    ],
)
def test_noise_follows_the_sensitivity_to_one_user(params, k, sensitivity, clipped):
    rho = 0.3
    agent = begun(Budget.zcdp(rho), k=k, **params)
    assert isinstance(behind(agent.plan.sums), UserSum) is clipped
    assert agent.plan.sums.sensitivity == pytest.approx(sensitivity)
    assert agent.plan.sums.sigma == pytest.approx(sensitivity / math.sqrt(2 * rho))
    guarantee = agent.curator.guarantee
    assert (guarantee.notion, guarantee.unit, guarantee.relation) == (
        "central",
        "user-rewards",
        "replace-one",
    )
    assert guarantee.rho == pytest.approx(rho)
    assert "per user-rewards" in str(guarantee)
    # group privacy: a single reward is protected by rho / k^2
    if "clip" in params and params["clip"] is None:
        assert 0.5 / agent.plan.sums.sigma**2 == pytest.approx(rho / sensitivity**2)


# section 6.1 by hand: rho_user = (sqrt(5 + l) - sqrt(l))^2 = .449623, l = log 1e5, and C = sqrt(k)
@pytest.mark.parametrize(
    ("k", "clip", "sigma", "cost"),
    [(10, 1.0, 3.334754, 4.0), (20, 1.0, 4.716054, 4.0), (10, None, 10.54542, 1.0)],
)
def test_the_printed_noise_is_that_of_a_user_who_is_added(k, clip, sigma, cost):
    agent = begun(Budget.approx(5.0, 1e-5), k=k, clip=clip, calibration="paper")
    assert agent.plan.sums.sigma == pytest.approx(sigma, rel=1e-5)
    assert agent.curator.guarantee.rho == pytest.approx(cost * 0.449623, rel=1e-5)
    assert agent.curator.guarantee.basis == "as printed (RU, Eq. 2.8 and section 6.1)"


@pytest.mark.parametrize("params", [{"centre": True}, {}, {"clip": None}])
def test_the_whole_budget_is_spent(play, params):
    budget, env = Budget.approx(2.0, 1e-5), {"interactions_per_user": 7}
    params = {"batch": 50, **params}
    run = play("adaprivate-user-ucb", range(2), 260, budget, params, **env)
    ledger = run.agent.curator.ledger
    assert len(ledger.entries) == 1 and run.agent.plan.sums.releases == 5
    assert ledger.spent == pytest.approx(2.0, rel=1e-6)


def released_without_noise(agent):
    """Return the list that collects the batches' sums before their noise."""
    sums = behind(agent.plan.sums)
    kept, original = [], sums._noise.gaussian

    def gaussian(std, width):
        kept.append(sums._total.copy())
        return original(std, width)

    sums._noise.gaussian = gaussian
    return kept


@pytest.mark.parametrize("order", ["consecutive", "shuffled"])
@pytest.mark.parametrize("clip", [1.0, None])
@pytest.mark.parametrize("params", [{"centre": True}, {}, {"centre": True, "intercept": 0.4}])
def test_replacing_a_user_moves_all_releases_by_the_sensitivity_at_most(play, order, clip, params):
    """Adversarial rewards of one user, everything public fixed by releases of zero.

    Her directions are public, so the hostile rewards are the ones that add up along a line.
    """
    k, batch, T, B = 6, 8, 48, 24
    env = {"interactions_per_user": k, "user_order": order, "dim": 3, "n_candidates": 1}
    how = {"clip": clip, "batch": batch, **params}
    problem = make_problem(ENV, horizon=T, **env)
    users = []
    instance = problem.instance(range(B))
    for t in range(T):
        users.append(instance.context().users.copy())
        if t < T - 1:
            instance.advance()
    users = np.array(users)
    target = users == users[0]
    assert (target.sum(axis=0) <= k).all()

    def world(sign, line):
        kept = {}

        def tamper(t, reward):
            along = kept["directions"][t]
            hostile = np.where(along @ line >= 0, sign, 1 - sign).astype(float)
            return np.where(target[t], hostile, reward)

        def prepare(agent):
            kept["sums"] = released_without_noise(agent)
            inner = behind(agent.plan.sums)
            original = inner.release
            inner.release = lambda: np.zeros_like(original())

        features = []
        instance = problem.instance(range(B))
        for t in range(T):
            features.append(instance.context().features[:, 0].astype(np.float64))
            if t < T - 1:
                instance.advance()
        kept["directions"] = np.array(features)
        run = play(
            "adaprivate-user-ts",
            range(B),
            T,
            Budget.zcdp(1.0),
            how,
            prepare=prepare,
            tamper=tamper,
            **env,
        )
        return np.array(kept["sums"]), run.agent.plan.sums.sensitivity

    rng = np.random.default_rng(0)
    largest = 0.0
    for line in [np.eye(3)[0], *rng.standard_normal((2, 3))]:
        one, sensitivity = world(1.0, line)
        other, _ = world(0.0, line)
        moved = np.sqrt(((one - other) ** 2).sum(axis=(0, 2)))
        assert (moved <= sensitivity * (1 + 1e-9)).all()
        largest = max(largest, moved.max() / sensitivity)
    assert largest > 0.3, "the search must come near the bound"


def test_only_the_first_rounds_of_a_user_are_learnt_from(play):
    k, limit, T = 6, 2, 60
    env = {"interactions_per_user": k, "user_order": "shuffled", "dim": 4}
    params = {"max_rounds_per_user": limit, "batch": 20}
    run = play("adaprivate-user-ts", range(3), T, Budget.zcdp(1.0), params, **env)
    instance = run.problem.instance(range(3))
    expected = np.tile(np.eye(4), (3, 1, 1))
    seen = [{} for _ in range(3)]
    for t in range(T):
        users = instance.context().users
        for b in range(3):
            seen[b][users[b]] = seen[b].get(users[b], 0) + 1
            if seen[b][users[b]] <= limit:
                x = run.features[t, b, run.actions[t, b]].astype(np.float64)
                expected[b] += np.outer(x, x)
        if t < T - 1:
            instance.advance()
    factor = run.agent.state.A.transpose(0, 2, 1)
    np.testing.assert_allclose(factor @ factor.swapaxes(1, 2), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("order", ["consecutive", "shuffled"])
def test_clipping_beats_group_privacy(play, order):
    """The testable claim of RU, section 6.1."""
    budget, seeds = Budget.approx(5.0, 1e-5), range(16)
    env = {"interactions_per_user": 10, "user_order": order}
    regret = {}
    for clip in (1.0, None):
        params = {"clip": clip, "centre": True, "batch": 100}
        regret[clip] = play("adaprivate-user-ucb", seeds, 2000, budget, params, **env).regret
    gap = regret[None] - regret[1.0]
    assert gap.mean() > 3.0 * gap.std(ddof=1) / math.sqrt(len(gap))


def test_bits_do_not_depend_on_the_batch(play):
    budget, params = Budget.zcdp(1.0), {"centre": True, "batch": 40}
    env = {"interactions_per_user": 9, "user_order": "shuffled"}
    full = play("adaprivate-user-ts", [5, 2, 9], 200, budget, params, **env)
    for i, seed in enumerate([5, 2, 9]):
        alone = play("adaprivate-user-ts", [seed], 200, budget, params, **env)
        np.testing.assert_array_equal(alone.actions[:, 0], full.actions[:, i])
        np.testing.assert_array_equal(alone.agent.state.b[0], full.agent.state.b[i])


@pytest.mark.parametrize("clip", [1.0, None])
def test_a_resumed_run_is_the_uninterrupted_one(clip, tmp_path):
    env = {"interactions_per_user": 9, "user_order": "shuffled"}

    def continued(instance, agent, first, last):
        actions = []
        for t in range(first, last):
            context = locked(instance.context())
            actions.append(agent.act(context).copy())
            agent.observe(context, actions[-1], instance.respond(actions[-1]).feedback)
            if t < 199:
                instance.advance()
        return actions

    def start():
        problem = make_problem(ENV, horizon=200, **env)
        agent = make_agent("adaprivate-user-ts", clip=clip, centre=True, batch=30)
        agent.set_up(problem.info, AgentStreams([1, 2]), Budget.zcdp(2.0))
        return problem.instance([1, 2]), agent

    whole = continued(*start(), 0, 200)
    instance, agent = start()
    first = continued(instance, agent, 0, 104)
    agent.save(tmp_path / "agent.ckpt")
    rest = continued(instance, Agent.load(tmp_path / "agent.ckpt"), 104, 200)
    np.testing.assert_array_equal(first + rest, whole)


def test_users_must_be_bounded_and_identified(play):
    budget = Budget.zcdp(1.0)
    with pytest.raises(ParameterError, match="max_rounds_per_user"):
        play("adaprivate-user-ts", [0], 10, budget)
    with pytest.raises(ParameterError, match="identifies users"):
        play("adaprivate-user-ts", [0], 10, budget, {"max_rounds_per_user": 3})
    for bad in ({"max_rounds_per_user": 0}, {"clip": 0.0}):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            make_agent("adaprivate-user-ts", **bad)


def test_users_of_a_data_set_are_protected_too(play):
    """MovieLens identifies users but not how many rounds each will have."""
    params = {"max_rounds_per_user": 5, "centre": True, "batch": 50}
    env = {"env_id": "DPB/MovieLensReplay-v0", "dim": 6}
    run = play("adaprivate-user-ts", range(2), 400, Budget.zcdp(1.0), params, **env)
    assert run.agent.curator.guarantee.unit == "user-rewards"
    assert run.agent.plan.sums.sensitivity == pytest.approx(
        math.sqrt(5) * 1.0 * np.ptp(run.problem.info.reward_range)
    )
    replay = play(
        "adaprivate-user-ts", range(2), 600, Budget.zcdp(1.0), params, protocol="replay", **env
    )
    # rounds without feedback are no contribution
    counts = replay.agent.plan.cap._users.table.sum(axis=1)
    np.testing.assert_array_less(counts, replay.observed.sum(axis=0) + 1)
    assert (counts > 0).all()


# ------------------------------------------------------------------ audits

AUDIT = {
    "env_id": ENV,
    "env_kwargs": {"dim": 2, "n_arms": 12, "n_candidates": 3, "interactions_per_user": 4},
    "runs": 1000,
}


@pytest.mark.slow
@pytest.mark.parametrize("clip", [1.0, None])
@pytest.mark.parametrize("order", ["consecutive", "shuffled"])
def test_audits_pass_with_a_positive_estimate(clip, order):
    params = {"clip": clip, "centre": True, "batch": 8}
    how = {**AUDIT, "env_kwargs": {**AUDIT["env_kwargs"], "user_order": order}, "horizon": 32}
    report = audit("adaprivate-user-ucb", Budget.zcdp(2.0), params=params, **how)
    assert report.verdict == "PASS", report
    assert "per user-rewards" in str(report)
    assert report.mu > 1.0, "half of what is allowed (mu = 2) can be seen"


class Forgetful(LifetimeClip):
    """Clip every batch separately, without a limit per user over all batches."""

    def close(self):
        self._spent.table[:] = 0.0
        return super().close()


class AsPrinted(AdaPrivateUserUCB):
    """RU, section 6.1: noise C / sqrt(2 rho), or a fresh budget C in every batch, or sound."""

    protects = ("central", "user-rewards")

    def __init__(self, fault):
        super().__init__(batch=8, centre=True)
        self.fault = fault

    def start(self, problem, sums):
        sums.ready()
        if self.fault == "half":
            behind(sums)._sigma /= 2.0
        if self.fault == "fresh":
            behind(sums)._clip.__class__ = Forgetful
        return super().start(problem, sums)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "order", "k", "horizon"),
    [("half", "consecutive", 4, 32), ("fresh", "shuffled", 16, 64)],
)
def test_erratum_r10_end_to_end(fault, order, k, horizon):
    """Half the noise is seen; so is a budget per batch, with users in several batches."""
    env = {**AUDIT["env_kwargs"], "user_order": order, "interactions_per_user": k}
    how = {**AUDIT, "env_kwargs": env, "horizon": horizon}
    assert audit(lambda: AsPrinted(fault), Budget.zcdp(2.0), **how).verdict == "FAIL"
    assert audit(lambda: AsPrinted("none"), Budget.zcdp(2.0), **how).verdict == "PASS"
