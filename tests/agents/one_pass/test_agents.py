"""The one-pass agents: guarantees, dependence on releases alone, and regret."""

from __future__ import annotations

import dataclasses
import inspect
import math

import numpy as np
import pytest
import yaml
from scipy.stats import kstest

import dpb_gym
from dpb_agents.pricing import one_pass_pricing as pricing
from dpb_gym.agent import plays_stretches
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import AgentError, BudgetError, HorizonExceeded, ParameterError
from dpb_gym.kernels.vectors import moved
from dpb_gym.privacy import Budget
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.problems.base import Feedback
from dpb_gym.registry import agent_spec, make_agent
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


def first_release(agent):
    return int(agent.plan.sums.schedule.ends[0])


def play(agent, problem, seeds, rounds, spy=None):
    instance = problem.instance(seeds)
    actions, regret = [], np.zeros(len(seeds))
    for t in range(rounds):
        context = locked(instance.context())
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


def regret_of(agent, problem, seeds, rounds):
    """Return what `play` does, where the agent can in compiled code, which has the same bits."""
    if not plays_stretches(agent):
        return play(agent, problem, seeds, rounds)[1]
    instance = problem.instance(seeds)
    regret, t = np.zeros(len(seeds)), 0
    while t < rounds:
        stretch = instance.move(rounds - t)
        view = stretch.view()
        expected, observed, _ = stretch.outcome(view, agent.play(view), "agent")
        regret += instance.regret(expected, observed, stretch.best).sum(axis=0)
        t += len(expected)
        if t < rounds:
            instance.advance()
    return regret


@pytest.mark.parametrize("name", NAMES)
def test_runs_in_compiled_code_have_the_same_regret(name):
    problem = problem_of(name, 300)
    one, other = (
        way(begin(name, problem, [3, 4], Budget.zcdp(1.0)), problem, [3, 4], 300)
        for way in (play, regret_of)
    )
    np.testing.assert_allclose(other, one[1], rtol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_ledger_spends_the_budget_and_no_more(name):
    notion, unit = {
        "one-pass-mnl": ("joint", "user-round"),
        "one-pass-pricing": ("anticipating", "user-round"),
        "one-pass-linear": ("central", "reward"),
    }[name]
    problem = problem_of(name, 400)
    zcdp = begin(name, problem, [0, 1], Budget.zcdp(0.3))
    assert (zcdp.curator.guarantee.notion, zcdp.curator.guarantee.unit) == (notion, unit)
    assert zcdp.curator.guarantee.relation == "replace-one"
    assert 0.3 * (1 - 1e-6) <= zcdp.curator.guarantee.rho <= 0.3 * (1 + 1e-9)
    approx = begin(name, problem, [0, 1], Budget.approx(1.0, 1e-5))
    # all releases are Gaussian, so the conversion is exact
    assert 1 - 1e-6 <= approx.curator.guarantee.epsilon(1e-5) <= 1 + 1e-9
    before = str(approx.curator.guarantee)
    play(approx, problem, [0, 1], 400)
    assert str(approx.curator.guarantee) == before
    assert before.startswith(str(approx.curator.ledger.guarantee))


@pytest.mark.parametrize("name", NAMES)
def test_without_a_budget_there_is_no_guarantee_and_no_noise(name):
    problem = problem_of(name, 200)
    agent = begin(name, problem, [0], None)
    assert agent.curator.guarantee is None
    assert agent.curator.releasers[0].noise_std == 0.0
    again = begin(name, problem, [0], None)
    np.testing.assert_array_equal(
        play(agent, problem, [0], 200)[0], play(again, problem, [0], 200)[0]
    )


class Recorder:
    """Keeps what a releaser released, round by round."""

    def __init__(self):
        self.values, self.stds = [], []

    def __call__(self, agent):
        releaser = agent.curator.releasers[0]
        self.values.append(releaser.value.copy())
        self.stds.append(releaser.noise_std)


def replay(releaser, recorder):
    """Makes a releaser swallow its records and repeat recorded releases."""

    class Replay(type(releaser)):
        def add(self, records, along=None, users=None):
            self.rounds += 1

        @property
        def value(self):
            return recorder.values[self.rounds - 1].copy()

        @property
        def noise_std(self):
            return recorder.stds[self.rounds - 1]

    releaser.__class__ = Replay


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
    replay(behind(agent.curator.releasers[0]), recorder)
    rng = np.random.default_rng(0)
    instance = problem.instance(seeds)
    for t in range(300):
        context = locked(instance.context())
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
    context = locked(instance.context())
    action = agent.act(context)
    feedback = instance.respond(action).feedback
    broken = context._replace(features=np.full_like(context.features, np.nan))
    with pytest.raises(ParameterError, match="finite"):
        agent.observe(broken, action, feedback)
    assert agent.curator.releasers[0].rounds == 0
    for _ in range(30):
        agent.observe(context, action, feedback)
    with pytest.raises(HorizonExceeded):
        agent.observe(context, action, feedback)


@pytest.mark.parametrize("name", NAMES)
def test_parameters_and_problems_are_checked(name):
    own = {
        "one-pass-mnl": [{"cut": 0.0}, {"bound": 0.0}, {"share": 1.0}, {"anytime": 3}],
        "one-pass-pricing": [{"clip": 0.0}, {"bound": 0.0}, {"disperse": -1.0}],
        "one-pass-linear": [{"effect": -1.0}, {"intercept": -1.0}],
    }[name]
    for bad in ({"decay": -1.0}, {"first": 0.0}, {"norm": math.nan}, *own):
        with pytest.raises(ParameterError, match=next(iter(bad))):
            make_agent(name, **bad)
    assert len(inspect.signature(agent_spec(name).maker).parameters) <= 11
    other = problem_of(NAMES[NAMES.index(name) - 1], 30)
    with pytest.raises(AgentError, match=name):
        begin(name, other, [0], None)
    with pytest.raises(BudgetError):
        begin(name, problem_of(name, 30), [0], 1.0)


def test_a_retired_parameter_names_its_successor():
    with pytest.raises(ParameterError, match=r"'rare': .*disperse=0"):
        make_agent("one-pass-pricing", rare=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_the_recipe_equals_the_defaults(name):
    from pathlib import Path

    path = Path(__file__).parents[3] / "agents" / "recipes" / f"{name}.yaml"
    recipe = yaml.safe_load(path.read_text())
    assert recipe["agent"] == name
    defaults = {
        k: p.default for k, p in inspect.signature(agent_spec(name).maker).parameters.items()
    }
    assert recipe["parameters"] == {k: defaults[k] for k in recipe["parameters"]}
    assert min(recipe["tuned_on"]["seeds"]) >= 1_000_000


@pytest.mark.parametrize(
    ("name", "budget", "rounds"),
    [
        ("one-pass-mnl", Budget.zcdp(0.1), 1500),
        ("one-pass-pricing", Budget.approx(1.0, 1e-8), 3000),
        ("one-pass-linear", Budget.approx(1.0, 1e-5), 3000),
    ],
)
def test_beats_random_on_a_tight_budget_and_gains_from_a_loose_one(name, budget, rounds):
    problem = problem_of(name, rounds)
    seeds = range(1_000_500, 1_000_516)
    ours = regret_of(begin(name, problem, seeds, budget), problem, seeds, rounds)
    free = regret_of(begin(name, problem, seeds, None), problem, seeds, rounds)
    chance = regret_of(begin("random", problem, seeds, None), problem, seeds, rounds)
    for gap in (chance - ours, ours - free):
        assert gap.mean() > 3 * gap.std(ddof=1) / math.sqrt(len(gap))


def test_gaussian_demand_is_learned():
    problem = dpb_gym.make_problem(GAUSSIAN[0], horizon=5000, **GAUSSIAN[1])
    seeds = range(1_000_600, 1_000_612)
    chance = total("random", problem, seeds, None)
    for budget in (None, Budget.zcdp(2.0)):
        ours = total("one-pass-pricing", problem, seeds, budget)
        gap = chance - ours
        assert gap.mean() > 4 * gap.std(ddof=1) / math.sqrt(len(gap))


def total(name, problem, seeds, budget, **params):
    agent = begin(name, problem, seeds, budget, **params)
    return regret_of(agent, problem, seeds, problem.horizon)


def with_intercept(horizon):
    """A shop of logit 1 + .5 x1 - .3 x2 - 3 p, where price 1 is the worst."""
    features = np.random.default_rng(5).uniform(-1, 1, (horizon, 2))
    customers, logit = np.column_stack([np.ones(horizon), features]), [1.0, 0.5, -0.3, 3.0]
    return {"dim": 4, "customers": customers, "theta": np.array(logit) / 2}


SHOPS = ("intercept", "mild", "price 1 is best", "steep")


@pytest.mark.parametrize(
    ("shop", "rho"),
    [
        pytest.param(shop, rho, marks=pytest.mark.long if (i + j) % 2 else ())
        for i, shop in enumerate(SHOPS)
        for j, rho in enumerate((1e-6, 3e-4))
    ],
)
def test_no_budget_has_more_regret_than_random_prices(shop, rho):
    kwargs = {"mild": {"dim": 3}, "price 1 is best": {"dim": 5}, "steep": {"dim": 5, "zeta": 30.0}}
    kwargs["intercept"] = with_intercept(4000)
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=4000, **kwargs[shop])
    seeds = range(1_000_700, 1_000_708)
    ours = total("one-pass-pricing", problem, seeds, Budget.zcdp(rho))
    assert ours.mean() < total("random", problem, seeds, None).mean()


@pytest.mark.parametrize("budget", ["rho=0.02@local", "rho=0.1@local", "rho=0.02@aggregator"])
def test_without_a_curator_a_shop_with_an_intercept_costs_less_than_random_prices(budget):
    features = np.clip(0.4 * np.random.default_rng(31).standard_normal((4000, 4)), -1, 1)
    features[:, -1] = 1.0
    shop = {"dim": 5, "customers": features, "theta": [0.3, -0.2, 0.2, 0.7, 1.6]}
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=4000, zeta=8.0, **shop)
    seeds = range(1_000_800, 1_000_806)
    ours = total("one-pass-pricing", problem, seeds, Budget.parse(budget))
    assert ours.mean() < 0.95 * total("random", problem, seeds, None).mean()


def test_hopeless_budgets_play_the_law_of_least_worst_case_regret():
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=600)
    agent = begin("one-pass-pricing", problem, range(8), Budget.zcdp(1e-3))
    prices, _ = play(agent, problem, range(8), 600)
    assert first_release(agent) < 600  # there are releases, but too late
    assert kstest(-np.log(prices).ravel(), "uniform").pvalue > 0.01
    # of v, the most that a customer would pay: v - 1/e is earned of v > 1/e
    values = np.linspace(0.05, 1.0, 20)
    earned = (prices.ravel() * (prices.ravel() <= values[:, None])).mean(axis=1)
    assert (values - earned).max() == pytest.approx(1 / math.e, abs=0.02)
    known = begin("one-pass-pricing", problem, range(8), Budget.zcdp(1e-3), prior_mean=[0, 0, 0.1])
    assert (play(known, problem, range(8), 100)[0] == 1.0).all()


def test_a_draw_is_rejected_if_it_costs_more_than_twice_what_it_may_gain():
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=10, dim=2)
    agent = begin("one-pass-pricing", problem, [0], None, level=0.0)
    customer, z = np.zeros(1), np.ones(2)

    def price(slope, of_draw):
        """The price at <0, theta> with these slopes of theta and of the draw."""
        root = np.diag([0.0, of_draw - slope])
        state = type(agent.state)(*(part[0] for part in agent.state))
        state = state._replace(theta=np.array([0.0, slope]), root=root)
        np.testing.assert_allclose(moved(state.theta, root, z), [0.0, of_draw])
        return pricing.act(agent.known, state, 10, customer, z[None])

    best = {slope: price(slope, slope) for slope in (0.2, 0.8, 0.9)}
    assert best[0.2] == 1.0 > best[0.8] > best[0.9]
    assert price(0.2, 0.9) == 1.0  # far from any reason for a lower price
    assert price(0.9, 0.8) == best[0.8]  # within (0, 1): costs what it gains


@pytest.mark.parametrize(("demand", "near"), [("logistic", 0.15), ("gaussian", 0.4)])
def test_pricing_estimates_theta_and_its_error_with_ample_data(demand, near):
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=20_000, demand=demand)
    seeds = [1_000_900, 1_000_901]
    agent = begin("one-pass-pricing", problem, seeds, Budget.zcdp(10.0))
    regret_of(agent, problem, seeds, 20_000)
    truth = problem.instance(seeds).hidden["theta"]
    assert not agent.state.theta[:, 0].any()  # the coefficient of the level
    error = np.abs(agent.state.theta[:, 1:] - truth)
    assert error.max() < near
    assert (error < 4 * np.sqrt(np.einsum("bii->bi", agent.state.V)[:, 1:])).all()


def test_assortment_estimates_the_direction_of_theta_with_uneven_revenues():
    problem = problem_of("one-pass-mnl", 6000, revenues="random", context_norm="clip")
    seeds = range(1_000_950, 1_000_956)
    agent = begin("one-pass-mnl", problem, seeds, Budget.zcdp(5.0))
    regret = regret_of(agent, problem, seeds, 6000)
    truth = problem.instance(seeds).hidden["theta"]
    theta = agent.state.theta[:, 1:]  # without the coefficient of the level
    cosine = (theta * truth).sum(axis=1) / np.linalg.norm(theta, axis=1)
    assert (cosine / np.linalg.norm(truth, axis=1) > 0.9).all()
    chance = play(begin("random", problem, seeds, None), problem, seeds, 6000)[1]
    assert (regret < 0.2 * chance).all()


def test_draws_do_not_depend_on_the_unit_of_the_responses():
    """Without cuts and with little noise, `cut` only multiplies rows, whose weights undo it."""
    contexts = np.random.default_rng(3).uniform(-0.1, 0.1, (40, 12, 3))
    problem = problem_of("one-pass-mnl", 40, contexts=contexts, theta=[9.0, 0.0, -12.0])
    seeds, estimates = range(1_000_960, 1_000_976), []
    for cut in (0.5, 2.0):
        agent = begin(
            "one-pass-mnl", problem, seeds, Budget.zcdp(1e8), norm=15.0, cut=cut, level=0.0
        )
        play(agent, problem, seeds, 8)  # of 9 with draws
        estimates.append((agent.state.theta, np.einsum("bii->b", agent.state.V)))
    (short, narrow), (long, wide) = estimates
    assert np.abs(long - short).max() < 0.1 * np.abs(long).max() > 1.0
    np.testing.assert_allclose(narrow, wide, rtol=0.1)


def test_prices_separate_an_intercept_from_a_slope():
    """Price 1 alone, and greedy prices, know only the difference of the two."""
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=4000, **with_intercept(4000))
    seeds = range(1_001_000, 1_001_008)
    chance = total("random", problem, seeds, None).mean()
    for budget, part in (("rho=0.02", 0.8), ("rho=1", 0.35), (None, 0.2)):
        budget = None if budget is None else Budget.parse(budget)
        own = total("one-pass-pricing", problem, seeds, budget).mean()
        assert own < part * chance
    greedy = total("one-pass-pricing", problem, seeds, None, disperse=0.0).mean()
    assert greedy > 3 * own


@pytest.mark.slow
def test_switched_customers_cost_at_most_three_times_the_regret_of_glm_ucb():
    """Two corners, the second from T / 2 on; each alone is an intercept."""
    T = 20_000
    customers = np.repeat([[1.0, -1.0], [-1.0, 1.0]], T // 2, axis=0)
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=T, dim=3, customers=customers)
    seeds = range(1_001_100, 1_001_106)
    ucb = total("glm-ucb-pricing", problem, seeds, None).mean()
    assert total("one-pass-pricing", problem, seeds, Budget.parse("rho=0.5")).mean() < 3 * ucb
    assert total("one-pass-pricing", problem, seeds, None).mean() < ucb
    blunt = total("one-pass-pricing", problem, seeds, None, disperse=0.0).mean()
    assert blunt > 2 * ucb


@pytest.mark.parametrize(
    ("name", "kwargs"), [("one-pass-mnl", {"context_norm": "clip"}), ("one-pass-pricing", {})]
)
def test_a_warm_start_lowers_the_regret(name, kwargs):
    problem = problem_of(name, 1500, **kwargs)
    seeds = range(1_001_200, 1_001_212)
    truth = problem.instance(seeds).hidden["theta"].mean(axis=0)
    cold = total(name, problem, seeds, Budget.zcdp(0.05)).mean()
    warm = total(name, problem, seeds, Budget.zcdp(0.05), prior_mean=truth, norm=0.5).mean()
    assert warm < 0.7 * cold
    agent = begin(name, problem, seeds, Budget.zcdp(0.05), prior_mean=truth)
    theta = agent.state.theta[:, -truth.size :]
    np.testing.assert_array_equal(theta, np.tile(truth, (len(seeds), 1)))
    with pytest.raises(ParameterError, match="prior_mean"):
        begin(name, problem, seeds, None, prior_mean=truth[:-1])


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("DPB/Pricing-v0", {"theta": [-2.9, -2.9, -2.9, -2.9, 7.9]}),
        ("DPB/Assortment-v0", {"theta": [9.0, -9.0, 9.0, -9.0, 9.0], "revenues": "random"}),
    ],
)
def test_first_records_are_left_out_if_theta_is_longer_than_the_prior_expects(
    monkeypatch, env_id, kwargs
):
    problem = dpb_gym.make_problem(env_id, horizon=4000, dim=5, **kwargs)
    name = "one-pass-pricing" if "Pricing" in env_id else "one-pass-mnl"
    seeds = range(1_001_400, 1_001_406)
    own = total(name, problem, seeds, None).mean()
    monkeypatch.setattr("dpb_agents.kernels.curvature.FIRST_PART", 0.0)
    assert own < 0.8 * total(name, problem, seeds, None).mean()


def test_a_zeta_of_half_doubles_the_regret_and_one_of_twice_hardly_adds_to_it():
    """The demand's steepness is learned as the size of theta."""
    right = dpb_gym.make_problem("DPB/Pricing-v0", horizon=6000, dim=3, zeta=4.0)
    seeds = range(1_001_300, 1_001_348)
    best = total("one-pass-pricing", right, seeds, Budget.zcdp(0.5)).mean()
    for zeta, low, high in ((2.0, 1.5, 2.4), (8.0, 0.9, 1.5)):
        wrong = dataclasses.replace(right.info, zeta=zeta)
        agent = make_agent("one-pass-pricing")
        agent.set_up(wrong, AgentStreams(seeds), Budget.zcdp(0.5))
        regret = regret_of(agent, right, seeds, right.horizon)
        assert low * best < regret.mean() < high * best


def test_exact_sums_use_the_first_records_with_heavy_tails():
    features = np.random.default_rng(3).standard_t(2.0, (400, 20, 20)).astype(np.float32)
    kwargs = {"n_items": 20, "capacity": 4, "dim": 20, "contexts": features}
    problem = dpb_gym.make_problem("DPB/Assortment-v0", horizon=400, **kwargs)
    seeds = range(1_001_500, 1_001_524)
    chance = total("random", problem, seeds, None).mean()
    assert total("one-pass-mnl", problem, seeds, None).mean() < chance / 100


@pytest.mark.parametrize(
    ("revenues", "budget"),
    [
        ("equal", None),
        ("random", Budget.zcdp(1.0)),
        pytest.param("random", None, marks=pytest.mark.long),
        pytest.param("equal", Budget.zcdp(1.0), marks=pytest.mark.long),
    ],
)
def test_a_hidden_level_of_the_outside_option_is_learned(revenues, budget):
    kwargs = {"n_items": 30, "capacity": 4, "dim": 3, "theta": [0.6, -0.7, 0.4], "intercept": -3.0}
    problem = dpb_gym.make_problem("DPB/Assortment-v0", horizon=4000, revenues=revenues, **kwargs)
    seeds = range(1_002_100, 1_002_108)
    ours = total("one-pass-mnl", problem, seeds, budget)
    without = total("one-pass-mnl", problem, seeds, budget, level=0.0)
    assert ours.mean() < 0.4 * without.mean()


def test_a_hidden_intercept_is_learned():
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=5000, dim=4, zeta=6.0, intercept=-0.3)
    seeds = range(1_002_200, 1_002_212)
    ours = total("one-pass-pricing", problem, seeds, Budget.zcdp(1.0)).mean()
    random = total("random", problem, seeds, None).mean()
    without = total("one-pass-pricing", problem, seeds, Budget.zcdp(1.0), level=0.0).mean()
    assert ours < 0.8 * random < random < without


@pytest.mark.parametrize("name", ["one-pass-mnl", "one-pass-pricing"])
def test_a_level_is_a_probability_below_one(name):
    for level in (-0.1, 1.0):
        with pytest.raises(ParameterError, match="level"):
            make_agent(name, level=level)


def test_offers_under_the_prior_beat_random_sets():
    """Larger items vary more, and one of several directions sells: no record is needed for that."""
    problem = dpb_gym.make_problem("DPB/Assortment-v0", horizon=60, n_items=50, capacity=5, dim=5)
    seeds = range(1_001_600, 1_001_608)
    agent = begin("one-pass-mnl", problem, seeds, Budget.zcdp(1e-5))
    actions, regret = play(agent, problem, seeds, 60)
    assert first_release(agent) >= 60
    assert (actions >= 0).all()
    assert regret.mean() < 0.75 * total("random", problem, seeds, None).mean()


USERS = {"one-pass-mnl": "joint", "one-pass-pricing": "anticipating"}


@pytest.mark.parametrize("name", USERS)
@pytest.mark.parametrize("replayed", [False, True])
def test_only_the_first_rounds_of_a_user_are_learnt_from(name, replayed):
    problem = problem_of(name, 90, returning=12)
    info = dataclasses.replace(problem.info, partial_feedback=replayed)
    agent = make_agent(name, max_rounds_per_user=3)
    agent.set_up(info, AgentStreams([0]), Budget.zcdp(0.01))
    guarantee, releaser = agent.curator.guarantee, behind(agent.curator.releasers[0])
    assert (guarantee.notion, guarantee.unit) == (USERS[name], "user")
    assert guarantee.covers("anticipating", "user-rewards", "replace-one")
    assert guarantee.rho == pytest.approx(0.01) and releaser.sensitivity == pytest.approx(3.0)
    instance, counted = problem.instance([0]), np.zeros(12, int)
    for t in range(89):  # the sum is released in the last round
        context = locked(instance.context())
        action = agent.act(context)
        seen = t % 4 != 3
        feedback = instance.respond(action).feedback._replace(observed=np.array([seen]))
        user = context.users[0]
        # which rounds of a replay are observed is protected, so there all rounds count; a round
        # without a delayed response has no user
        counted[user] += seen or replayed
        who = context.users if seen or replayed else np.array([-1])
        before = releaser._total.copy()
        agent.observe(context._replace(users=who), action, feedback)
        assert (releaser._total != before).any() == (seen and counted[user] <= 3), t
        instance.advance()
    assert counted.max() > 10 and counted.min() < 3


@pytest.mark.parametrize("name", USERS)
def test_users_must_be_identified(name):
    problem = problem_of(name, 20)
    with pytest.raises(ParameterError, match="identifies users"):
        play(begin(name, problem, [0], Budget.zcdp(1.0), max_rounds_per_user=2), problem, [0], 1)


@pytest.mark.parametrize(("level", "rho"), [(0.0, 0.05), (0.1, 0.2)])
def test_constants_of_items_do_not_lock_in(level, rho):
    """A constant as long as the items' features takes half of their sensitivity."""
    features = np.tile(np.eye(4, 6, dtype=np.float32), (4000, 1, 1))
    features[..., 4:] = np.random.default_rng(1).normal(0.0, 0.15, (4000, 4, 2))
    result = dpb_gym.evaluate(
        "DPB/Assortment-v0",
        {"ours": ("one-pass-mnl", f"rho={rho}", {"level": level}), "random": "random"},
        horizon=4000,
        replicates=16,
        seed=5,
        env_kwargs={
            **{"n_items": 4, "capacity": 1, "dim": 6, "contexts": features},
            "theta": [0.3, 1.3, -0.1, -0.8, -1.0, -2.0],
        },
        progress=False,
    )
    assert result.final_regret("ours").max() < 0.4 * result.final_regret("random").mean()


@pytest.mark.parametrize(
    ("name", "env", "params"),
    [
        ("one-pass-pricing", "DPB/Pricing-v0", {"clip": 0.05, "bound": 0.02}),
        ("one-pass-mnl", "DPB/Assortment-v0", {"cut": 0.1}),
        ("one-pass-linear-joint", "DPB/Recommendation-v0", {"curvature": 0.5}),
    ],
)
@pytest.mark.parametrize("trust", ["", "@aggregator", "@shuffler", "@local"])
def test_agents_play_under_every_trust_model_and_no_row_is_clipped(name, env, params, trust):
    problem = dpb_gym.make_problem(env, horizon=150)
    agent = make_agent(name, **params)
    agent.set_up(problem.info, AgentStreams([0, 1]), Budget.parse(f"rho=40{trust}"))
    instance = problem.instance([0, 1])
    for _ in range(150):
        context = locked(instance.context())
        action = agent.act(context)
        agent.observe(context, action, instance.respond(action).feedback)
        instance.advance() if context.t < 150 else None
    releaser = behind(agent.curator.releasers[0])
    assert releaser.releases == len(releaser.schedule.ends) > 1
    assert not releaser.clipped_count.any()
    assert np.isfinite(agent.state.theta).all() and agent.state.theta.any()
