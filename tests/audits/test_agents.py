"""End-to-end audits: every private agent passes, fails with a third of its noise, or says so."""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from dpb_agents.assortment.dpmnl import DPMNL
from dpb_agents.recommendation.local_linear import LocalLinear, Statistics
from dpb_agents.recommendation.ridge_agents import LinUCB
from dpb_gym import Budget, make_problem
from dpb_gym.agent import Agent
from dpb_gym.audits import AuditReport, Pair, World, audit, interference, paired_run
from dpb_gym.audits.agent_audit import small_setting
from dpb_gym.audits.paired_run import play, spread
from dpb_gym.audits.worlds import answer, pairs_for
from dpb_gym.errors import AgentError, BudgetError, ParameterError, UnknownNameError
from dpb_gym.play import Plan
from dpb_gym.privacy import GaussianEvent
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.problems.base import Context
from dpb_gym.registry import agent_specs, spec_of
from dpb_gym.streams import AgentStreams
from dpb_gym.suites.spec import AgentRun

PRIVATE = [
    name
    for name, spec in agent_specs().items()
    if spec.budget != "never" and not spec.uses_oracle and spec.entry_point.startswith("dpb_agents")
]
# Long runs of private MLEs; their table is made by a script, with 2 x 2000 runs.
SLOW = {"private-pricing", "explore-commit-pricing"}
RECOMMENDATION = "DPB/Recommendation-v0"
SMALL = {"dim": 2, "n_arms": 12, "n_candidates": 3}
WHERE = {"env_id": RECOMMENDATION, "env_kwargs": SMALL, "horizon": 32}


@pytest.mark.parametrize("name", [name for name in PRIVATE if name not in SLOW])
def test_private_agents_pass_and_fail_with_a_third_of_the_noise(name):
    """Two seeds: a true claim fails one audit in twenty, and few runs may lack power once."""
    reports = [audit(name, Budget.zcdp(0.5), runs=500, deployment=64)]
    if reports[0].verdict != "PASS":
        reports.append(audit(name, Budget.zcdp(0.5), runs=1000, seed=1, deployment=64))
    assert reports[-1].verdict == "PASS" and reports[-1].control == "FAIL", reports[-1]


def test_the_page_has_a_row_of_every_private_agent():
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \|.*?\| (\w+) \| (\w+) \|", page, re.MULTILINE)
    assert sorted(row[0] for row in rows) == sorted(PRIVATE)
    assert {row[1:] for row in rows} == {("PASS", "FAIL")}


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("lin-ucb", {}),
        ("ucb-mnl", {}),
        ("glm-ucb-pricing", {"horizon": 64}),  # in 32 rounds it may not update
        ("one-pass-linear", {}),
    ],
)
def test_non_private_agents_have_no_claim_and_no_privacy(name, how):
    report = audit(name, runs=400, **how)
    assert report.verdict == "NO CLAIM"
    assert report.epsilon() > 2.0
    assert report.leaderboard_row() is None


# ------------------------------------------------------------------ faulty agents


class Underestimating(LinUCB):
    """AdaPrivate-UCB that adds less noise than it charges."""

    protects = ("central", "reward")
    batch: int = 8
    variance: float = 1.0

    def start(self, problem, sums):
        sums.ready()
        behind(sums)._sigma *= math.sqrt(self.variance)
        return super().start(problem, sums)


@pytest.mark.parametrize("rho", [0.5, 2.0])
@pytest.mark.parametrize(("variance", "verdict"), [(0.5, "FAIL"), (1.0, "PASS")])
def test_too_little_noise_is_seen_end_to_end(variance, verdict, rho):
    report = audit(lambda: Underestimating(variance=variance), Budget.zcdp(rho), runs=2000, **WHERE)
    assert report.verdict == verdict, report


class PaperDPMNL(DPMNL):
    """DPMNL with the Gram noise of CS, Lemma S5, charged as if that were enough."""

    protects = ("joint", "user-round")

    def begin(self, problem, streams, curator):
        super().begin(problem, streams, curator)
        curator.seal()
        behind(self._releasers.gram)._scale /= math.sqrt(problem.capacity)


def test_erratum_a1_end_to_end():
    how = {
        "env_id": "DPB/Assortment-v0",
        "env_kwargs": {"n_items": 12, "capacity": 6, "dim": 2, "context_norm": "clip"},
        "horizon": 32,
        "runs": 400,
    }
    params = {"explore": 8, "max_updates": 1, "share": 0.05}
    budget = Budget.zcdp(0.5)
    assert audit(PaperDPMNL, budget, params=params, **how).verdict == "FAIL"
    assert audit("dpmnl", budget, params=params, **how).verdict == "PASS"


class SilentStatistics(Statistics):
    """Send noise only where feedback was observed, which reveals the logged action."""

    def send(self, records, along):
        return super().send(records, along) * along.any(axis=1)[:, None]


class Silent(LocalLinear):
    """LocalLinear on messages that are missing where nothing was observed."""

    protects = ("local", "user-round")

    def plan(self, problem, curator):
        plan = super().plan(problem, curator)
        return plan._replace(sums=partial(SilentStatistics, *plan.sums.args))


@pytest.mark.parametrize("rho", [0.1, 2.0])
def test_messages_of_unobserved_rounds_are_not_missing(rho):
    """An algorithm cannot leave them out: a releaser with code of its own is refused."""
    with pytest.raises(AgentError, match="has code of another package"):
        audit(Silent, Budget.zcdp(rho), runs=1000, **WHERE)
    report = audit("local-lin-ucb", Budget.zcdp(rho), runs=1000, **WHERE)
    assert report.verdict == "PASS", report


class Counting(Agent):
    """Counts the rounds that were observed, which its unit protects."""

    protects = ("joint", "user-round")

    def begin(self, problem, streams, curator):
        assert problem.partial_feedback
        self.sums = curator.batch_sum(problem.dim, clip=1.0)
        self.seen = np.zeros(streams.replicates, int)

    def act(self, context):
        return self.seen % 3

    def observe(self, context, action, feedback):
        self.seen += feedback.observed
        self.sums.add(np.zeros((len(action), context.features.shape[2])))
        self.sums.release()


REPLAY = {"env_id": "DPB/MovieLensReplay-v0", "env_kwargs": {"dim": 2, "protocol": "replay"}}


def test_what_was_observed_is_raw_data_where_the_unit_protects_it():
    report = audit(Counting, Budget.zcdp(0.5), runs=60, horizon=16, **REPLAY)
    assert report.verdict == "READS RAW DATA", report


def test_replays_are_audited():
    report = audit(
        "adaprivate-ts", Budget.zcdp(2.0), runs=300, params={"batch": 2}, deployment=64, **REPLAY
    )
    assert report.verdict == "PASS" and report.control == "FAIL", report


class Personal(Agent):
    """Uses each customer's own features for her own action, and nothing else."""

    protects = ("joint", "user-round")

    def begin(self, problem, streams, curator):
        curator.charge(GaussianEvent(10.0), what="nothing")

    def act(self, context):
        return context.features[:, :, 0].argmax(axis=1)

    def observe(self, context, action, feedback):
        pass


class Central(Personal):
    """The same, but claims that its own action is protected too."""

    protects = ("central", "user-round")


def test_the_targets_own_action_is_excluded_only_from_joint_claims():
    first = np.array([[1, 0], [0, 1], [0, 1]], np.float32)
    pair = Pair("first or last", World(first, 1.0), World(first[::-1].copy(), 1.0))
    how = {"env_id": RECOMMENDATION, "env_kwargs": SMALL, "horizon": 8, "pair": pair, "runs": 200}
    assert not audit(Personal, Budget.zcdp(0.5), **how).violations
    assert audit(Central, Budget.zcdp(0.5), **how).verdict == "FAIL"


class UserLevel(LinUCB):
    """Protects single rewards, and claims all rewards of users who have three."""

    protects = ("central", "user-rewards")

    def sums(self, problem, curator, plan):
        sums = curator.batch_sum(plan.dim, cumulative=True, reward=plan.reward, participations=1)
        return Plan(sums, directed=True)


def test_a_user_is_exchanged_in_all_rounds():
    report = audit(
        lambda: UserLevel(batch=8),
        Budget.zcdp(0.5),
        env_id=RECOMMENDATION,
        env_kwargs={**SMALL, "interactions_per_user": 3},
        horizon=16,
    )
    assert "target in round 1 to 3" in report.details["rounds"]
    assert report.verdict == "FAIL", "three rewards of one user cost nine times as much"


# ------------------------------------------------------------------ the worlds


class Watching(Agent):
    """Keeps what it sees."""

    seen: list

    def begin(self, problem, streams, curator):
        Watching.seen = []
        self.B, self.kind, self.K = streams.replicates, problem.kind, problem.capacity

    def act(self, context):
        if self.kind == "pricing":
            return np.linspace(0.1, 0.9, self.B)
        if self.kind == "recommendation":
            return np.arange(self.B) % 3
        return np.tile(np.arange(self.K), (self.B, 1))

    def observe(self, context, action, feedback):
        kept = [None if v is None else np.array(v) for v in context]
        Watching.seen.append((Context(*kept), feedback))


KINDS = {
    "recommendation": (RECOMMENDATION, SMALL),
    "pricing": ("DPB/Pricing-v0", {"dim": 3}),
    "assortment": ("DPB/Assortment-v0", {"n_items": 8, "capacity": 4, "dim": 2}),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", ["user-round", "reward"])
def test_all_customers_but_the_target_are_fixed(kind, unit):
    env_id, kwargs = KINDS[kind]
    problem = make_problem(env_id, horizon=6, **kwargs)
    entry = AgentRun(spec=spec_of(Watching, kind))
    for pair in pairs_for(problem.info, unit):
        play(entry, problem, pair, [3], runs=5, seed=4)
        instance = problem.instance([4])
        seen = Watching.seen
        for t, (context, feedback) in enumerate(seen, start=1):
            halves = context.features[:5], context.features[5:]
            if t != 3:
                assert (context.features == context.features[0]).all()
                if not pair.others:
                    assert np.array_equal(context.features[0], instance.context().features[0])
                    watcher = entry.spec.make()
                    watcher.set_up(problem.info, AgentStreams(range(10)))
                    played = watcher.act(context)
                    # potential outcomes: equal actions get equal responses, in every run
                    same = np.flatnonzero((played == played[0]).reshape(10, -1).all(axis=1))
                    assert len(set(feedback.reward[same].tolist())) == 1
            else:
                changed = not np.array_equal(halves[0], halves[1])
                assert changed != np.array_equal(pair.first.features, pair.second.features)
                assert changed <= (unit == "user-round")
                response = feedback.reward if feedback.demand is None else feedback.demand
                if pair.name.startswith("response"):
                    assert set(response[:5]) == {0.0} and set(response[5:]) == {1.0}
            if t < 6:
                instance.advance()


def test_tastes_choose_among_what_is_offered():
    info = make_problem("DPB/Assortment-v0", n_items=3, capacity=2, dim=2).info
    x = np.array([[1, 0], [0, 1], [-1, 0]], np.float32)
    context = Context(1, np.stack([x] * 3), revenues=np.tile(np.float32([1, 2, 4]), (3, 1)))
    action = np.array([[0, 2], [1, -1], [-1, -1]])
    likes = World(x, 1.0, taste=np.array([-1.0, 0.0]))
    feedback = answer(likes, info, context, action)
    assert feedback.choice.tolist() == [1, 0, -1] and feedback.reward.tolist() == [4.0, 2.0, 0.0]
    replay = replace(make_problem(RECOMMENDATION, **SMALL).info, partial_feedback=True)
    seen = answer(World(None, 1.0, logged=2), replay, context, np.array([2, 0, 2]))
    assert seen.observed.tolist() == [True, False, True] and seen.reward.tolist() == [1.0, 0.0, 1.0]
    assert answer(World(None, 1.0), replay, context, np.array([2, 0, 2])).observed.all()
    refuses = answer(World(x, 0.0), info, context, action)
    assert refuses.choice.tolist() == [-1] * 3 and not refuses.reward.any()


# ------------------------------------------------------------------ arguments, reports


def test_spread_keeps_the_ends():
    assert spread(5, 16) == [0, 1, 2, 3, 4]
    chosen = spread(1000, 16)
    assert chosen[:8] == list(range(8)) and chosen[-1] == 999 and len(chosen) <= 16


def test_reports_are_reproducible_json_and_say_what_was_done():
    how = {"runs": 100, "params": {"batch": 4}, "horizon": 8, "seed": 3, "deployment": 40}
    report = audit("adaprivate-ts", Budget.zcdp(1.0), **how)
    again = audit("adaprivate-ts", Budget.zcdp(1.0), **how)
    assert report.to_json() == again.to_json()
    assert AuditReport.from_dict(json.loads(report.to_json())) == report
    assert "mu 1.41" in report.details["boundary"]
    assert "in 40 rounds" in report.details["raw data"] and report.details["in deployment"]
    assert report.details["worlds"] == "response 0 or 1"
    assert "adaprivate-ts at" in str(report)
    assert audit("adaprivate-ts", Budget.zcdp(1.0), **{**how, "seed": 4}) != report


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"agent": "nobody"}, UnknownNameError),
        ({"agent": "adaprivate-ts"}, AgentError),
        ({"agent": "lin-ucb", "budget": Budget.zcdp(1.0)}, AgentError),
        ({"agent": "oracle"}, AgentError),
        ({"agent": "lin-ucb", "runs": 10}, ParameterError),
        ({"agent": "lin-ucb", "runs": 1.5}, ParameterError),
        ({"agent": "lin-ucb", "seed": -1}, ParameterError),
        ({"agent": "lin-ucb", "confidence": 1.0}, ParameterError),
        ({"agent": "lin-ucb", "horizon": 1}, ParameterError),
        ({"agent": "lin-ucb", "env_id": "DPB/Pricing-v0"}, AgentError),
        ({"agent": "lin-ucb", "params": {"alpah": 1.0}}, ParameterError),
        ({"agent": "lin-ucb", "env_kwargs": {"dmi": 1}}, ParameterError),
        ({"agent": "adaprivate-ts", "budget": 1.0}, BudgetError),
        ({"agent": Personal}, ParameterError),
        (
            {"agent": "lin-ucb", "pair": Pair("bad", World(np.zeros((2, 2)), 0), World(None, 1))},
            ParameterError,
        ),
    ],
)
def test_bad_arguments_are_refused(arguments, error):
    with pytest.raises(error):
        audit(**arguments)


def test_an_agent_that_ends_its_process_is_named(audits_in_processes):
    with pytest.raises(AgentError, match="ended the process"):
        list(interference._apart([lambda: os._exit(3)]))


def test_a_copy_decides_with_the_same_random_numbers():
    problem = make_problem("DPB/Recommendation-v0", horizon=6, dim=2, n_arms=12, n_candidates=3)
    context, acts = problem.instance(range(4)).context(), []
    for doubled in (True, False):
        agent, streams = agent_specs()["adaprivate-ts"].make(), AgentStreams(range(4), "audit")
        agent.set_up(problem.info, streams, Budget.zcdp(0.5))
        if doubled:
            taps = paired_run._taps(agent, 2, 1.0)[0][0]
            acts.append(paired_run._double(agent, streams, taps).act(context))
        acts.append(agent.act(context))
    assert np.array_equal(acts[0], acts[1]) and np.array_equal(acts[1], acts[2])
    other = agent_specs()["adaprivate-ts"].make()
    other.set_up(problem.info, AgentStreams(range(8, 12), "audit"), Budget.zcdp(0.5))
    assert not np.array_equal(other.act(context), acts[2])


@pytest.mark.parametrize("name", ["one-pass-linear", "jdp-glm-ucb", "local-pricing"])
def test_residuals_do_not_need_the_other_world(name):
    spec = agent_specs()[name]
    kind = spec.supports[0]
    env_id, kwargs = small_setting(spec, kind)
    problem = make_problem(env_id, **{**kwargs, "horizon": 40})
    run = AgentRun(spec=spec, budget=Budget.zcdp(0.5))
    pair = pairs_for(problem.info, "reward" if name == "one-pass-linear" else "user-round")[0]
    both, alone = (
        play(run, problem, pair, [3], seed=0, runs=4, scored=scored) for scored in (True, False)
    )
    assert both.residuals is not None
    assert alone.residuals == both.residuals
    assert alone.scores is None
