"""The one-pass agents: guarantees, what the policy may see, exact twins, and how they fare."""

from __future__ import annotations

import math

import numpy as np
import pytest
import yaml

import dpb_gym
from dpb_gym.agent import agent_spec, make_agent
from dpb_gym.errors import AgentError, BudgetError, HorizonExceeded, ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Feedback
from dpb_gym.streams import AgentStreams

ARENAS = {
    "one-pass-mnl": ("DPB/Assortment-v0", {"n_items": 12, "capacity": 3, "dim": 3}),
    "one-pass-pricing": ("DPB/Pricing-v0", {}),
    "one-pass-linear": ("DPB/Recommendation-v0", {"dim": 5, "n_arms": 20}),
}
GAUSSIAN = ("DPB/Pricing-v0", {"demand": "gaussian"})
NAMES = list(ARENAS)


def problem_of(name, horizon, **kwargs):
    env_id, fixed = ARENAS[name]
    return dpb_gym.make_problem(env_id, horizon=horizon, **{**fixed, **kwargs})


def begin(name, problem, seeds, budget, **params):
    agent = make_agent(name, **params)
    agent.set_up(problem.info, AgentStreams(seeds), budget)
    return agent


def play(agent, problem, seeds, rounds, spy=None):
    instance = problem.instance(seeds)
    actions, regret = [], np.zeros(len(seeds))
    for t in range(rounds):
        context = instance.context()
        action = agent.act(context)
        outcome = instance.respond(action)
        actions.append(np.array(action))
        regret += outcome.regret
        agent.observe(context, action, outcome.feedback)
        if spy is not None:
            spy(agent)
        if t < rounds - 1:
            instance.advance()
    return np.array(actions), regret


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mechanism", ["weighted", "blt", "binary-tree"])
def test_the_ledger_spends_the_budget_and_no_more(name, mechanism):
    notion, unit = {
        "one-pass-mnl": ("joint", "user-round"),
        "one-pass-pricing": ("anticipating", "user-round"),
        "one-pass-linear": ("central", "reward"),
    }[name]
    problem = problem_of(name, 400)
    zcdp = begin(name, problem, [0, 1], Budget.zcdp(0.3), mechanism=mechanism)
    assert (zcdp.guarantee.notion, zcdp.guarantee.unit) == (notion, unit)
    assert zcdp.guarantee.relation == "replace-one"
    assert 0.3 * (1 - 1e-6) <= zcdp.guarantee.rho <= 0.3 * (1 + 1e-9)
    approx = begin(name, problem, [0, 1], Budget.approx(1.0, 1e-5), mechanism=mechanism)
    # all releases are Gaussian, so the conversion is exact
    assert 1 - 1e-6 <= approx.guarantee.epsilon(1e-5) <= 1 + 1e-9
    before = str(approx.guarantee)
    play(approx, problem, [0, 1], 400)
    assert str(approx.guarantee) == before == str(approx.ledger.guarantee)


@pytest.mark.parametrize("name", NAMES)
def test_without_a_budget_nothing_is_promised_or_noisy(name):
    problem = problem_of(name, 200)
    agent = begin(name, problem, [0], None)
    assert agent.guarantee is None and agent.ledger is None
    assert agent.releaser.noise_std == 0.0
    again = begin(name, problem, [0], None)
    np.testing.assert_array_equal(
        play(agent, problem, [0], 200)[0], play(again, problem, [0], 200)[0]
    )


class Recorder:
    """Keeps what a releaser released, round by round."""

    def __init__(self):
        self.releases, self.stds = [], []

    def __call__(self, agent):
        self.releases.append(agent.releaser.release())
        self.stds.append(agent.releaser.noise_std)


class Replay:
    """Stands where the releaser stood: swallows records, repeats recorded releases."""

    clipped_count = np.zeros(1)

    def __init__(self, recorder):
        self._recorder, self.rounds = recorder, 0

    def add(self, records, directions=None):
        self.rounds += 1

    def release(self):
        return self._recorder.releases[self.rounds - 1].copy()

    @property
    def noise_std(self):
        return self._recorder.stds[self.rounds - 1]


def scrambled(feedback, rng):
    changed = {"reward": rng.random(len(feedback.reward))}
    if feedback.choice is not None:
        changed["choice"] = rng.integers(-1, 2, len(feedback.reward))
    if feedback.demand is not None:
        changed["demand"] = rng.random(len(feedback.reward))
    return Feedback(**changed)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("budget", [None, Budget.zcdp(5.0)], ids=["exact", "noisy"])
def test_the_policy_depends_on_others_through_releases_only(name, budget):
    """With the releases held fixed, other data change no action: the billboard argument.

    Responses are scrambled in every round; where contexts are private, those of earlier users
    are replaced as well before the policy observes them.
    """
    problem = problem_of(name, 300)
    seeds = [4, 5, 6]
    recorder = Recorder()
    actions, _ = play(begin(name, problem, seeds, budget), problem, seeds, 300, recorder)
    agent = begin(name, problem, seeds, budget)
    agent.releaser = Replay(recorder)
    rng = np.random.default_rng(0)
    instance = problem.instance(seeds)
    for t in range(300):
        context = instance.context()
        action = agent.act(context)
        np.testing.assert_array_equal(action, actions[t])
        feedback = scrambled(instance.respond(action).feedback, rng)
        if name != "one-pass-linear":
            other = rng.permuted(context.features, axis=-1)
            context = context._replace(features=other)
        agent.observe(context, action, feedback)
        if t < 299:
            instance.advance()


@pytest.mark.parametrize("name", NAMES)
def test_a_bad_record_or_one_too_many_is_refused(name):
    problem = problem_of(name, 30)
    agent = begin(name, problem, [0, 1], Budget.zcdp(1.0))
    instance = problem.instance([0, 1])
    context = instance.context()
    action = agent.act(context)
    feedback = instance.respond(action).feedback
    broken = context._replace(features=np.full_like(context.features, np.nan))
    with pytest.raises(ParameterError, match="finite"):
        agent.observe(broken, action, feedback)
    assert agent.releaser.rounds == 0
    for _ in range(30):
        agent.observe(context, action, feedback)
    with pytest.raises(HorizonExceeded):
        agent.observe(context, action, feedback)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_and_problems_are_checked(name):
    for bad in (
        {"ratio": 1.0},
        {"first": 0.0},
        {"decay": -1.0},
        {"every": 0},
        {"start": 0},
        {"norm": math.nan},
        {"mechanism": "none"},
    ):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            make_agent(name, **bad)
    other = problem_of(NAMES[NAMES.index(name) - 1], 30)
    with pytest.raises(AgentError, match=name):
        begin(name, other, [0], None)
    with pytest.raises(BudgetError):
        begin(name, problem_of(name, 30), [0], 1.0)


@pytest.mark.parametrize("name", NAMES)
def test_the_recipe_is_what_the_agent_does_by_default(name):
    import inspect
    from pathlib import Path

    path = Path(__file__).parents[3] / "agents" / "recipes" / f"{name}.yaml"
    recipe = yaml.safe_load(path.read_text())
    assert recipe["agent"] == name
    defaults = {
        k: p.default for k, p in inspect.signature(agent_spec(name).load()).parameters.items()
    }
    assert recipe["parameters"] == {k: defaults[k] for k in recipe["parameters"]}
    assert min(recipe["tuned_on"]["seeds"]) >= 1_000_000


@pytest.mark.parametrize(
    ("name", "budget", "rounds"),
    [
        ("one-pass-mnl", Budget.zcdp(0.5), 1500),
        ("one-pass-pricing", Budget.approx(1.0, 1e-8), 3000),
        ("one-pass-linear", Budget.approx(2.0, 1e-5), 3000),
    ],
)
def test_beats_random_on_a_tight_budget_and_gains_from_a_loose_one(name, budget, rounds):
    problem = problem_of(name, rounds)
    seeds = range(1_000_500, 1_000_516)
    ours = play(begin(name, problem, seeds, budget), problem, seeds, rounds)[1]
    free = play(begin(name, problem, seeds, None), problem, seeds, rounds)[1]
    chance = play(begin("random", problem, seeds, None), problem, seeds, rounds)[1]
    for gap in (chance - ours, ours - free):
        assert gap.mean() > 3 * gap.std(ddof=1) / math.sqrt(len(gap))


def test_gaussian_demand_is_learned():
    problem = dpb_gym.make_problem(GAUSSIAN[0], horizon=5000, **GAUSSIAN[1])
    seeds = range(1_000_600, 1_000_612)
    for budget in (None, Budget.zcdp(2.0)):
        agent = begin("one-pass-pricing", problem, seeds, budget)
        ours = play(agent, problem, seeds, 5000)[1]
        chance = play(begin("random", problem, seeds, None), problem, seeds, 5000)[1]
        gap = chance - ours
        assert gap.mean() > 4 * gap.std(ddof=1) / math.sqrt(len(gap))


@pytest.mark.parametrize("dim", [3, 5])
def test_a_hopeless_budget_costs_no_more_than_the_better_of_price_one_and_random(dim):
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=4000, dim=dim)
    seeds = range(1_000_700, 1_000_712)
    agent = begin("one-pass-pricing", problem, seeds, Budget.approx(0.01, 1e-7))
    ours = play(agent, problem, seeds, 4000)[1].mean()
    one = begin("fixed-price", problem, seeds, None, price=1.0)
    rivals = [play(one, problem, seeds, 4000)[1].mean()]
    rivals.append(play(begin("random", problem, seeds, None), problem, seeds, 4000)[1].mean())
    assert ours <= 1.02 * min(rivals)


@pytest.mark.parametrize("demand", ["logistic", "gaussian"])
def test_pricing_finds_theta_with_ample_data(demand):
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=20_000, demand=demand)
    seeds = [1_000_900, 1_000_901]
    agent = begin("one-pass-pricing", problem, seeds, Budget.zcdp(10.0))
    play(agent, problem, seeds, 20_000)
    truth = problem.instance(seeds).hidden["theta"]
    assert np.abs(agent.theta - truth).max() < 0.15


def test_assortment_finds_the_direction_of_theta_and_plays_uneven_revenues():
    problem = problem_of("one-pass-mnl", 6000, revenues="random", context_norm="clip")
    seeds = range(1_000_950, 1_000_956)
    agent = begin("one-pass-mnl", problem, seeds, Budget.zcdp(5.0))
    regret = play(agent, problem, seeds, 6000)[1]
    truth = problem.instance(seeds).hidden["theta"]
    cosine = (agent.theta * truth).sum(axis=1) / np.linalg.norm(agent.theta, axis=1)
    assert (cosine / np.linalg.norm(truth, axis=1) > 0.9).all()
    chance = play(begin("random", problem, seeds, None), problem, seeds, 6000)[1]
    assert (regret < 0.2 * chance).all()
