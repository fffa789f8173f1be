"""Sums without a trusted curator: their bounds, sensitivities, noise and audits."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from curated import assert_noise_is_audited, curator
from scipy.optimize import brentq
from scipy.stats import norm
from test_sensitivity import search

from dpb_gym import make_problem
from dpb_gym.audits import audit_sum
from dpb_gym.errors import AgentError, BudgetError, ParameterError
from dpb_gym.privacy import (
    AggregatedSum,
    Budget,
    CapMessage,
    GaussianMessage,
    LocalSum,
    NoiseSource,
    ReleaseModel,
    Schedule,
    ShuffledBatches,
    SignMessage,
    SimulatedAggregator,
    WeightedSum,
)
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.registry import agent_specs, shortcoming

MODEL = ReleaseModel(horizon=60, unit_noise=0.05, rate=0.1, spread=2.0, prior=0.5)
KINDS = {"aggregator": AggregatedSum, "shuffler": ShuffledBatches, "local": LocalSum}


def summed(budget, replicates=2, unit="user-round", **options):
    own = curator(budget, replicates, unit=unit, horizon=60)
    options = {"clip": 0.5, "schedule": Schedule.unweighted(np.array([1])), **options}
    return own, behind(own.weighted_sum(3, model=MODEL, **options))


class TestBudget:
    @pytest.mark.parametrize("text", ["rho=0.5", "eps=1,delta=1e-5"])
    def test_the_curator_is_not_written_and_others_are(self, text):
        assert str(Budget.parse(f"{text}@curator")) == text
        assert Budget.parse(f"{text}@curator") == Budget.parse(text)
        for trust in KINDS:
            budget = Budget.parse(f" {text} @ {trust} ")
            assert str(budget) == f"{text}@{trust}"
            assert budget != Budget.parse(text)
            assert budget.amount == Budget.parse(text)

    @pytest.mark.parametrize("text", ["rho=1@nobody", "rho=1@", "rho=1@local@local", "@local"])
    def test_other_words_are_errors(self, text):
        with pytest.raises(BudgetError):
            Budget.parse(text)


class TestOneCallForAll:
    @pytest.mark.parametrize("trust", KINDS)
    def test_notion_and_noise_follow_from_the_budget(self, trust):
        B = 250
        own, sums = summed(f"rho=0.5@{trust}", B)
        assert isinstance(sums, KINDS[trust]) and sums.trust.name == trust
        assert own.guarantee.rho == pytest.approx(0.5, rel=1e-3)
        assert own.guarantee.rho <= 0.5 * (1 + 1e-9)
        notion = {"aggregator": "aggregate", "shuffler": "shuffle", "local": "local"}[trust]
        assert str(own.guarantee).startswith(f"{notion} zCDP")
        rng = np.random.default_rng(0)
        records, exact, k = rng.normal(size=(60, 3)), np.zeros(3), 0
        records *= 0.5 / np.linalg.norm(records, axis=1, keepdims=True)
        for t, record in enumerate(records, start=1):
            sums.add(np.broadcast_to(record, (B, 3)).copy())
            exact += record
            if k < len(sums.schedule.ends) and t == sums.schedule.ends[k]:
                error = sums.value - exact
                assert error.std() == pytest.approx(sums.noise_std, rel=0.12)
                assert np.abs(error.mean(axis=0)).max() < 4.5 * sums.noise_std / math.sqrt(B)
                exact[:], k = 0.0, k + 1
        assert k == len(sums.schedule.ends) > 1

    def test_numbers_along_public_directions(self):
        """Messages of numbers: the noise is along the direction, of the stated size."""
        B = 1500
        for budget, kind in (("rho=0.05@local", None), ("eps=2,delta=1e-5@local", SignMessage)):
            _, sums = summed(budget, B, "reward", clip=None, reward=(0.0, 1.0))
            along = np.array([0.6, 0.8, 0.0])
            sums.add(np.full(B, 1.0), np.broadcast_to(along, (B, 3)))
            assert kind is None or type(sums._mechanism) is kind
            vectors = sums.value if sums.releases else sums._total
            assert (vectors[:, 2] == 0).all()
            assert vectors @ along == pytest.approx(vectors[:, 0] / 0.6, abs=1e-9)
            numbers = vectors @ along
            assert numbers.mean() == pytest.approx(1.0, abs=5 * numbers.std() / math.sqrt(B))
            assert numbers.std() == pytest.approx(sums.record_std, rel=0.1)

    def test_a_plan_for_a_curator_alone_is_refused(self):
        own = curator("rho=1@local", horizon=60)
        with pytest.raises(BudgetError, match="trusted curator"):
            own.weighted_sum(3, clip=0.5, schedule=Schedule.unweighted(np.array([1])))
        for make in (own.batch_sum, own.running_sum):
            with pytest.raises(BudgetError, match="trusted curator"):
                make(3, clip=0.5)

    def test_without_a_budget_and_with_a_curator_it_is_the_weighted_sum(self):
        for budget in (None, "rho=1"):
            assert isinstance(summed(budget)[1], WeightedSum)


def test_the_docstring_states_the_variance_of_a_cap_message():
    """Over that of the Gaussian whose exact (epsilon, delta) curve attains the budget."""
    said = re.search(
        r"For rows of norm 0.71 at distance 1 and delta = 1e-5, its variance is ([\d.]+) of the "
        r"Gaussian's at epsilon = 1, and ([\d.]+) of it at epsilon = 5.",
        " ".join(CapMessage.__doc__.split()),
    )
    for epsilon, ratio in zip((1.0, 5.0), said.groups()):

        def excess(std, epsilon=epsilon):
            a, b = 0.5 / std, epsilon * std
            return norm.cdf(a - b) - math.exp(epsilon) * norm.cdf(-a - b) - 1e-5

        gaussian = brentq(excess, 0.05, 50.0)
        sigma = CapMessage.best(epsilon, math.sqrt(0.5)).sigma
        assert f"{(sigma / gaussian) ** 2:.2f}" == ratio


class TestPlans:
    @pytest.mark.parametrize("per_record", [False, True])
    @pytest.mark.parametrize("linear", [False, True])
    def test_the_plan_is_within_the_tolerance_of_every_other(self, per_record, linear):
        model = ReleaseModel(3000, 3.0, 0.3, 3.0, 0.24, linear=linear)

        def regret(ends):
            total, precision, before = float(ends[0]), 0.0, 0
            for end, until in zip(ends, [*ends[1:], model.horizon]):
                n, before = end - before, end
                noise = (2.0 * 3.0 / 0.3) ** 2 * (n if per_record else 1)
                precision += n**2 / (noise + 3.0 * n)
                earned = 0.24 / (0.24 + 1.0 / precision)
                total += (until - end) * (1.0 - (math.sqrt(earned) if linear else earned))
            return total

        plan = model.batches(2.0, per_record)
        assert plan.carry == 0 and (plan.weights == 1).all()
        expected = 1 / np.sqrt(plan.sizes) if per_record else np.ones(len(plan.ends))
        assert plan.scales == pytest.approx(expected)
        for first, ratio in itertools.product((5, 20, 60, 200, 600), (1.2, 1.6, 2.2)):
            other = Schedule.geometric(3000, first, ratio, 0.0).ends
            assert regret(plan.ends) <= 1.02 * regret(other)

    def test_batches_are_combined_like_independent_estimates(self):
        """Generalised least squares of disjoint batches, against inverse variances."""
        plan = MODEL.batches(1.0)
        combined, n = plan.best_weights(4.0, 0.7), plan.sizes
        for k in range(len(n)):
            inverse = n[: k + 1] / (4.0**2 + 0.7 * n[: k + 1])
            best = inverse * plan.ends[k] / (inverse * n[: k + 1]).sum()
            assert combined.weights[k, : k + 1] == pytest.approx(best)
            assert combined.std[k] == pytest.approx(math.sqrt((best**2).sum()))


class TestLocalMessages:
    @pytest.mark.parametrize("epsilon", [0.3, 1.0, 5.0])
    def test_caps_are_private_and_unbiased(self, epsilon):
        """The density ratio over many pairs and messages, and the mean by simulation."""
        rng = np.random.default_rng(1)
        message = CapMessage.best(epsilon, 0.7)
        p, q = message.inside, message.below
        assert math.log(p / (1 - q)) - math.log((1 - p) / q) == pytest.approx(epsilon)
        rows = rng.normal(size=(2, 3))
        rows *= 0.7 * rng.random((2, 1)) / np.linalg.norm(rows, axis=1, keepdims=True)
        B = 10000
        sent = message.of(np.repeat(rows[:1], B, axis=0), NoiseSource.from_seed(1, B))
        here, there = (message.log_density(sent, np.repeat(r[None], B, axis=0)) for r in rows)
        assert np.abs(here - there).max() <= epsilon * (1 + 1e-12)
        assert np.abs(sent[:, :3].mean(axis=0) - rows[0]).max() < 5 * message.sigma / math.sqrt(B)
        # the cap has the stated probability, so the densities are normalised
        inside = (here > 0).mean()
        assert inside == pytest.approx(p, abs=5 / math.sqrt(B))
        assert sent[:, :3].std(axis=0).max() <= message.sigma * 1.03

    def test_no_split_of_epsilon_is_better(self):
        from scipy.stats import norm

        for epsilon in (0.5, 3.0):
            a = np.linspace(0.001, 0.999, 999) * epsilon
            p, q = 1 / (1 + np.exp(-a)), 1 / (1 + np.exp(a - epsilon))
            m = norm.pdf(norm.ppf(q)) * (p / (1 - q) - (1 - p) / q)
            assert CapMessage.best(epsilon, 1.0).scale == pytest.approx(m.max(), rel=1e-3)

    @pytest.mark.parametrize("epsilon", [0.3, 2.0])
    def test_signs_are_private_and_unbiased(self, epsilon):
        message = SignMessage.of_range(epsilon, 0.5)
        logs = []
        for number in (-0.5, 0.1, 0.5):
            plus = 0.5 * (1 + number / message.height)
            assert message.height * (2 * plus - 1) == pytest.approx(number)
            logs.append(np.log([plus, 1 - plus]))
        assert np.ptp(logs, axis=0).max() == pytest.approx(epsilon)

    def test_the_message_with_less_noise_is_chosen(self):
        """A normal for zCDP and a cap for (epsilon, delta) budgets; k messages of a user."""
        _, sums = summed("rho=0.5@local")
        assert sums.sigma == pytest.approx(1.0) and type(sums._mechanism) is GaussianMessage
        own, sums = summed("eps=1,delta=1e-5@local")
        assert own.guarantee.curve.pure == pytest.approx(1.0, rel=1e-3)
        assert type(sums._mechanism) is CapMessage
        _, sums = summed("rho=0.5@local", unit="user", limit=4)
        assert sums.sigma == pytest.approx(2.0)

    @pytest.mark.parametrize("budget", ["eps=2,delta=1e-5@local", "rho=0.5@local"])
    def test_pure_messages_need_the_number_of_a_users_messages(self, budget):
        """A pure bound is per message, so a stated distance of two users allows none."""
        options = {"unit": "user-rewards", "clip": None, "reward": (-0.5, 0.5)}
        own, sums = summed(budget, sensitivity=3.0, **options)
        (event,) = own.guarantee.curve.events
        assert type(sums._mechanism) is GaussianMessage
        assert event.zcdp == pytest.approx(0.5 * (3.0 / sums.sigma) ** 2)
        own, sums = summed("eps=2,delta=1e-5@local", limit=2, **options)
        (event,) = own.guarantee.curve.events
        assert type(sums._mechanism) is CapMessage
        assert event.count == 2
        assert event.epsilon == pytest.approx(sums._mechanism.epsilon)


class TestSensitivity:
    def test_no_pair_of_messages_is_farther_apart(self):
        """Local and aggregated rows, for adversarial records and rounding numbers."""
        _, local = summed("rho=0.5@local", 1)
        _, secure = summed("rho=0.5@aggregator", 1)
        secure.schedule  # noqa: B018 (seals)
        grid, shift = secure.batches[0].grid, [np.zeros(3)]
        secure._noise.uniform = lambda shape: shift[0][None]
        secure._noise.discrete_gaussian = lambda std, width: np.zeros((1, width))
        modulus = secure.batches[0].modulus

        def rows(point):
            pair = []
            for half in (point[:3], point[3:6]):
                into = np.zeros((1, 3))
                local._take(half[None], None, into)
                pair.append(into)
            return pair

        def quantised(point):
            shift[0] = np.abs(np.sin(point[6:])) * 0.999
            signed = [
                (secure.message(row) + modulus // 2) % modulus - modulus // 2 for row in rows(point)
            ]
            return float(np.linalg.norm(signed[0] - signed[1])) * grid

        start = [np.array([1.0, 1.0, 1.0, -1.0, -1.0, -1.0, 0.1, 0.2, 0.3])]
        local.rounds = -(10**9)
        apart = search(lambda p: float(np.linalg.norm(np.subtract(*rows(p)))), start, 200)
        assert 0.95 * local.sensitivity <= apart <= local.sensitivity * (1 + 1e-9)
        apart = search(quantised, start, 200)
        bound = secure.sensitivity + grid * math.sqrt(3)
        assert bound <= secure.sensitivity * (1 + 1 / 128) * (1 + 1e-12)
        assert 0.98 * secure.sensitivity <= apart <= bound * (1 + 1e-9)


def discrete(std, reach):
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / std) ** 2)
    return weights / weights.sum()


class TestAggregator:
    def test_the_sampler_has_the_discrete_gaussian_distribution(self, monkeypatch):
        """Frequencies; and the rate of rejection, as rounded normals are nearly the same."""
        proposed, fill = [], NoiseSource.fill
        monkeypatch.setattr(
            NoiseSource, "fill", lambda *args: (proposed.append(args[2].size), fill(*args))[1]
        )
        drawn = NoiseSource.from_seed(3, 1).discrete_gaussian(8.0, 40000)[0]
        bound = math.exp((8.4 * 8.0 + 0.25) / (2 * 8.0**2))  # of the ratio of the densities
        assert sum(proposed) / 40000 == pytest.approx(bound, rel=0.02)
        p = discrete(8.0, 60)
        seen = np.bincount((drawn + 60).astype(int), minlength=121)
        busy = p * len(drawn) > 20
        chi = ((seen - p * len(drawn)) ** 2 / (p * len(drawn)))[busy].sum()
        assert chi < busy.sum() + 5 * math.sqrt(2 * busy.sum())

    @pytest.mark.parametrize(("std", "clients"), [(0.7, 3), (1.0, 5)])
    def test_sums_of_discrete_gaussians_are_as_close_as_the_bound_says(self, std, clients):
        """Exact convolution, against the factor e^tau of Kairouz, Liu & Steinke."""
        one = discrete(std, 40)
        total = one
        for _ in range(clients - 1):
            total = np.convolve(total, one)
        whole = discrete(std * math.sqrt(clients), len(total) // 2)
        tau = 10 * sum(math.exp(-2 * (math.pi * std) ** 2 * k / (k + 1)) for k in range(1, clients))
        centre = slice(len(total) // 2 - 8, len(total) // 2 + 9)
        assert np.abs(np.log(total[centre] / whole[centre])).max() <= tau
        assert tau < 1 or std < 1

    def test_lost_messages_are_made_up_for_until_too_many_are_lost(self):
        """The sum stands for all devices; one more loss than allowed voids the batch."""
        _, sums = summed("rho=5000@aggregator", 1, dropout=0.3)
        row, ends = np.array([[0.3, -0.2, 0.1]]), sums.schedule.ends.tolist()
        allowed = [batch.clients - batch.enough for batch in sums.batches]
        assert max(allowed) > 0
        for size, spare in zip(sums.schedule.sizes.tolist(), allowed):
            sums.aggregator = SimulatedAggregator(tuple(range(spare)))
            for _ in range(size):
                sums.add(row)
            assert sums.value[0] / size == pytest.approx(row[0], abs=0.05)
            batch = sums.batches[sums.releases - 1]
            extra = math.sqrt(batch.clients / (batch.clients - spare))
            assert sums.noise_std == pytest.approx(extra * batch.released_std)
        _, sums = summed("rho=5000@aggregator", 1, dropout=0.3)
        sums.aggregator = SimulatedAggregator(tuple(range(allowed[0] + 1)))
        with pytest.warns(RuntimeWarning, match="nothing of it was released"):
            for _ in range(ends[0]):
                sums.add(row)
        assert sums.releases == 1 and not sums.value.any()
        assert sums.noise_std > 1e5 * sums.sigma
        sums.aggregator = SimulatedAggregator()
        for _ in range(ends[1] - ends[0]):
            sums.add(row)
        size = sums.schedule.sizes[1]
        assert sums.value[0] / size == pytest.approx(row[0], abs=0.05)

    @pytest.mark.parametrize(
        "total",
        [
            lambda total, devices: (total, devices + 1),
            lambda total, devices: (total, -1),
            lambda total, devices: (total, True),
            lambda total, devices: (total, float(devices)),
            lambda total, devices: (total * math.nan, devices),
            lambda total, devices: (total + 0.5, devices),
            lambda total, devices: (total[:, :1], devices),
            lambda total, devices: (total.tolist()[0], devices),
            lambda total, devices: None,
            lambda total, devices: {}[0],
        ],
    )
    def test_a_total_that_no_batch_can_have_is_a_lost_batch(self, total):
        class Faulty(SimulatedAggregator):
            def total(self):
                return total(*super().total())

        _, sums = summed("rho=5000@aggregator", 1, dropout=0.3)
        first, second = sums.schedule.ends[:2].tolist()
        sums.aggregator = Faulty()
        row = np.array([[0.3, -0.2, 0.1]])
        with pytest.warns(RuntimeWarning, match="batch 1: nothing of it was released"):
            for _ in range(first):
                sums.add(row)
        assert sums.releases == 1 and not sums.value.any()
        assert sums.noise_std > 1e5 * sums.sigma
        sums.aggregator = SimulatedAggregator()
        for _ in range(second - first):
            sums.add(row)
        assert sums.value[0] / (second - first) == pytest.approx(row[0], abs=0.05)

    @pytest.mark.parametrize("kind", [np.uint32, np.uint64, np.int64])
    def test_a_total_may_be_unsigned_or_another_residue(self, kind):
        class Unsigned(SimulatedAggregator):
            def total(self):
                total, devices = super().total()
                return (total + self._modulus).astype(kind), np.int32(devices)

        _, sums = summed("rho=5000@aggregator", 1)
        sums.aggregator = Unsigned()
        (first,) = sums.schedule.ends[:1].tolist()
        for _ in range(first):
            sums.add(np.array([[0.3, -0.2, 0.1]]))
        assert sums.value[0] / first == pytest.approx([0.3, -0.2, 0.1], abs=0.05)

    def test_budgets_that_need_larger_integers_are_refused(self):
        with pytest.raises(BudgetError, match="at most 62"):
            summed("rho=1e36@aggregator")[1].schedule  # noqa: B018 (seals)

    def test_rounding_has_no_bias(self):
        _, sums = summed("rho=0.5@aggregator", 2000)
        grid = sums.schedule.carry + sums.batches[0].grid
        sums._noise.discrete_gaussian = lambda std, width: np.zeros((2000, width))
        cells = sums.message(np.tile([0.3 * grid, 5.9 * grid, 8.0 * grid], (2000, 1)))
        assert cells.mean(axis=0) == pytest.approx([0.3, 5.9, 8.0], abs=0.05)
        assert (cells[:, 2] == 8).all()

    def test_messages_are_residues_of_the_counted_size_and_sums_do_not_wrap(self):
        own, sums = summed("rho=0.5@aggregator", 3, dropout=0.3)
        sums.schedule  # noqa: B018 (seals)
        assert sums.message_bytes == math.ceil(3 * sums.batches[0].bits / 8)
        for batch in sums.batches:
            largest = batch.clients * (0.5 / batch.grid + 1)
            assert batch.modulus == 2**batch.bits > 2 * largest
            assert batch.std / batch.grid >= 8
            # the noise of the devices that must answer is enough
            assert batch.enough * batch.std**2 == pytest.approx(sums.sigma**2)
        message = sums.message(np.full((3, 3), 0.28))
        assert ((message >= 0) & (message < sums.batches[0].modulus)).all()
        assert "secure aggregation" in str(own.guarantee)


@pytest.mark.parametrize("budget", ["rho=1e9@local", "eps=1000,delta=1e-5@local"])
@pytest.mark.parametrize("unit", ["user-round", "reward"])
def test_huge_local_budgets_have_next_to_no_noise(budget, unit):
    options = {"clip": None, "reward": (0.0, 1.0)} if unit == "reward" else {}
    own, sums = summed(budget, unit=unit, **options)
    assert 0.0 <= sums.sigma < 0.1 and own.guarantee is not None


def test_tiny_shuffled_budgets_are_refused():
    with pytest.raises(BudgetError, match="coins"):
        summed("rho=1e-13@shuffler")[1].schedule  # noqa: B018 (seals)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("budget", "unit"),
    [
        ("rho=0.5@aggregator", "user-round"),
        ("rho=0.5@shuffler", "user-round"),
        ("rho=0.5@local", "user-round"),
        ("eps=1,delta=1e-5@local", "user-round"),
        ("eps=1,delta=1e-5@local", "reward"),
    ],
)
def test_audits_pass_and_fail_with_a_third_of_the_noise(budget, unit, monkeypatch):
    alone = {"reward": (-0.5, 0.5)} if unit == "reward" else {"clip": 0.5}
    records = (0.5, -0.5) if alone.get("reward") else ([0.5, 0.0, 0.0], [-0.5, 0.0, 0.0])
    options = {"direction": [1.0, 0.0, 0.0]} if unit == "reward" else {}
    model = ReleaseModel(4, 0.05, 0.1, 2.0, 0.5)

    def verdict(seed):
        return audit_sum(
            lambda own: own.weighted_sum(3, model=model, schedule=None, **alone),
            *records,
            budget,
            protects=("joint", unit),
            rounds=4,
            runs=800,
            seed=seed,
            **options,
        ).verdict

    assert_noise_is_audited(monkeypatch, verdict)


@pytest.mark.slow
def test_the_page_names_the_agents_of_each_trust_model():
    """Other registered agents raise an error with a budget of these trust models."""
    environments = {
        "pricing": "DPB/Pricing-v0",
        "assortment": "DPB/Assortment-v0",
        "recommendation": "DPB/Recommendation-v0",
        "assortment-pricing": "DPB/AssortmentPricing-v0",
    }
    problems = {kind: make_problem(env, horizon=300).info for kind, env in environments.items()}
    plays = {}
    for name, spec in agent_specs().items():
        for kind in set(spec.supports) & set(problems):
            for trust in ("aggregator", "shuffler", "local"):
                if shortcoming(spec, problems[kind]):
                    continue
                with contextlib.suppress(BudgetError, AgentError, ParameterError):
                    spec.guarantee(problems[kind], Budget.parse(f"rho=0.5@{trust}"))
                    plays.setdefault(name, set()).add(trust)
    page = (Path(__file__).parents[2] / "docs" / "trust.md").read_text("utf-8")
    named, shuffles = page.split("play under all four.")
    named = named[named.rindex("\n\n") :]
    (shuffling,) = re.findall("`([a-z-]+)`", shuffles.split("shuffles with")[0])
    assert plays.pop(shuffling) == {"shuffler"}
    assert set(re.findall("`([a-z-]+)`", named)) == set(plays)
    assert all(trusts == {"aggregator", "shuffler", "local"} for trusts in plays.values())


def test_what_needs_a_curator_or_a_horizon():
    """`docs/trust.md` names the agents of limited stock, and the one without a horizon."""
    stocked = {"resolving-mnl": "DPB/Assortment-v0", "resolving-pricing": "DPB/Pricing-v0"}
    for name, env in stocked.items():
        problem = make_problem(env, horizon=300, stock=5).info
        assert agent_specs()[name].guarantee(problem, Budget.parse("rho=0.5")).rho <= 0.5
        for trust in ("aggregator", "shuffler", "local"):
            with pytest.raises(BudgetError):
                agent_specs()[name].guarantee(problem, Budget.parse(f"rho=0.5@{trust}"))
    largest = "rho=1@shuffler", "eps=5,delta=1e-5@shuffler"  # of the arena
    for name, env in (
        ("one-pass-pricing", "DPB/Pricing-v0"),
        ("resolving-pricing", "DPB/Pricing-v0"),
        ("response-pricing", "DPB/Pricing-v0"),
        ("private-single-action", "DPB/Pricing-v0"),
        ("one-pass-mnl", "DPB/Assortment-v0"),
        ("resolving-mnl", "DPB/Assortment-v0"),
        ("one-pass-linear", "DPB/Recommendation-v0"),
        ("one-pass-linear-joint", "DPB/Recommendation-v0"),
    ):
        problem = replace(make_problem(env, horizon=300).info, horizon=None)
        for budget in largest:
            with pytest.raises(BudgetError):
                agent_specs()[name].guarantee(problem, Budget.parse(budget))
    problem = replace(make_problem("DPB/Recommendation-v0", horizon=300).info, horizon=None)
    for budget in ("rho=0.02@shuffler", *largest):
        agent_specs()["shuffle-lin-ucb"].guarantee(problem, Budget.parse(budget))
