"""Guarantee and cost of every rival, and that rewards are used through releases only."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpb_gym
from dpb_gym import make_agent, make_problem
from dpb_gym.privacy import Budget, Guarantee, Segment
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.streams import AgentStreams

REWARD = (
    "zcdp-episodic",
    "adac-oful-zcdp",
    "rarely-switching-zcdp",
    "dgs-lin-ucb",
    "coreset-elimination",
    "batched-aggregation",
)
JOINT = ("jdp-lin-ucb", "noisy-gram-ucb")
DELTA = 1e-5
# Short schedules, so that every agent releases within a few rounds.
QUICK = {
    "zcdp-episodic": {"length": 8},
    "coreset-elimination": {"length": 8},
    "batched-aggregation": {"batch": 8, "composition": "parallel"},
    "dgs-lin-ucb": {"every": 8},
    "jdp-lin-ucb": {"every": 8},
    "noisy-gram-ucb": {"every": 8},
}


def begun(name, budget, horizon=1000, dim=4, **params):
    problem = make_problem("DPB/Recommendation-v0", horizon=horizon, dim=dim)
    agent = make_agent(name, **params)
    agent.set_up(problem.info, AgentStreams([0]), budget)
    return agent


@pytest.mark.parametrize("name", REWARD + JOINT)
@pytest.mark.parametrize("budget", [Budget.zcdp(0.1), Budget.approx(2.0, DELTA)], ids=str)
def test_the_guarantee_is_the_budget_and_it_is_spent(play, name, budget):
    params = QUICK.get(name, {}) | ({"composition": "parallel"} if name == REWARD[4] else {})
    agent = play(name, range(2), 300, budget, params, dim=3).agent
    promised = agent.curator.guarantee
    notion = ("central", "reward") if name in REWARD else ("joint", "user-round")
    assert (promised.notion, promised.unit, promised.relation) == (*notion, "replace-one")
    if budget.rho is not None:
        assert promised.rho == pytest.approx(0.1, rel=1e-9) and promised.rho <= 0.1
    else:
        assert promised.epsilon(DELTA) == pytest.approx(2.0, rel=1e-6)
        assert promised.epsilon(DELTA) <= 2.0
    assert Guarantee.from_dict(promised.to_dict()) == promised


@pytest.mark.parametrize("name", REWARD)
@pytest.mark.parametrize("centre", [False, True])
def test_reward_noise_follows_from_the_range_and_the_number_of_releases(name, centre):
    agent = begun(name, Budget.zcdp(0.02), horizon=6000, centre=centre)
    # sensitivity 1 for rewards in [0, 1], whether centred or not
    releases = {
        "dgs-lin-ucb": 6000,
        "batched-aggregation": 20,
        # 100 (2^K - 1) >= 6000
        "coreset-elimination": 6,
    }.get(name, 1)
    assert agent.plan.sums.sigma == pytest.approx(math.sqrt(releases / 0.04), rel=1e-9)
    # disjoint segments cost as much as one
    disjoint = name in ("batched-aggregation", "coreset-elimination")
    assert agent.curator.guarantee.rho == pytest.approx(
        0.02 / (releases if disjoint else 1), rel=1e-9
    )


def test_replacing_a_joint_record_moves_it_by_at_most_sqrt2_times_its_size():
    """Search for the worst pair of user-rounds, by random restarts of a local search."""
    rng = np.random.default_rng(0)

    def outer(x, r):
        v = np.append(x / max(1.0, np.linalg.norm(x)), r)
        return np.outer(v, v)

    for low, high in ((0.0, 1.0), (-0.5, 0.5)):
        bound = math.sqrt(2.0) * (1.0 + max(low**2, high**2))
        worst = 0.0
        for _ in range(20):
            best, scale = -1.0, 1.0
            point = rng.standard_normal((2, 3)), rng.uniform(low, high, 2)
            for _ in range(400):
                xs = point[0] + scale * rng.standard_normal((2, 3))
                rs = np.clip(point[1] + scale * rng.standard_normal(2), low, high)
                value = np.linalg.norm(outer(xs[0], rs[0]) - outer(xs[1], rs[1]))
                if value > best:
                    best, point = value, (xs, rs)
                else:
                    scale = max(1e-3, 0.97 * scale)
            worst = max(worst, best)
        assert worst <= bound * (1 + 1e-12)
        # attained where v and v' are orthogonal
        assert worst > 0.98 * bound


@pytest.mark.parametrize("centre", [False, True])
def test_joint_noise_follows_from_the_size_of_records(centre):
    size, rho = 1.25 if centre else 2.0, 0.3
    tree = begun("jdp-lin-ucb", Budget.zcdp(rho), horizon=1000, centre=centre)
    # releases every 10 rounds: 100 steps, 7 levels
    expected = math.sqrt(2) * size * math.sqrt(7) / math.sqrt(2 * rho)
    assert tree.plan.sums.sigma == pytest.approx(expected, rel=1e-9)
    batches = begun("noisy-gram-ucb", Budget.zcdp(rho), centre=centre)
    assert batches.plan.sums.sigma == pytest.approx(math.sqrt(2) * size / math.sqrt(0.6), rel=1e-9)


def test_the_published_constants_of_jdp_lin_ucb_cost_a_small_part_of_the_budget():
    budget, d = Budget.approx(1.0, DELTA), 4
    agent = begun("jdp-lin-ucb", budget, calibration="paper", every=1, dim=d)
    m = 1 + 10
    s = 4 * math.sqrt(m) * 2 * math.log(4 / DELTA)
    assert agent.plan.sums.sigma == pytest.approx(math.sqrt(2) * s, rel=1e-12)
    # entries of (N' + N'^T) / sqrt(2) have standard deviation s off the diagonal
    upsilon = s * math.sqrt(2 * m) * (4 * math.sqrt(d) + 2 * math.log(4 * 1000**2))
    assert agent.known.fixed == pytest.approx(1.0 + 2 * upsilon, rel=1e-12)
    mu = math.sqrt(2) * 2 * math.sqrt(10) / agent.plan.sums.sigma
    assert agent.curator.guarantee.rho == pytest.approx(0.5 * mu**2, rel=1e-9)
    assert agent.curator.guarantee.epsilon(DELTA) < 0.1
    with pytest.raises(dpb_gym.errors.BudgetError, match="epsilon, delta"):
        begun("jdp-lin-ucb", Budget.zcdp(1.0), calibration="paper")


@pytest.mark.parametrize("mechanism", ["blt", "binary-tree"])
def test_published_width_and_regret_are_finite(play, mechanism):
    params = {"calibration": "paper", "mechanism": mechanism}
    run = play("jdp-lin-ucb", range(2), 300, Budget.approx(5.0, DELTA), params, dim=3)
    assert np.isfinite(run.agent.state.width).all() and (run.agent.state.width > 0).all()


def test_noise_for_rewards_only_is_four_times_too_small_for_user_rounds():
    rho = 0.1
    agent = begun("noisy-gram-ucb", Budget.zcdp(rho), calibration="paper")
    # standard deviation 1 / sqrt(2 rho) on the entries of b
    assert agent.plan.sums.sigma / math.sqrt(2) == pytest.approx(1 / math.sqrt(2 * rho), rel=1e-9)
    assert agent.curator.guarantee.rho == pytest.approx(4 * rho, rel=1e-9)
    # RU's Eq. 2.8 at epsilon 1, delta 1e-5
    agent = begun("noisy-gram-ucb", Budget.approx(1.0, DELTA), calibration="paper")
    assert agent.plan.sums.sigma / math.sqrt(2) == pytest.approx(4.901, rel=1e-3)


class Recorder:
    """Forward calls to a releaser; store its releases and the due replicates."""

    def __init__(self, inner):
        self.inner = inner
        self.calls, self.kept = [], []

    def __getattr__(self, name):
        return getattr(self.__dict__["inner"], name)

    def release(self, *args):
        self.calls.append([np.array(a) for a in args])
        self.kept.append(self.inner.release(*args))
        return self.kept[-1].copy()

    @property
    def value(self):
        self.calls.append([])
        self.kept.append(self.inner.value)
        return self.kept[-1].copy()


class Playback(Recorder):
    """Return the releases of a `Recorder`; fail on other requests."""

    def __init__(self, inner, recorded):
        super().__init__(inner)
        self.recorded, self.at = recorded, 0

    def next(self, args):
        for ours, theirs in zip(args, self.recorded.calls[self.at], strict=True):
            np.testing.assert_array_equal(ours, theirs)
        self.at += 1
        return self.recorded.kept[self.at - 1].copy()

    def release(self, *args):
        self.inner.release(*args)  # counters that policies read
        return self.next(args)

    @property
    def value(self):
        return self.next(())


@pytest.mark.parametrize("name", REWARD + JOINT)
def test_rewards_reach_actions_and_schedules_through_releases_only(play, name):
    kept = {}

    def record(agent):
        kept["it"] = Recorder(agent.plan.sums)
        agent.plan = agent.plan._replace(sums=kept["it"])

    def replay(agent):
        agent.plan = agent.plan._replace(sums=Playback(agent.plan.sums, kept["it"]))

    other = np.random.default_rng(1)

    def tamper(t, reward):
        return other.random(len(reward))

    params, budget = QUICK.get(name, {}), Budget.zcdp(5.0)
    first = play(name, range(4), 300, budget, params, prepare=record, dim=3)
    held = play(name, range(4), 300, budget, params, prepare=replay, tamper=tamper, dim=3)
    np.testing.assert_array_equal(held.actions, first.actions)
    assert kept["it"].calls and (held.rewards != first.rewards).any()
    free = play(name, range(4), 300, budget, params, tamper=tamper, dim=3)
    assert (free.actions != first.actions).any()


@pytest.mark.parametrize("name", ["zcdp-episodic", "dgs-lin-ucb"])
def test_the_given_norms_bound_the_images(play, name):
    kept = {}

    def record(agent):
        kept["it"] = Recorder(agent.plan.sums)
        agent.plan = agent.plan._replace(sums=kept["it"])

    play(name, range(3), 500, Budget.zcdp(1.0), {**QUICK[name]}, prepare=record, dim=5)
    slack = []
    for due, inverse, norm in kept["it"].calls:
        true = np.linalg.norm(inverse[due], ord=2, axis=(1, 2))
        assert (norm[due] >= true).all()
        slack.extend((norm[due] / true).tolist())
    assert max(slack) < 1.5 and np.median(slack) < 1.02


@pytest.mark.slow
@pytest.mark.parametrize("name", REWARD + JOINT)
def test_audit_passes_and_fails_for_a_tenth_of_the_noise_variance(name):
    params, budget = QUICK.get(name, {}), Budget.zcdp(2.0)
    report = dpb_gym.audit(name, budget, runs=500, params=params, deployment=64)
    assert report.verdict == "PASS"

    def faulty():
        agent = make_agent(name, **params)
        begin = agent.begin

        def quieter(problem, streams, curator):
            begin(problem, streams, curator)
            curator.seal()
            releaser = behind(agent.plan.sums)
            quiet = [name for name in ("_sigma", "_scale") if hasattr(releaser, name)]
            assert quiet
            for attribute in quiet:
                setattr(releaser, attribute, getattr(releaser, attribute) / math.sqrt(10))

        agent.begin = quieter
        return agent

    report = dpb_gym.audit(
        faulty,
        budget,
        runs=500,
        env_id="DPB/Recommendation-v0",
        env_kwargs={"dim": 2, "n_arms": 12, "n_candidates": 3},
    )
    assert report.verdict == "FAIL"


def test_rewards_outside_their_range_are_clipped_and_counted(play):
    def wild(t, reward):
        return np.where(np.arange(len(reward)) == 1, 1e6, reward)

    def tame(t, reward):
        return np.where(np.arange(len(reward)) == 1, 1.0, reward)

    for name in REWARD + JOINT:
        params = QUICK.get(name, {})
        runs = [
            play(name, range(3), 60, Budget.zcdp(9.0), params, tamper=t, dim=2)
            for t in (wild, tame)
        ]
        np.testing.assert_array_equal(runs[0].actions, runs[1].actions)
        if name in REWARD:
            np.testing.assert_array_equal(behind(runs[0].agent.plan.sums).clipped_count, [0, 60, 0])
            assert not behind(runs[1].agent.plan.sums).clipped_count.any()


def test_unobserved_rounds_leave_no_trace_in_joint_sums(play):
    kept = {}

    def record(agent):
        kept["it"] = Recorder(agent.plan.sums)
        agent.plan = agent.plan._replace(sums=kept["it"])

    env = {"env_id": "DPB/MovieLensReplay-v0", "dim": 4, "protocol": "replay"}
    params = {"every": 40, "centre": True}
    run = play("noisy-gram-ucb", [0, 1], 600, Budget.zcdp(1e12), params, prepare=record, **env)
    assert len(kept["it"].kept) == 600 // 200
    for i in range(2):
        seen = run.observed[:, i]
        x = run.features[np.arange(600), i, run.actions[:, i]][seen].astype(np.float64)
        x /= np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
        v = np.concatenate([x, run.rewards[seen, i, None] - 0.5], axis=1)
        np.testing.assert_allclose(kept["it"].kept[-1][i], v.T @ v, atol=1e-4)


def test_segments_have_the_range_of_the_rewards():
    # what the agents rely on for sensitivity 1
    assert Segment(0.0, 1.0).sensitivity() == Segment(-0.5, 0.5).sensitivity() == 1.0
