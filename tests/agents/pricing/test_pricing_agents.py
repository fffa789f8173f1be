"""The pricing agents against independent recomputation from their own records."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from dpb_gym import make_agent, make_problem, portable
from dpb_gym.agent import BatchedSingle, SingleAgent
from dpb_gym.errors import ActionError, AgentError, ParameterError
from dpb_gym.problems.base import Feedback
from dpb_gym.streams import AgentStreams, Stream, generator

NAMES = ("fixed-price", "greedy-pricing", "glm-ucb-pricing")
GRID = np.linspace(0.0, 1.0, 20_001)


def scipy_mle(x, p, y, demand, ridge):
    phi = np.column_stack([x.astype(np.float64), -p]) / np.sqrt(x.shape[1] + 1)

    def loss(theta):
        z = phi @ theta
        if demand == "logistic":
            value = np.logaddexp(0.0, 4.0 * z).sum() - 4.0 * y @ z
            residual = 4.0 * (expit(4.0 * z) - y)
        else:
            value, residual = 0.5 * np.sum((y - z) ** 2), z - y
        return value + 0.5 * ridge * theta @ theta, phi.T @ residual + ridge * theta

    options = {"gtol": 1e-9, "maxiter": 1000}
    return minimize(loss, np.zeros(phi.shape[1]), jac=True, method="BFGS", options=options).x


def grid_objective(x, theta, demand, gamma, V):
    rows = np.broadcast_to(x.astype(np.float64), (len(GRID), len(x)))
    phi = np.column_stack([rows, -GRID]) / np.sqrt(len(x) + 1)
    mean = expit(4.0 * phi @ theta) if demand == "logistic" else phi @ theta
    width = np.sqrt(np.einsum("ni,ij,nj->n", phi, np.linalg.inv(V), phi))
    return GRID * mean + gamma * width


@pytest.mark.parametrize("demand", ["logistic", "gaussian"])
@pytest.mark.parametrize("name", ["greedy-pricing", "glm-ucb-pricing"])
def test_prices_follow_from_the_records(play, name, demand):
    """Recomputes theta (scipy), V and the schedule from the raw records, round by round."""
    T, B, d, ridge = 400, 2, 3, 1.0
    run = play(name, list(range(B)), T, demand=demand, dim=d)
    gamma = 0.0 if name == "greedy-pricing" else 1.0
    updates = np.zeros(B, int)
    for b in range(B):
        theta, V, trusted, due_at = np.zeros(d), ridge * np.eye(d), ridge * np.eye(d), 10
        for t in range(1, T):
            phi = np.append(run.features[t - 1, b], -run.prices[t - 1, b]) / np.sqrt(d)
            V = V + np.outer(phi, phi)
            if name == "greedy-pricing":
                due = t >= due_at
            else:
                gap = np.linalg.slogdet(V)[1] - np.linalg.slogdet(trusted)[1]
                assert t < 10 or abs(gap - math.log(2.0)) > 1e-9
                due = t == 10 or (t > 10 and gap > math.log(2.0))
            if due:
                past = (run.features[:t, b], run.prices[:t, b], run.demand[:t, b])
                theta, trusted, due_at = scipy_mle(*past, demand, ridge), V, math.ceil(1.25 * t)
                updates[b] += 1
            if t >= 10 and (due or t % 20 == 0):
                values = grid_objective(run.features[t, b], theta, demand, gamma, trusted)
                at = round(run.prices[t, b] * (len(GRID) - 1))
                assert values[at] > values.max() - 2e-5
    # The last record may have triggered one more renewal after the last price.
    assert ((run.agent.updates == updates) | (run.agent.updates == updates + 1)).all()


@pytest.mark.parametrize("name", ["greedy-pricing", "glm-ucb-pricing"])
def test_starts_with_the_replicates_own_random_prices(play, name):
    run = play(name, [5, 9], 30, {"explore": 25})
    for b, seed in enumerate((5, 9)):
        own = generator(seed, Stream.AGENT).random(25)
        np.testing.assert_array_equal(run.prices[:25, b], own)


@pytest.mark.parametrize("name", NAMES)
def test_bits_do_not_depend_on_the_batch(play, name):
    seeds = [4, 1, 7, 0, 3, 8, 2, 6]
    full = play(name, seeds, 350)
    for size in (1, 3):
        for start in range(0, 8, size):
            part = play(name, seeds[start : start + size], 350)
            np.testing.assert_array_equal(part.prices, full.prices[:, start : start + size])


def test_fits_are_few(play):
    T = 3000
    greedy = play("greedy-pricing", range(4), T)
    assert (greedy.agent.updates <= 2 + math.log(T / 10) / math.log(1.25)).all()
    ucb = play("glm-ucb-pricing", range(4), T)
    d = ucb.problem.dim
    # log det V can grow from d log(ridge) to at most d log(ridge + T / d).
    assert (ucb.agent.updates <= 1 + d * math.log2(1.0 + T / d)).all()
    assert (ucb.agent.updates >= 5).all()


@pytest.mark.slow
@pytest.mark.parametrize("env", [{"dim": 3}, {"dim": 2}, {"customers": "drifting"}])
def test_personal_prices_beat_one_price_beats_random(play, env):
    seeds = range(200, 216)
    regret = {name: play(name, seeds, 3000, **env).regret for name in (*NAMES, "random")}
    for better, worse in (
        ("greedy-pricing", "fixed-price"),
        ("glm-ucb-pricing", "fixed-price"),
        ("fixed-price", "random"),
    ):
        gap = regret[worse] - regret[better]
        assert gap.mean() > 4.0 * gap.std(ddof=1) / math.sqrt(len(gap)), (better, worse)


def test_at_dim_five_learning_beats_the_constant_price_one(play):
    # Erratum P7: at d = 5 the constant price 1 has average regret 0.001.
    T = 10_000
    one = play("fixed-price", range(8), T, {"price": 1.0}, dim=5)
    assert (one.prices == 1.0).all()
    assert one.regret.mean() / T == pytest.approx(0.0010, abs=1e-4)
    assert play("greedy-pricing", range(8), T, dim=5).regret.mean() < 0.6 * one.regret.mean()


class PlainFixedPrice(SingleAgent):
    """`fixed-price` for one replicate, in plain Python."""

    def __init__(self, rule="ts"):
        self.rule = rule

    def begin(self):
        T = self.problem.horizon
        self.K = math.ceil((T / math.log(T)) ** 0.25)
        self.n, self.s = [0] * self.K, [0.0] * self.K
        self.t = 0

    def act(self, context):
        self.t += 1
        if self.t <= self.K:
            return self.t / self.K
        z = portable.normals(self.rng, self.K) if self.rule == "ts" else None
        index = []
        for k in range(self.K):
            n, s = self.n[k], self.s[k]
            if self.rule == "ucb":
                scale = 0.5 if self.problem.demand == "logistic" else math.sqrt(2.0)
                f = 1.0 + self.t * math.log(self.t) * math.log(self.t)
                # In this order: exact ties (prices 1/4 and 3/4 after 1 and 9 offers) occur.
                belief = s / n + scale / math.sqrt(n) * math.sqrt(2.0 * math.log(f))
            elif self.problem.demand == "logistic":
                alpha, beta = s + 1.0, n - s + 1.0
                mean = alpha / (alpha + beta)
                sd = math.sqrt(alpha * beta / (alpha + beta) ** 2 / (alpha + beta + 1.0))
                belief = mean + z[k] * sd
            else:
                belief = s / n + z[k] * math.sqrt(2.0 / n)
            index.append((k + 1) / self.K * belief)
        return (int(np.argmax(index)) + 1) / self.K

    def observe(self, context, action, feedback):
        k = round(action * self.K) - 1
        self.n[k] += 1
        self.s[k] += feedback.demand


@pytest.mark.parametrize("rule", ["ts", "ucb"])
@pytest.mark.parametrize("demand", ["logistic", "gaussian"])
def test_fixed_price_equals_plain_python(play, rule, demand):
    ours = play("fixed-price", range(3), 800, {"rule": rule}, demand=demand)
    twin = play(BatchedSingle(lambda: PlainFixedPrice(rule)), range(3), 800, demand=demand)
    np.testing.assert_array_equal(ours.prices, twin.prices)


@pytest.mark.parametrize(("T", "size"), [(2, 2), (1000, 4), (10_000, 6), (100_000, 10)])
def test_grid_size_suits_the_horizon(T, size):
    agent = make_agent("fixed-price")
    problem = make_problem("DPB/Pricing-v0", horizon=T)
    agent.set_up(problem.info, AgentStreams([0]))
    assert len(agent.prices) == size == math.ceil((T / math.log(max(T, 3))) ** 0.25)
    assert agent.prices[-1] == 1.0 and agent.prices[0] > 0.0


def test_fixed_price_refuses_prices_off_its_grid():
    agent = make_agent("fixed-price", n_prices=4)
    problem = make_problem("DPB/Pricing-v0", horizon=100)
    instance = problem.instance([0, 1])
    agent.set_up(problem.info, AgentStreams([0, 1]))
    feedback = Feedback(np.zeros(2), demand=np.zeros(2))
    for bad in (0.3, 0.0, np.nan):
        with pytest.raises(ActionError, match="replicate 1 is not on the grid"):
            agent.observe(instance.context(), np.array([0.5, bad]), feedback)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("greedy-pricing", {"rule": "best"}),
        ("greedy-pricing", {"explore": -1}),
        ("greedy-pricing", {"growth": 1.0}),
        ("greedy-pricing", {"ridge": 0.0}),
        ("glm-ucb-pricing", {"gamma": -1.0}),
        ("glm-ucb-pricing", {"gamma": math.nan}),
        ("fixed-price", {"rule": "greedy"}),
        ("fixed-price", {"n_prices": 0}),
        ("fixed-price", {"price": 1.5}),
        ("fixed-price", {"scale": 0.0}),
    ],
)
def test_bad_parameters_are_named(name, params):
    with pytest.raises(ParameterError, match=next(iter(params))):
        make_agent(name, **params)


@pytest.mark.parametrize("name", NAMES)
def test_other_problems_are_refused(name):
    problem = make_problem("DPB/Recommendation-v0", horizon=10)
    with pytest.raises(AgentError, match="plays pricing problems, not recommendation"):
        make_agent(name).set_up(problem.info, AgentStreams([0]))


@pytest.mark.parametrize("name", NAMES)
def test_they_are_not_private_and_begin_resets_them(play, name):
    first = play(name, range(2), 60)
    assert first.agent.curator.guarantee is None
    again = play(first.agent, range(2), 60)
    np.testing.assert_array_equal(first.prices, again.prices)


@pytest.mark.parametrize("name", ["greedy-pricing", "glm-ucb-pricing"])
def test_no_random_start_and_nothing_but_random_start(play, name):
    none = play(name, range(3), 200, {"explore": 0})
    assert (none.prices[0] == 1.0).all()  # demand 1/2 at every price, before any record
    assert none.regret.mean() < 0.5 * play("random", range(3), 200).regret.mean()
    only = play(name, range(3), 40, {"explore": 100})
    assert (only.agent.updates <= 1).all() and only.prices.std() > 0.2
