"""private-pricing: cost, noise scales, prices, and the private MLE."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from dpb_agents.pricing import paper_constants
from dpb_agents.pricing.paper_constants import Demand
from dpb_agents.pricing.private_demand_mle import PrivateMLE
from dpb_agents.pricing.private_pricing import LITERAL
from dpb_gym import make_agent, make_problem
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import AgentError, BudgetError, BudgetExceeded, HorizonExceeded, ParameterError
from dpb_gym.privacy import Budget, Curator, NoiseSource
from dpb_gym.problems.base import Context, Feedback
from dpb_gym.streams import AgentStreams

T = 100_000
EPS, DELTA = 1.0, 1e-10  # of each part: T = 1e5, delta = 1 / T^2
PAPER = Budget.approx(2 * EPS, 2 * DELTA)


def begun(budget, params=None, seeds=(0, 1), **env):
    agent = make_agent("private-pricing", **(params or {}))
    problem = make_problem("DPB/Pricing-v0", **{"horizon": 2000, **env})
    agent.set_up(problem.info, AgentStreams(list(seeds)), budget)
    return agent


def play(budget, params=None, seeds=(0, 1), name="private-pricing", **env):
    problem = make_problem("DPB/Pricing-v0", **{"horizon": 400, **env})
    agent = make_agent(name, **(params or {}))
    instance = problem.instance(list(seeds))
    agent.set_up(problem.info, AgentStreams(list(seeds)), budget)
    prices, regret = [], np.zeros(len(seeds))
    for t in range(problem.horizon):
        context = locked(instance.context())
        prices.append(agent.act(context).copy())
        outcome = instance.respond(prices[-1])
        agent.observe(context, prices[-1], outcome.feedback)
        regret += outcome.regret
        if t < problem.horizon - 1:
            instance.advance()
    return agent, np.array(prices), regret


# ------------------------------------------------------------------ the guarantee


@pytest.mark.parametrize("mechanism", ["binary-tree", "blt", "sqrt-toeplitz"])
@pytest.mark.parametrize("demand", ["logistic", "gaussian"])
def test_spends_its_zcdp_budget_and_no_more(mechanism, demand):
    agent = begun(Budget.zcdp(0.3), {"mechanism": mechanism}, demand=demand)
    guarantee = agent.curator.guarantee
    assert (guarantee.notion, guarantee.unit) == ("anticipating", "user-round")
    assert guarantee.relation == "replace-one"
    assert 0.3 * (1 - 2e-4) <= guarantee.rho <= 0.3 * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.04, 2.0])
def test_spends_its_approximate_budget_and_no_more(epsilon):
    guarantee = begun(Budget.approx(epsilon, 2 * DELTA), horizon=T).curator.guarantee
    assert epsilon * (1 - 1e-5) <= guarantee.epsilon(2 * DELTA) <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize("zeta", [400.0, 7000.0])
def test_a_demand_without_a_slope_is_refused(zeta: float) -> None:
    """1 / f'(2) is infinite, which no calibration can use."""
    with pytest.raises(AgentError, match=f"zeta = {zeta:g} it is 0 in floating point"):
        Demand.of("logistic", zeta, 5.0)
    assert math.isfinite(Demand.of("logistic", 100.0, 5.0).K)


def test_the_guarantee_is_known_before_the_first_round():
    before = begun(Budget.zcdp(0.7), horizon=400).curator.guarantee
    agent, _, _ = play(Budget.zcdp(0.7))
    assert agent.curator.guarantee == before


def test_verified_noise_by_hand():
    params = {"mechanism": "binary-tree", "every": 1, "share": 0.8, "max_updates": 4}
    agent = begun(Budget.zcdp(0.5), params, horizon=T)
    gram, plan = agent._releasers.gram, agent._releasers.estimator.plan
    m = math.floor(math.log2(T)) + 1
    assert gram.sensitivity == pytest.approx(math.sqrt(2))  # erratum P1
    # m nodes of sensitivity sqrt 2: rho = m * 2 / (2 sigma^2)
    assert gram.sigma**2 == pytest.approx(m / 0.1, rel=1e-6)
    # gradients differ by at most 2 zeta; half of the share pays for the curvature
    assert plan.sigma == pytest.approx(8 / math.sqrt(2 * 0.5 * 0.1), rel=1e-3)
    assert plan.event.zcdp == pytest.approx(0.4 / 4, rel=2e-4)


@pytest.mark.parametrize("calibration", ["paper", "paper-curvature"])
def test_the_printed_constants_by_hand(calibration):
    """Algorithms 2 and 3 and erratum P5 at d = 3, T = 1e5, epsilon_1 = 1, by hand."""
    agent = begun(PAPER, {"calibration": calibration}, horizon=T)
    known = agent._releasers
    d, m, D = 3, 17, 50
    assert known.max_updates == D == math.ceil(d * math.log2(T))
    inner = DELTA / (2 * m)
    node = EPS / (2 * m * math.log(1 / inner))
    assert known.gram.sigma == pytest.approx(math.sqrt(2 * math.log(1.25 / inner)) / node)
    assert known.gram.sigma == pytest.approx(6.6e3, rel=0.02)  # 6.6e4 at epsilon = 0.1
    each = DELTA / (2 * D)
    call = EPS / (2 * math.sqrt(2 * D * math.log(1 / each)))
    nu = 8 / call * math.sqrt(8 * math.log(2 / each) + 4 * call)
    plan = known.estimator.plan
    assert plan.sigma == pytest.approx(nu)
    tail = 1 / (1 + math.exp(8))
    K = 1 / (4 * tail * (1 - tail))  # f(z) = 1 / (1 + exp(-4 z)) is flattest at |z| = 2
    B2 = 4 * K if calibration == "paper" else 4.0
    assert plan.ridge == pytest.approx(2 * B2 / call)
    if calibration == "paper":
        assert 1.2e4 < plan.sigma < 1.5e4 and 5.5e5 < plan.ridge < 6.5e5
    assert (agent.explore, agent.gamma, known.shift) == (10, 1.0, 10.0)


def test_the_printed_calibration_reports_its_true_cost():
    """Erratum P3: composition divides by far too much, so the run spends little."""
    paper = begun(PAPER, {"calibration": "paper"}, horizon=T).curator.guarantee
    assert 0.01 < paper.epsilon(2 * DELTA) < 0.05
    m = 17
    agent = begun(PAPER, {"calibration": "paper"}, horizon=T)
    gram = m * 2 / (2 * agent._releasers.gram.sigma**2)  # at the true sensitivity sqrt 2
    mle = 50 * agent._releasers.estimator.plan.event.zcdp
    assert paper.rho == pytest.approx(gram + mle, rel=1e-6)


def test_without_composition_it_is_not_private_as_claimed():
    agent = begun(PAPER, {"calibration": "paper-uncomposed"}, horizon=T)
    plan = agent._releasers.estimator.plan
    assert plan.ridge == 10.0
    assert plan.sigma == pytest.approx(8 * math.sqrt(8 * math.log(2 / DELTA) + 4))
    assert agent._releasers.gram.sigma == pytest.approx(math.sqrt(2 * math.log(1.25 / DELTA)))
    assert agent.curator.guarantee.epsilon(2 * DELTA) > 10 * 2 * EPS


@pytest.mark.parametrize("parameters", ["general", "stochastic"])
def test_the_theorems_parameters(parameters):
    """Theorems 1 and 2 for Gaussian demand: K = G = s = 1."""
    params = {"calibration": f"paper-{parameters}", "demand_bound": 2.0}
    agent = begun(PAPER, params, horizon=T, demand="gaussian", dim=2)
    d, log, D = 2, math.log(T), math.ceil(2 * math.log(T) / math.log(1.5))
    each = DELTA / (2 * D)
    call = EPS / (2 * math.sqrt(2 * D * math.log(1 / each)))
    nu = 3 / call * math.sqrt(8 * math.log(2 / each) + 4 * call)
    ridge = max(d**1.5 * log**5, 5 * nu * math.sqrt(5 * d * log), 2 + 48 * d * log)
    assert agent._releasers.max_updates == D
    assert agent._releasers.shift == agent._releasers.estimator.plan.ridge == pytest.approx(ridge)
    if parameters == "general":
        gamma = (math.sqrt(3) + math.sqrt(5) * nu) * math.sqrt(d * log) + 5 * math.sqrt(ridge)
        assert agent.explore == 0
    else:
        gamma = 4 * math.sqrt(d * log)
        assert agent.explore == T  # the theorem's T0 is larger than any horizon tried
    assert agent.gamma == pytest.approx(gamma)


def test_constants_of_the_demand_models():
    flat = Demand.of("logistic", 0.5, 1.0)
    tail = expit(-1.0)
    assert pytest.approx(1 / (0.5 * tail * (1 - tail))) == flat.K and flat.G == 2.0
    assert Demand.of("gaussian", None, 3.0).gradient_bound == 5.0
    assert paper_constants.most_updates("general", 3, T) == math.ceil(
        3 * math.log(T) / math.log(1.5)
    )


# ------------------------------------------------------------------ printed forms


def test_every_printed_form_has_a_test():
    assert set(LITERAL) == {"algorithm-2", "lemma-6", "lemma-6-revenue"}


@pytest.mark.parametrize(("literal", "share"), [((), 0.5), (("algorithm-2",), 1.0)])
def test_the_noise_of_algorithm_2(literal, share):
    """W_ij ~ N(0, sigma^2) at i <= j; isometric noise has half the variance off the diagonal."""
    params = {"calibration": "paper", "literal": literal}
    gram = begun(PAPER, params, range(3000), horizon=4)._releasers.gram
    gram.add(np.zeros(3000), np.zeros((3000, 3)))
    noise = gram.value / gram.sigma
    np.testing.assert_array_equal(noise, noise.transpose(0, 2, 1))
    expected = np.where(np.eye(3) > 0, 1.0, share)
    np.testing.assert_allclose(noise.var(axis=0), expected, atol=0.12)


def test_the_printed_noise_costs_no_more():
    """Off the diagonal the literal noise is larger, and the distance is that of i <= j alone."""
    costs = [
        begun(PAPER, {"calibration": "paper", "literal": form}, horizon=T).curator.guarantee.rho
        for form in ((), ("algorithm-2",))
    ]
    assert costs[1] == pytest.approx(costs[0], rel=1e-9)


@pytest.mark.parametrize("form", ["lemma-6", "lemma-6-revenue"])
def test_prices_of_lemma_6_are_the_best_of_a_grid(form):
    """p min{1, p f + bonus} as printed, and p min{1, f + bonus} as in the sentence before."""
    rng = np.random.default_rng(0)
    params = {"calibration": "paper", "gamma": 2.0, "explore": 0, "literal": [form]}
    agent = begun(PAPER, params, range(40), horizon=50)
    agent._theta = np.column_stack([rng.normal(size=(40, 2)), 1 + 2 * rng.random(40)])
    # a bonus that is large at low prices and small near 1
    v = np.column_stack([0.5 + 0.1 * rng.normal(size=(40, 2)), np.ones(40)])
    agent._inverse = 10.0 * v[:, :, None] * v[:, None] + 0.01 * np.eye(3)
    x = np.ones((40, 2), np.float32)
    price = agent.act(Context(1, x))

    def bound(b, p, cap=1.0):
        phi = np.column_stack([np.tile(x[b].astype(float), (len(p), 1)), -p]) / math.sqrt(3)
        f = expit(4 * phi @ agent._theta[b])
        bonus = 2.0 * np.sqrt(np.einsum("nj,jk,nk->n", phi, agent._inverse[b], phi))
        return p * np.minimum(cap, (p * f if form == "lemma-6" else f) + bonus)

    grid, capped = np.linspace(0, 1, 20_001), 0
    for b in range(40):
        values, free = bound(b, grid), bound(b, grid, cap=np.inf)
        assert bound(b, price[b : b + 1])[0] >= values.max() - 1e-9
        capped += values[free.argmax()] < values.max() - 1e-3
    assert capped > 0  # somewhere the cap of 1 moves the maximum


def test_lemma_6_moves_prices_of_the_paper():
    """At T = 2000 and gamma = 1 the three bounds have different maximisers."""
    prices = []
    for form in ((), ("lemma-6",), ("lemma-6-revenue",)):
        params = {"calibration": "paper-uncomposed", "literal": form}
        prices.append(play(PAPER, params, range(4), horizon=300, dim=2)[1])
    assert not np.array_equal(prices[0], prices[1])
    assert not np.array_equal(prices[1], prices[2])


# ------------------------------------------------------------------ what it plays


def test_the_literal_reading_posts_price_one():
    budget, params = Budget.approx(2.0, 2e-8), {"calibration": "paper"}
    agent, prices, _ = play(budget, params, range(4), horizon=2000)
    assert (prices[10:] == 1.0).all() and (prices[:10] < 1.0).all()
    assert (agent.updates > 0).all()


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"gamma": 0.5, "growth": 1.3, "mechanism": "binary-tree"},
        {"calibration": "paper-curvature"},
        {"calibration": "paper-uncomposed"},
    ],
)
@pytest.mark.parametrize("demand", ["logistic", "gaussian"])
def test_replicates_do_not_depend_on_the_batch(params, demand):
    budget = Budget.approx(20.0, 1e-5)
    agent, batch, regret = play(budget, params, range(6), demand=demand)
    assert len(set(agent.updates)) > 1 or agent.updates[0] > 1
    for seeds in ([0], [5], [1, 3]):
        _, part, own = play(budget, params, seeds, demand=demand)
        np.testing.assert_array_equal(part, batch[:, seeds])
        np.testing.assert_array_equal(own, regret[seeds])


@pytest.mark.slow
@pytest.mark.parametrize(
    "env", [{}, {"dim": 5}, {"demand": "gaussian"}, {"customers": "two-type", "dim": 2}]
)
def test_beats_random_and_price_one(env):
    seeds, env = range(300, 312), {"horizon": 3000, **env}
    ours = play(Budget.zcdp(3.0), None, seeds, **env)[2]
    gap = play(None, None, seeds, "random", **env)[2] - ours
    assert gap.mean() > 4 * gap.std(ddof=1) / math.sqrt(len(gap))
    if env.get("dim") != 5:
        gap = play(None, {"price": 1.0}, seeds, "fixed-price", **env)[2] - ours
        assert gap.mean() > 4 * gap.std(ddof=1) / math.sqrt(len(gap))


def test_regret_falls_with_the_budget():
    means = [
        play(Budget.zcdp(rho), None, range(8), horizon=3000)[2].mean() for rho in (0.003, 0.3, 30)
    ]
    assert means[0] > 1.5 * means[1] > 2.0 * means[2]


@pytest.mark.parametrize("updates", [1, 60])
def test_rounds_beyond_the_horizon_are_rejected(updates):
    params = {"max_updates": updates, "growth": 1.001, "every": 1}
    agent, prices, _ = play(Budget.zcdp(1.0), params, horizon=50)
    kept = agent._releasers.estimator.records.count
    if updates == 1:  # records are kept only as long as they can matter
        assert (agent.updates == 1).all() and kept < 50
    else:
        assert (agent.updates < updates).all() and kept == 50
    context = Context(51, np.zeros((2, 2), np.float32))
    with pytest.raises(HorizonExceeded):
        agent.observe(context, prices[-1], Feedback(np.zeros(2), demand=np.zeros(2)))


def test_bad_budgets_and_parameters():
    with pytest.raises(BudgetError, match="epsilon, delta"):
        begun(Budget.zcdp(1.0), {"calibration": "paper"})
    with pytest.raises(ParameterError, match=": calibration='paper-uncomposed'"):
        make_agent("private-pricing", composition=False)
    for params in (
        {"calibration": "exact"},
        {"share": 1.0},
        {"explore": -1},
        {"gamma": math.nan},
        {"max_updates": 0},
        {"growth": 1.0},
        {"mechanism": "tree"},
        {"every": 0},
        {"demand_bound": 0.0},
        {"literal": ["line-10"]},
    ):
        with pytest.raises(ParameterError, match=next(iter(params))):
            make_agent("private-pricing", **{"calibration": "paper", **params})
    with pytest.raises(ParameterError, match="calibration='paper'"):
        make_agent("private-pricing", literal=["lemma-6"])
    problem = make_problem("DPB/Recommendation-v0", horizon=10)
    with pytest.raises(AgentError, match="plays pricing problems"):
        make_agent("private-pricing").set_up(problem.info, AgentStreams([0]), Budget.zcdp(1.0))


# ------------------------------------------------------------------ the private MLE


def releaser():
    curator = Curator(
        Budget.zcdp(5.0), ("anticipating", "user-round"), noise=NoiseSource.from_seed(4, 2)
    )
    return PrivateMLE(curator, 3, 80, Demand.of("logistic", 4.0, 3.0), calls=2)


def records(scale=1.0):
    rng = np.random.default_rng(1)
    x = (scale * rng.uniform(-1, 1, (80, 2, 2))).astype(np.float32)
    return x, scale * rng.random((80, 2)), rng.integers(0, 2, (80, 2)) * 1.0


def test_records_are_clipped_to_the_bounds():
    far, near = releaser(), releaser()
    x, p, y = records(scale=30.0)
    norm = np.sqrt((x.astype(float) ** 2).sum(axis=2) + p**2) / math.sqrt(3)
    factor = np.maximum(1.0, norm)
    for t in range(80):
        far.add(x[t], p[t], 7.0 * y[t])
        near.add((x[t] / factor[t][:, None]).astype(np.float32), p[t] / factor[t], y[t])
    due = np.array([True, True])
    np.testing.assert_allclose(far.release(due), near.release(due), atol=1e-4)
    kept = far.records
    price = kept.price[:, :80].astype(float)
    inside = (kept.features[:, :80].astype(float) ** 2).sum(axis=2) + price**2
    assert (inside / 3 <= 1.0).all() and kept.demand[:, :80].max() == kept.unit
    with pytest.raises(ParameterError, match="finite"):
        releaser().add(x[0], np.array([np.nan, 0.0]), y[0])


@pytest.mark.parametrize("tolerance", [1e-8, 1e-6, 1e-3])
def test_minimisers_on_the_sphere_meet_the_tolerance(tolerance):
    """The gradient, up to a multiple of theta, is recomputed by NumPy."""
    B, n, d, ridge, rng = 600, 100, 3, 1.0, np.random.default_rng(0)
    curator = Curator("rho=1", ("joint", "user-round"), noise=NoiseSource.from_seed(4, B))
    estimator = PrivateMLE(curator, d, n, Demand.of("logistic", 4.0, 3.0))
    estimator.ready()
    for _ in range(n):
        x = np.ones((B, d - 1), np.float32)
        x[:, 1:] = rng.choice([-1.0, 1.0], (B, d - 2))
        estimator.add(x, rng.random(B), (rng.random(B) < 0.9) * 1.0)
    linear = 10.0 * rng.normal(size=(B, d))
    theta, norm = estimator.minimise(np.ones(B, bool), linear, ridge, tolerance)
    outside = np.linalg.norm(theta, axis=1) > 2.0 - 1e-9
    assert 100 < outside.sum() < B and (norm <= tolerance).all()
    gradient = estimator.derivatives(theta)[0] + ridge * theta + linear
    pull = np.einsum("bk,bk->b", gradient, theta) / np.einsum("bk,bk->b", theta, theta)
    assert (pull[outside] < 0.0).all()
    gradient[outside] -= pull[outside, None] * theta[outside]
    assert np.linalg.norm(gradient, axis=1).max() <= 1.001 * tolerance + 1e-12


def test_all_calls_are_charged_at_once():
    estimator = releaser()
    estimator.ready()
    assert estimator.curator.ledger.spent == pytest.approx(5.0, rel=2e-4)
    for row in zip(*records()):
        estimator.add(*row)
    due = np.array([True, False])
    estimator.release(due)
    estimator.release(due)
    with pytest.raises(BudgetExceeded, match="all 2 releases of private MLEs"):
        estimator.release(due)
    estimator.release(~due)


@pytest.mark.parametrize("kind", ["logistic", "gaussian"])
def test_the_bounds_of_a_loss_are_those_of_its_model(kind):
    """Not what an instance states, or the noise could be a millionth."""
    true = Demand.of(kind, 4.0, 3.0)
    stated = replace(true, gradient_bound=1e-6 * true.gradient_bound, curvature=1e-6)
    costs = []
    for demand in (true, stated):
        own = Curator("rho=0.5", ("anticipating", "user-round"), noise=NoiseSource.from_seed(0))
        costs.append(PrivateMLE(own, 3, 80, demand).plan.sigma)
    assert costs[0] == costs[1]
