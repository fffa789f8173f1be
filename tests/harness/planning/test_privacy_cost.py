"""What privacy costs: the figures, the words, the page, the command."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpb_gym
from dpb_data import synthetic
from dpb_gym import cli
from dpb_gym.errors import AgentError, DPBError, ParameterError
from dpb_gym.planning.privacy_cost import PrivacyCost
from dpb_gym.privacy import Composition, GaussianEvent, Guarantee
from dpb_gym.results import metrics

SMALL = {"horizon": 300, "first": 50, "replicates": 4}


@pytest.fixture(scope="module")
def cost() -> PrivacyCost:
    return dpb_gym.cost_of_privacy("DPB/Recommendation-v0", ["rho=0.1", "rho=5"], dim=4, **SMALL)


def test_losses_are_paired_differences_to_the_baseline(cost: PrivacyCost) -> None:
    assert cost.agent == "one-pass-linear"
    assert {x.agent for x in cost.losses} == {"one-pass-linear", "adaprivate-ucb", "random"}
    curves: dict[tuple[str, str], dict[int, Any]] = {}
    for s in cost.result.rows:
        at = {t: i for i, t in enumerate(s.rounds.tolist())}
        curves[s.agent, s.budget] = {t: (s.regret[:, at[t]], s.reward[:, at[t]]) for t in (50, 300)}
    base = curves["one-pass-linear", "none"]
    for loss in cost.losses:
        own = curves[loss.agent, loss.budget]
        more = {t: own[t][0] - base[t][0] for t in (50, 300)}
        if loss.first == 1:
            lost, earned = more[50], base[50][1].mean()
        else:
            assert (loss.first, loss.last) == (51, 300)
            lost, earned = more[300] - more[50], (base[300][1] - base[50][1]).mean()
        expected = metrics.interval(100.0 * lost / earned)
        assert loss.percent.mean == pytest.approx(100.0 * lost.mean() / earned)
        ends = (loss.percent.low, loss.percent.high)
        assert ends == pytest.approx((expected.low, expected.high))
    worst = [x.percent.mean for x in cost.losses if x.agent == "random"]
    ours = [x.percent.mean for x in cost.losses if x.budget == "rho=5"][:2]
    assert ours[1] < worst[1]


def test_sentences(cost: PrivacyCost) -> None:
    early, late = cost.losses[:2]
    assert (
        cost.sentence("rho=0.1")
        == cost.sentence()
        == (
            f"at rho=0.1 you lose {early} of the reward in the first 50 customers, "
            f"{late} in the next 250"
        )
    )
    assert cost.sentences[-1].startswith("at random you lose") and len(cost.sentences) == 3
    assert "rho=5" in cost.sentence("rho=5", "adaprivate-ucb")
    assert len(cost.records()) == len(cost.losses) == 10
    assert cost.records()[0]["percent"] == early.percent.mean
    with pytest.raises(ParameterError, match="no one-pass-linear at rho=2; there are one-pass"):
        cost.sentence("rho=2")
    assert any("contexts are public" in note for note in cost.notes)


def test_picture_and_page(cost: PrivacyCost, tmp_path: Any) -> None:
    figure = cost.plot(tmp_path / "kept.png")
    assert (tmp_path / "kept.png").read_bytes().startswith(b"\x89PNG")
    (axes,) = figure.axes
    assert axes.get_xlabel() == "the reward in percent of that of one-pass-linear without privacy"
    means = [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert np.allclose(means, [100.0, *(100.0 - x.percent.mean for x in cost.losses)])
    page = cost.to_html(tmp_path / "deep" / "cost.html").read_text()
    assert cost.sentence() in page and page.count('class="line"') == len(cost.losses) + 1
    for note in cost.notes:
        assert note.replace("'", "&#39;") in page
    assert "http://" not in page and "https://" not in page and "<script" not in page


def test_a_log_says_what_it_protects_and_how_often_people_come() -> None:
    frame = {**synthetic.loans(200), "who": np.arange(200) // 4}
    cost = dpb_gym.cost_of_privacy(
        frame, ["rho=1"], "pricing", features=["term"], person="who", horizon=300, replicates=2
    )
    said = "\n".join(cost.notes)
    assert "one person comes in up to 8 rounds" in said, "4 rows, drawn twice in 300 rounds"
    # rho 1 for one round is rho 64 for a group of 8 (zCDP degrades with the square of the size)
    group = Guarantee("joint", "user-round", curve=Composition.of(GaussianEvent(1.0, 8 * 2**0.5)))
    assert group.rho == pytest.approx(64.0)
    promise = (
        f"one-pass-pricing at rho=1: eps={group.epsilon(1e-5):.4g} at delta=1e-05 for one person"
    )
    assert f"{promise}, too large to be a guarantee per person" in said
    assert "bounds of term, price were read off the table" in said
    assert "its customers are not protected" in said and "dpb_gym.serve" in said
    assert "of revenue in the first 30 customers" in cost.sentence()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (({"price": [1, 2]},), ParameterError, "name the problem of the log"),
        (("shop.csv",), ParameterError, "name the problem of the log"),
        (("DPB/Pricing-v0", ["rho=0"]), DPBError, "rho"),
        (("DPB/Pricing-v0", "rho=0"), DPBError, "rho must be a finite number"),
        (("DPB/Pricing-v0", ["rho=1"], "pricing"), DPBError, "DPB/Pricing-v0"),
    ],
)
def test_invalid_arguments(arguments: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        dpb_gym.cost_of_privacy(*arguments, **SMALL)


def test_the_baseline_is_the_agent_without_a_budget() -> None:
    with pytest.raises(AgentError, match="dpmnl does not run without a budget"):
        dpb_gym.cost_of_privacy("DPB/Assortment-v0", ["rho=1"], agents=["dpmnl"], **SMALL)
    with pytest.raises(ParameterError, match=r"first must be an integer in 1\.\.299"):
        dpb_gym.cost_of_privacy("DPB/Pricing-v0", ["rho=1"], horizon=300, first=300)


def test_the_command(tmp_path: Any, monkeypatch: Any, capsys: Any) -> None:
    frame = synthetic.loans(200)
    with (tmp_path / "loans.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(frame)
        writer.writerows(zip(*(column.tolist() for column in frame.values())))
    monkeypatch.chdir(tmp_path)
    command = [
        "cost-of-privacy", "loans.csv", "--problem", "pricing", "--set", "features=[term, score]",
        "--horizon", "100", "--replicates", "2", "--workers", "1", "--budget", "rho=1",
        "--html", "cost.html", "--plot", "cost.svg", "--json",
    ]  # fmt: skip
    assert cli.run(command) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sentences"][0].startswith("at rho=1 you lose")
    assert {row["agent"] for row in told["losses"]} >= {"one-pass-pricing", "random"}
    assert told["sentences"][0] in (tmp_path / "cost.html").read_text()
    assert "<svg" in (tmp_path / "cost.svg").read_text()
    assert cli.run(["cost-of-privacy", "loans.csv", "--problem", "pricing", "--set", "x=1"]) == 2
    assert "columns of a pricing log: got an unexpected" in capsys.readouterr().err


def test_an_early_part_without_earnings_is_named(tmp_path: Path) -> None:
    place = tmp_path / "quotes.csv"
    quotes = [(price, int(k < 18 - 2 * price)) for price in range(1, 9) for k in range(20)]
    place.write_text("price,bought\n" + "".join(f"{p},{b}\n" for p, b in quotes))
    log = dpb_gym.from_log(place, "pricing", bounds={"price": (0, 7000)})
    with pytest.raises(ParameterError, match=r"earns nothing in rounds 1 to 1: .* another `first`"):
        dpb_gym.cost_of_privacy(log, ["rho=1"], horizon=20, first=1, replicates=2)
