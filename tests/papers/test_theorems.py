"""Numbers of the papers' theorems against the printed formulas, agents and errata."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from dpb_gym.errors import ParameterError, UnknownNameError
from dpb_gym.papers import Bounds, bounds
from dpb_gym.papers.theorems import PAPERS, least_power
from dpb_gym.privacy import Composition, GaussianEvent, Guarantee, objective_cs


def number(theory: Bounds, quantity: str, statement: str = "", sound: bool = False) -> float:
    """Return the one number whose quantity and statement begin with these words."""
    (line,) = (
        line
        for line in theory.lines
        if line.quantity.startswith(quantity) and line.statement.startswith(statement)
    )
    value = line.sound if sound else line.printed
    assert value is not None
    return value


def test_releases_of_the_assortment_paper() -> None:
    """The noise at T = 10^4, d = 5, K = 10, rho = 1, 90% for ten estimates."""
    theory = bounds("private-assortment", calls=10)
    plan = objective_cs(0.09, dim=5, rank=5)
    assert number(theory, "Delta") == pytest.approx(plan.ridge) == pytest.approx(442.447, abs=1e-3)
    assert (
        number(theory, "sigma of") == pytest.approx(plan.sigma) == pytest.approx(199.652, abs=1e-3)
    )
    assert number(theory, "sigma^2") == pytest.approx(1500)
    assert number(theory, "shift") == pytest.approx(2 * 5240.6, rel=1e-5)
    assert number(theory, "sensitivity") ** 2 == pytest.approx(20)
    assert number(theory, "sensitivity", sound=True) ** 2 == pytest.approx(200)
    # A tree of 14 levels with the sound noise costs rho_2 at the true sensitivity.
    sigma = math.sqrt(number(theory, "sigma^2", sound=True))
    assert 14 * 200 / (2 * sigma**2) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("horizon", "pilot", "rest"),
    [(10**4, 1.7e8, 1.05e5), (10**10, 1580, 943), (10**15, 0.046, 6.8), (10**17, 6e-4, 0.87)],
)
def test_the_bound_of_theorem_4_of_the_assortment_paper(
    horizon: int, pilot: float, rest: float
) -> None:
    """In units of T, with the most favourable kappa and sigma_0 (erratum A18)."""
    theory = bounds("private-assortment", horizon=horizon)
    assert number(theory, "T0") / horizon == pytest.approx(pilot, rel=0.06)
    assert number(theory, "bound") / horizon == pytest.approx(rest, rel=0.02)
    assert 16 < theory.vacuous[0].power < 17


def test_releases_of_the_pricing_paper() -> None:
    """The printed noise at d = 3, T = 10^5, epsilon = 1, by hand."""
    theory = bounds("private-pricing")
    m, updates, delta = 17, 50, 1e-10
    node = 1 / (2 * m * math.log(2 * m / delta))
    assert number(theory, "sigma of a node") == pytest.approx(
        math.sqrt(2 * math.log(1.25 * 2 * m / delta)) / node
    )
    assert number(theory, "D_inf") == updates
    own = 1 / (2 * math.sqrt(2 * updates * math.log(2 * updates / delta)))
    assert number(theory, "epsilon") == pytest.approx(own)
    nu = 8 * math.sqrt(8 * math.log(4 * updates / delta) + 4 * own) / own
    assert number(theory, "sigma of an") == pytest.approx(nu) == pytest.approx(12661, abs=1)
    assert number(theory, "ridge") == pytest.approx(627_199, abs=1)
    assert round(number(theory, "B2")) == 2983
    sigma = number(theory, "sigma of a node", sound=True)
    tree = Guarantee(
        "joint", "user-round", curve=Composition.of(GaussianEvent(sigma, math.sqrt(2), count=m))
    )
    assert 0.999 < tree.epsilon(delta) <= 1.0


@pytest.mark.parametrize(
    ("horizon", "regret", "pilot"),
    [(10**5, 1.1e8, 9.3e11), (10**10, 1.75e6, 3e9), (10**15, 1.5e4, 2.5e6), (10**20, 94, 579)],
)
def test_theorems_1_and_2_of_the_pricing_paper(horizon: int, regret: float, pilot: float) -> None:
    """In units of T, with half of epsilon = 1 for each releaser (erratum P11)."""
    theory = bounds("private-pricing", horizon=horizon, epsilon=0.5)
    assert number(theory, "bound", "Theorem 1") / horizon == pytest.approx(regret, rel=0.05)
    assert number(theory, "T0") / horizon == pytest.approx(pilot, rel=0.05)
    assert number(theory, "bound", "Theorem 2") > number(theory, "T0")


def test_theorems_1_and_2_by_hand_where_the_last_term_of_rho_is_the_largest() -> None:
    """At zeta = 6, s = 100 and epsilon = 100, with the G^2 of Theorem 1 and the G of Theorem 2."""
    d, T, zeta, s, epsilon = 2, 10**6, 6.0, 100.0, 100.0
    log, G, K = math.log(T), zeta, (1 + math.exp(-12)) ** 2 / (6 * math.exp(-12))
    updates = math.ceil(d * log / math.log(1.5))
    tail = 2 * log + math.log(2 * updates)
    own = epsilon / (2 * math.sqrt(2 * updates * tail))
    nu = 2 * G * math.sqrt(8 * (math.log(2) + tail) + 4 * own) / own
    first, second = (2 + 48 * s**2 * K * d * log * G**power for power in (2, 1))
    assert second > max(d**1.5 * log**5 / epsilon, 5 * nu * math.sqrt(5 * d * log))
    noise = (math.sqrt(3) * s * K + math.sqrt(5) * G * nu) * math.sqrt(d * log)
    gamma = K * (noise + (2 * G + 3) * math.sqrt(first))
    pilot = 32 * math.ceil((2 * G + 3) * second / math.sqrt(5 * d * log) + nu * G) ** 2
    root = math.sqrt(4.6 * d * T * log)
    theory = bounds("private-pricing", dim=d, horizon=T, zeta=zeta, s=s, epsilon=epsilon)
    assert number(theory, "bound", "Theorem 1") == pytest.approx(2 * gamma * root)
    assert number(theory, "T0") == pytest.approx(pilot * math.log(d * T) ** 2)
    later = 2 * 4 * s * K**2 * math.sqrt(d * log) * root
    assert number(theory, "bound", "Theorem 2") - number(theory, "T0") == pytest.approx(
        later, rel=1e-3
    )


@pytest.mark.parametrize(("dim", "power"), [(3, 35), (5, 97)])
def test_theorem_2_of_the_pricing_paper_needs_long_horizons(dim: int, power: int) -> None:
    rng = np.random.default_rng(0)
    customers = rng.uniform(-1, 1, size=(100_000, dim - 1))
    phi = np.column_stack([customers, -rng.random(len(customers))]) / math.sqrt(dim)
    kappa = np.linalg.eigvalsh(phi.T @ phi / len(phi))[0]
    theory = bounds("private-pricing", dim=dim)
    assert theory.parameters["kappa"] == pytest.approx(kappa, rel=0.02)
    condition = theory.vacuous[1].condition
    assert condition is not None and math.floor(condition) == power
    assert theory.sentences[-1] == f"Theorem 2 needs T >= 10^{condition:.1f}."


def test_the_parameters_of_the_theorems_are_those_of_the_agent() -> None:
    constants = pytest.importorskip("dpb_agents.pricing.paper_constants")
    demand, T, d = constants.Demand.of("logistic", 4.0, 1.0), 10**5, 3
    D = constants.most_updates("general", d, T)
    calls = constants.calls(demand, "literal", True, D, T, (1.0, T**-2), (1.0, T**-2))
    general = constants.choose("general", demand, d, T, 1.0, calls.nu)
    theory = bounds("private-pricing")
    expected = 2 * general.gamma * math.sqrt(4.6 * d * T * math.log(T))
    assert number(theory, "bound", "Theorem 1") == pytest.approx(expected)
    assert number(theory, "sigma of a node") == pytest.approx(calls.gram_sigma)


@pytest.mark.parametrize(
    ("epsilon", "printed", "exact"),
    [(0.5, 9.70, 7.03), (1.0, 4.90, 3.73), (2.0, 2.50, 1.99), (5.0, 1.055, 0.892)],
)
def test_noise_of_the_recommendation_paper(epsilon: float, printed: float, exact: float) -> None:
    theory = bounds("adaprivate-ts", epsilon=epsilon)
    assert number(theory, "sigma of a batch") == pytest.approx(printed, rel=5e-3)

    def delta(sigma: float) -> float:  # of the Gaussian mechanism at sensitivity 1
        left = stats.norm.cdf(0.5 / sigma - epsilon * sigma)
        right = stats.norm.cdf(-0.5 / sigma - epsilon * sigma)
        return float(left - math.exp(epsilon) * right)

    sigma = optimize.brentq(lambda x: delta(x) - 1e-5, 0.3, 30.0)
    assert number(theory, "sigma of a batch", sound=True) == pytest.approx(sigma, rel=1e-5)
    assert sigma == pytest.approx(exact, rel=5e-3)


def test_the_true_epsilon_of_eq_3_6_by_integration() -> None:
    theory = bounds("adaprivate-ts", epsilon=1.0, q=0.5)
    sigma = number(theory, "sigma of a sampled batch")
    true = number(theory, "epsilon", sound=True)

    def excess(x: float) -> float:
        mixed = 0.5 * stats.norm.pdf(x, 0, sigma) + 0.5 * stats.norm.pdf(x, 1, sigma)
        return float(max(0.0, mixed - math.exp(true) * stats.norm.pdf(x, 0, sigma)))

    delta = integrate.quad(excess, 0, 6, limit=500, epsabs=1e-12)[0]
    assert delta == pytest.approx(1e-5, rel=1e-3) and true > 7


def test_eq_3_18_and_the_noise_that_is_added_up() -> None:
    theory = bounds("adaprivate-ts", horizon=3000, batch=300, dim=4, failure=0.1)
    sigma = number(theory, "sigma of a batch")
    each = 2 * sigma * 2 * (1 + math.sqrt(2 * math.log(200) / 4)) * 4
    batches = range(1, 11)
    harmonic = each * sum(1 / k for k in batches)
    assert harmonic <= number(theory, "bound") == pytest.approx(each * (1 + math.log(10)))
    added = each * sum(math.sqrt(k) / k for k in batches)
    assert added <= number(theory, "the same") <= 1.1 * added


def test_the_first_horizon_of_a_bound() -> None:
    assert least_power(lambda t: 100.0 * math.sqrt(t)) == pytest.approx(4.0)
    assert least_power(lambda t: 2.0 * t) == math.inf
    assert least_power(lambda t: 1.0) == 1.0


def test_infinite_powers_are_none_in_json() -> None:
    theory = bounds("private-assortment", dim=10**6, capacity=10**6, rho=1e-9, kappa=1e-9)
    assert "vacuous up to T = 10^300" in theory.sentences[0]
    plain = json.loads(json.dumps(theory.to_dict(), allow_nan=False))
    assert plain["vacuous"] == [{"statement": "Theorem 4", "power": None, "condition": None}]
    assert {line["statement"] for line in plain["lines"]} >= {"Theorem 1", "Lemma S6"}


@pytest.mark.parametrize(
    ("paper", "parameters", "message"),
    [
        ("private-pricing", {"horizon": 1}, "horizon must be"),
        ("private-pricing", {"delta": 0.0}, "delta must be"),
        ("private-pricing", {"kappa": 0.5}, "kappa must be"),
        ("private-assortment", {"capacity": 1}, "capacity must be"),
        ("private-assortment", {"dim": 1}, "dim must be"),
        ("private-assortment", {"share": 1.0}, "share must be"),
        ("adaprivate-ts", {"batch": 10**6}, "batch must be"),
        ("adaprivate-ts", {"epsilon": 0.1}, "never reaches"),
    ],
)
def test_bad_parameters(paper: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        bounds(paper, **parameters)


def test_unknown_names() -> None:
    with pytest.raises(UnknownNameError, match="unknown paper 'pricing'"):
        bounds("pricing")
    with pytest.raises(UnknownNameError, match="did you mean 'horizon'"):
        bounds("private-pricing", horizn=3)


@pytest.mark.parametrize("paper", sorted(PAPERS))
def test_the_command_prints_what_the_function_returns(
    paper: str, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpb_gym import cli

    monkeypatch.setenv("COLUMNS", "400")  # without breaks within the cells of the table
    assert cli.run(["bounds", paper, "--set", "horizon=5000", "--json"]) == 0
    expected = bounds(paper, horizon=5000)
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(expected.to_dict()))
    assert cli.run(["bounds", paper, "--set", "horizon=5000"]) == 0
    text = capsys.readouterr().out
    assert all(line.quantity in text for line in expected.lines)
    assert all(sentence in text for sentence in expected.sentences)
