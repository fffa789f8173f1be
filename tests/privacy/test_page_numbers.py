"""Numbers on the pages about privacy, computed again."""

import math
from pathlib import Path

import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import dpb_gym
from dpb_gym.audits import interference, likelihood_ratio
from dpb_gym.cli import run
from dpb_gym.privacy import (
    Certificate,
    Composition,
    GaussianEvent,
    Guarantee,
)
from dpb_gym.privacy.releasers import mechanisms, secure_aggregation
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.privacy.releasers.secure_aggregation import CELLS

DOCS = Path(__file__).parents[2] / "docs"


def page(name):
    """Return the text of a page in one line."""
    return " ".join((DOCS / name).read_text(encoding="utf-8").split())


def gaussian_epsilon(mu, delta):
    """Return epsilon of Gaussian noise (Balle & Wang 2018, Theorem 8)."""

    def excess(epsilon):
        far = norm.logcdf(-epsilon / mu - mu / 2)
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + far) - delta

    return brentq(excess, 0.0, 100.0)


def test_the_first_line_of_guarantees():
    epsilon = gaussian_epsilon(1.0, 1e-5)  # rho = mu^2 / 2
    assert f"joint zCDP rho=0.5 per user-round (replace-one); eps={epsilon:.4g} at delta=1e-05" in (
        page("guarantees.md")
    )


def test_posterior_probabilities():
    text = page("guarantees.md")
    shares = [100.0 / (1.0 + math.exp(-epsilon)) for epsilon in (1.0, 2.0, 5.0)]
    least, middle, most = (math.ceil(10.0 * share) / 10.0 for share in shares)
    assert f"at most {least}% at epsilon 1, {middle}% at 2, {most}% at 5" in text


def test_the_loss_of_ten_rounds():
    assert "rho up to a hundred times" in page("guarantees.md")
    # ten replaced rounds move a sum ten times as far, and rho = distance^2 / (2 sigma^2)
    curves = [Composition.of(GaussianEvent(3.0, s)) for s in (1.0, 10.0)]
    one, ten = (Guarantee("joint", "user-round", curve=curve).epsilon(1e-5) for curve in curves)
    assert one == pytest.approx(gaussian_epsilon(1 / 3, 1e-5), rel=1e-6)
    assert ten == pytest.approx(gaussian_epsilon(10 / 3, 1e-5), rel=1e-6)


def test_tau_of_devices_is_negligible():
    said = " ".join(secure_aggregation.__doc__.split())
    assert f"tau is below 1e-260 for the {CELLS:g} cells" in said
    # 10 sum_{k < n} exp(-2 pi^2 s^2 k / (k + 1)), whose first term is the largest
    largest = -((math.pi * CELLS) ** 2) / math.log(10.0)
    assert math.log10(10.0 * 1e9) + largest < -260.0


def batches(rho, trust):
    """Return the sums of a session of 10,000 rounds, whose batches are planned."""
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=10_000)
    session = dpb_gym.serve(
        "one-pass-pricing", f"rho={rho}@{trust}", problem, noise="seeded", seed=1, warm=False
    )
    sums = behind(session.agent.curator.releasers[0])
    sums.ready()
    return sums


def test_the_noise_of_batches():
    text = " ".join(mechanisms.__doc__.split())
    ratios = {}
    for trust in ("aggregator", "shuffler"):
        for rho in (0.02, 0.1, 0.5, 1.0):
            sums = batches(rho, trust)
            variance = sum(batch.sigma**2 for batch in sums.device_mechanisms)
            s = sums.sensitivity / math.sqrt(2.0 * rho)
            k = len(sums.device_mechanisms)
            ratios.setdefault(trust, []).append(math.sqrt(variance / k) / s)
    assert {f"{ratio:.1f}" for ratio in ratios["aggregator"]} == {"1.0"}
    assert "about s sqrt(k) with `Discrete` and 1.1 to 1.4 s sqrt(k) with `Bits`" in text
    assert 1.1 <= min(ratios["shuffler"]) <= max(ratios["shuffler"]) <= 1.4


def test_the_share_of_devices_that_may_be_lost():
    share = mechanisms.Discrete().dropout
    assert f"{100 * (1 - share):g}% of the devices of a batch add their noise" in page("trust.md")
    assert f"If more than {100 * share:g}% of a batch are lost" in page("trust.md")


def test_a_shuffler_could_estimate_a_record():
    assert "standard deviation of less than 3% of the range" in page("trust.md")
    sums = batches(0.5, "shuffler")
    last = sums.device_mechanisms[-1]
    # of a device's bits: those of the record are flipped with probability 1/5, the rest are coins
    variance = 0.16 * 2 * last.levels + 0.25 * (last.coins // last.batch)
    error = last.grid * math.sqrt(variance) / 0.6
    assert error < 0.03 * 2.0 * sums.clip.longest


def test_two_rounds_are_separated_with_the_stated_probability():
    words = {tuple(word) for word in interference._WORDS.tolist()}
    n = len(interference._WORDS)
    assert len(words) == n and {sum(word) for word in words} == {4}
    # words of equally many ones: two that differ have a bit that only the first has
    assert f"{n - 1}/{n}" in page("audit.md")
    assert f"after {likelihood_ratio.MOST_STEPS} releases" in page("audit.md")


def test_the_output_on_certificates():
    text = page("account.md")
    mu = brentq(lambda mu: gaussian_epsilon(mu, 1e-6) - 1.0, 0.01, 5.0)
    assert f"anticipating zCDP rho={mu**2 / 2:.4g} per user-round" in text
    assert f"epsilon {gaussian_epsilon(mu, 1e-5):.4g} at delta 1e-05" in text


def test_where_a_stated_distance_is_named(capsys, tmp_path):
    clause = "declared: sensitivity 1 of running sums of curvature and response"
    text = page("guarantees.md")
    assert (
        f'such as "{clause}", is named by `dpb show`, by sessions and by their certificates' in text
    )
    assert "Rows of results and certificates of them leave it out" in text
    budget = "rho=0.5"
    run(["show", "one-pass-pricing", "--budget", budget])
    shown = " ".join(capsys.readouterr().out.split())
    assert clause in shown
    session = dpb_gym.serve(
        "one-pass-pricing", budget, "DPB/Pricing-v0", noise="seeded", seed=1, warm=False
    )
    assert clause in str(session.guarantee)
    assert clause in session.certificate().content["entries"][0]["findings"]["declared"]
    result = dpb_gym.evaluate("DPB/Pricing-v0", [("one-pass-pricing", budget)], 20, 1)
    (row,) = result.to_leaderboard().tasks[0].rows
    assert "declared" not in row.guarantee
    result.save(tmp_path / "results")
    assert run(["certify", str(tmp_path / "results"), "--out", str(tmp_path / "it.json")]) == 0
    (entry,) = Certificate.load(tmp_path / "it.json").content["entries"]
    assert clause not in entry["findings"]["declared"]
