"""Papers of other packages: figures by path and entry point, registered quantities, own data."""

from __future__ import annotations

import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pytest
import yaml
from figure_helpers import curve
from pydantic import Field
from pydantic import ValidationError as Invalid
from test_figure_spec import fabricated

from dpb_gym import lazy
from dpb_gym.cli import main
from dpb_gym.errors import ParameterError, SuiteError, UnknownNameError
from dpb_gym.papers import (
    QUANTITIES,
    Curve,
    Figure,
    Measured,
    Quantity,
    figure_files,
    judge,
    load_figures,
    quantity,
    reproduce,
)


@pytest.fixture
def registry(monkeypatch: Any) -> None:
    """Remove the quantities that a test registers."""
    monkeypatch.setattr("dpb_gym.papers.quantities.QUANTITIES", dict(QUANTITIES))


def command(monkeypatch: Any, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["dpb", "reproduce", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


# ------------------------------------------------------------------ quantities


def test_a_registered_quantity_is_measured(registry: None) -> None:
    Power = Annotated[float, Field(gt=0.0)]

    def per_power(curve: Curve, reference: Curve, *, power, scale=1.0):  # type: ignore[no-untyped-def]
        weight = scale / curve.horizon**power
        shared = curve.final_regret.keys() & reference.final_regret.keys()
        gaps = {i: curve.final_regret[i] - reference.final_regret[i] for i in shared}
        return Measured(({i: weight * v for i, v in gaps.items()},))

    per_power.__annotations__ |= {"power": Power, "scale": float}
    quantity("gap-per-power")(per_power)
    curves = [curve([5.0, 9.0], agent="a", horizon=100), curve([1.0, 3.0], agent="b", horizon=100)]
    data = {"kind": "gap-per-power", "power": 0.5, "scale": 2.0, "reference": {"agent": "b"}}
    one = Quantity.model_validate(data)
    assert one.of(curves[0], curves).columns == ({0: pytest.approx(0.8), 1: pytest.approx(1.2)},)
    assert Quantity.model_validate(one.model_dump()) == one
    for change, message in (
        ({"power": -1.0}, "gap-per-power.power: Input should be greater than 0"),
        ({"powr": 1.0}, "gap-per-power.powr: Extra"),
        ({"scale": "2"}, "gap-per-power.scale: Input should be a valid number"),
        ({"reference": None}, "gap-per-power needs a reference"),
    ):
        with pytest.raises(Invalid, match=message):
            Quantity.model_validate({**data, **change})
    with pytest.raises(ParameterError, match="already"):
        quantity("gap-per-power")(lambda curve: Measured((curve.final_regret,)))


def test_unknown_quantities_offer_close_ones() -> None:
    with pytest.raises((Invalid, UnknownNameError), match="did you mean 'final-regret'"):
        Quantity.model_validate("final-regert")


# ------------------------------------------------------------------ figures


@pytest.fixture
def file(figure_data: dict[str, Any], tmp_path: Path) -> Path:
    path = tmp_path / "my" / "fig.yaml"
    path.parent.mkdir()
    path.write_text(yaml.safe_dump(figure_data))
    return path


def test_a_figure_by_path(monkeypatch: Any, capsys: Any, file: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = [str(file), "--out", str(out), "--workers", "1", "--quiet"]
    assert command(monkeypatch, *words, "--replicates", "8") == 0
    printed = capsys.readouterr().out
    assert "made-up/fig1: A figure" in printed and "HOLDS" in printed
    assert (out / "fig1/figure.html").exists()
    assert command(monkeypatch, *words, "--replicates", "8", "--json") == 0
    (one,) = json.loads(capsys.readouterr().out)["figures"]
    assert one["claims"][0]["verdict"] == "HOLDS" and one["folder"] == str(out / "fig1")
    assert command(monkeypatch, str(file.with_name("none.yaml"))) == 2
    assert "none.yaml: cannot be read" in capsys.readouterr().err
    file.write_text("paper: [")
    with pytest.raises(SuiteError, match="not valid YAML"):
        load_figures(str(file))


MODULE = """
from dpb_gym.papers import Measured, quantity


@quantity("regret-doubled")
def doubled(curve):
    return Measured(({i: 2.0 * v for i, v in curve.final_regret.items()},))
"""


@pytest.fixture
def package(
    monkeypatch: Any, registry: None, figure_data: dict[str, Any], tmp_path: Path
) -> dict[str, Any]:
    """A package with a paper, a quantity, and a second entry point that is broken."""
    home = tmp_path / "dpb_other_papers"
    (home / "other-paper").mkdir(parents=True)
    (home / "__init__.py").write_text(MODULE)
    figure_data["paper"] = "other-paper"
    figure_data["claims"][0]["quantity"] = "regret-doubled"
    (home / "other-paper" / "fig1.yaml").write_text(yaml.safe_dump(figure_data))
    monkeypatch.syspath_prepend(tmp_path)
    points = [
        EntryPoint("other", "dpb_other_papers", "dpb_gym.papers"),
        EntryPoint("broken", "dpb_no_such_module", "dpb_gym.papers"),
    ]
    monkeypatch.setattr("dpb_gym.lazy._plugins", lambda group: [(False, p) for p in points])
    yield figure_data
    sys.modules.pop("dpb_other_papers", None)
    lazy._loaded.difference_update(points)


def test_a_package_adds_papers_and_quantities(package: dict[str, Any], tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="could not load the papers of dpb_no_such_module"):
        assert {"other-paper/fig1", "private-pricing/fig2"} <= figure_files().keys()
    (figure,) = load_figures("other-paper")
    assert figure.target == "other-paper/fig1"
    done = reproduce("other-paper", tmp_path / "out", replicates=2, workers=1, progress=False)
    (one,) = done.figures
    for comparison in one.judgements[0].comparisons:
        twice = [2 * c.final.mean for c in one.curves]
        assert np.isclose(twice, comparison.left_value.mean).any()


# ------------------------------------------------------------------ the user's data


def test_one_task_is_changed_or_all(figure: Figure) -> None:
    changed = figure.with_environment({"n_items": 9, "raw.dim": 3, "raw.n_items": 7})
    raw, clip = (task.env_kwargs for task in changed.suite.tasks)
    assert (raw["n_items"], raw["dim"], clip["n_items"], clip["dim"]) == (7, 3, 9, 2)
    assert "raw.dim=3" in changed.notes[0]
    with pytest.raises(UnknownNameError, match="unknown task 'raws'; did you mean 'raw'"):
        figure.with_environment({"raws.dim": 3})
    with pytest.raises(ParameterError, match="horizon"):
        figure.with_environment({"raw.horizon": 10})


def test_claims_are_about_generated_data_until_every_task_has_its_own(
    figure_data: dict[str, Any],
) -> None:
    figure_data["synthetic"] = "Generated."
    for task in figure_data["suite"]["tasks"]:
        task["requires"] = "ml-25m"
    figure = Figure.model_validate(figure_data)
    some = figure.with_environment({"raw.data": "a.csv"})
    assert [task.requires for task in some.suite.tasks] == [None, "ml-25m"]
    assert some.synthetic and some.judged != figure.claims
    both = figure.with_environment({"raw.data": "a.csv", "clip.data": "b.csv"})
    assert not both.synthetic and both.judged == figure.claims


def test_claims_of_a_task_with_its_own_data_are_not_marked() -> None:
    (figure,) = load_figures("adaprivate-ts/table3")
    changed = figure.with_environment({"movielens.data": "ratings.csv"})
    data = {task.name: task.env_kwargs["data"] for task in changed.suite.tasks}
    assert data.pop("movielens") == "ratings.csv"
    assert data == {t.name: t.env_kwargs["data"] for t in figure.suite.tasks if t.name in data}
    curves = fabricated(changed)
    for one in (claim for claim in changed.claims if claim.quantity.kind != "spent"):
        assert judge(one, curves, changed.variants, changed.tables).comparisons, one.id


def test_the_command_gives_data_to_one_task(
    monkeypatch: Any, capsys: Any, figure_data: dict[str, Any], tmp_path: Path
) -> None:
    """The other task keeps the problem that it had."""
    path = tmp_path / "fig.yaml"
    path.write_text(yaml.safe_dump(figure_data))
    words = [str(path), "--replicates", "2", "--workers", "1", "--quiet", "--out"]
    assert command(monkeypatch, *words, str(tmp_path / "all"), "--set", "raw.n_items=9") == 0
    assert command(monkeypatch, *words, str(tmp_path / "none")) == 0
    notes = (tmp_path / "all/fig1/figure.md").read_text()
    assert "The environment was changed: raw.n_items=9." in notes
    before = (tmp_path / "none/fig1/figure.md").read_text()
    for norm, equal in (("clip", True), ("raw", False)):
        row = f"| {norm} | Random |"
        rows = [next(x for x in text.splitlines() if x.startswith(row)) for text in (notes, before)]
        assert (rows[0] == rows[1]) is equal
    assert command(monkeypatch, *words, str(tmp_path / "x"), "--set", "rwa.n_items=9") == 2
    assert "unknown task 'rwa'" in capsys.readouterr().err
