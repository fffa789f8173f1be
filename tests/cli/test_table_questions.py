"""Questions about a table: asked on a terminal, else refused with the options that answer them."""

from __future__ import annotations

import io
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpb_data
from dpb_gym import cli
from dpb_gym.cli import table_questions
from dpb_gym.cli.options import QUESTIONS
from dpb_gym.errors import QuestionError


@pytest.fixture
def weeks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    prices = rng.choice([2.0, 3.0, 4.0], 300)
    rows = [f"{p},{rng.poisson(20 / p)},{100 + k % 30}" for k, p in enumerate(prices)]
    path = tmp_path / "weeks.csv"
    path.write_text("price,units,household\n" + "\n".join(rows) + "\n")
    return path


class Terminal(io.StringIO):
    """Input of a terminal."""

    def isatty(self) -> bool:
        return True


def type_lines(monkeypatch: pytest.MonkeyPatch, *lines: str) -> Terminal:
    said = Terminal()
    monkeypatch.setattr("sys.stdin", Terminal("".join(f"{line}\n" for line in lines)))
    monkeypatch.setattr("sys.stderr", said)
    return said


def test_a_run_without_answers_is_refused_with_options(weeks: Path, capsys: Any) -> None:
    assert cli.run(["advise", "weeks.csv"]) == QUESTIONS == 3
    said = capsys.readouterr()
    assert said.out == ""
    lines = said.err.splitlines()
    assert lines[-1].startswith("dpb: error: 2 questions are open. Add an option for each")
    command = shlex.split(lines[-1].partition("instance: ")[2])
    assert command[:3] == ["dpb", "advise", "weeks.csv"]
    assert ": units is" in said.err and "--set offered=1 " in said.err
    assert "--set person=household" in said.err


def test_a_dry_run_asks_what_the_run_asks(weeks: Path, capsys: Any) -> None:
    assert cli.run(["advise", "weeks.csv", "--dry-run"]) == QUESTIONS
    dry = capsys.readouterr().out
    cli.run(["advise", "weeks.csv"])
    asked = [line for line in capsys.readouterr().err.splitlines() if line.startswith(("q", "  -"))]
    assert len(asked) > 4 and all(line in dry.splitlines() for line in asked)
    answers = ["--set", "offered=60", "--set", "person=none"]
    assert cli.run(["advise", "weeks.csv", "--dry-run", *answers]) == 0
    assert "question" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--set", "price=prise"], "unknown column for price= 'prise'"),
        (["--set", "prise=price"], "no argument 'prise'"),
        (["--problem", "auction"], "problem must be one of"),
        (["--problem", "pricing", "--set", "outside=a"], "a table for pricing has no argument"),
    ],
)
def test_a_dry_run_checks_its_arguments(
    words: list[str], message: str, weeks: Path, capsys: Any
) -> None:
    assert cli.run(["advise", "weeks.csv", "--dry-run", *words]) == cli.BAD_INPUT
    assert message in capsys.readouterr().err


def test_a_terminal_is_asked(weeks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = type_lines(monkeypatch, "1", "x", "offered=many", "3", "2")
    reading = table_questions.ask(dpb_data.read("weeks.csv"), ["dpb", "advise", "weeks.csv"])
    assert reading.questions == () and len(reading.table()) == 300
    text = said.getvalue()
    assert "1. --set offered=COLUMN" in text and "2. --set offered=NUMBER" in text
    assert "type offered=COLUMN with the value in place" in text
    assert "unknown column for offered= 'many'" in text, "a wrong answer is asked again"
    assert text.splitlines()[-1].endswith(
        "the same without questions: dpb advise weeks.csv --set offered=1 --set person=none"
    )


def test_a_terminal_that_ends_gives_no_answer(weeks: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    type_lines(monkeypatch)
    with pytest.raises(QuestionError, match="How many customers saw the price"):
        table_questions.ask(dpb_data.read("weeks.csv"), ["dpb"])
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n"))
    reading = dpb_data.read("weeks.csv")
    assert table_questions.ask(reading, ["dpb"]) is reading, "no terminal, no question"


def test_the_problem_is_an_option_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {"fee": np.linspace(1, 9, 90), "kept": np.arange(90) % 2}
    type_lines(monkeypatch, "problem=pricing", "1", "1")
    reading = table_questions.ask(dpb_data.read(table), ["dpb"])
    assert reading.columns["price"] == "fee" and reading.columns["bought"] == "kept"
