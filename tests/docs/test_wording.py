"""The check of words, of single-word lines and of tables notices each kind of problem."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "docs/_ext/wording.py"


@pytest.fixture(scope="module")
def wording():
    spec = importlib.util.spec_from_file_location("wording", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_tracked_text_has_a_problem(wording, capsys):
    status = wording.main()
    assert status == 0, capsys.readouterr().err


@pytest.mark.parametrize(
    "text",
    ["calm", "The house wins", "a yardstick", "whoever comes", "made anew", "deals ratings",
     "dealt", "laid out", "of one's own", "as it is now", "it is no longer so", "not any more",
     "a stranger's", "the zoo", "nobody's", "told apart", "kept in a cache", "found to be small",
     "the worth of a policy", "the papers' room", '"""Tells whom it concerns."""',
     '    """Whom the environment draws."""', "# Nobody listens"],
)  # fmt: skip
def test_excluded_words_are_noticed(wording, text):
    assert [number for number, _ in wording.words(f"fine\n{text}\n")] == [2]


@pytest.mark.parametrize(
    "text",
    ["if nobody is trusted", "the file is found", "results are kept", "by hand", "a warehouse",
     "ideal", "the numerator's noise no longer matters", "the room rate", "delayed"],
)  # fmt: skip
def test_words_of_the_field_are_not(wording, text):
    assert list(wording.words(text)) == []


LONG = "x" * 60 + " " + "y" * 55
TABLE = "| a | b |\n|---|---|\n| 1 | 2 |\n"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("The calibration in\ndeciles\nwith intervals.\n", 2, "in a paragraph"),
        ("- The calibration in\n  deciles\n  with intervals.\n", 2, "in a paragraph"),
        ("Results are\nequal.\n", 2, "fits on the line before"),
        (TABLE + "| 3 |\n", 4, "a row of 1 cells in a table of 2"),
        (TABLE + "| 3 | 4 | 5 |\n", 4, "a row of 3 cells in a table of 2"),
        (TABLE + "\n| 3 | 4 |\n", 5, "without a line of dashes"),
        ("Text.\n" + TABLE, 2, "below a paragraph"),
        (TABLE + "Text goes on.\n", 4, "text directly below a table"),
    ],
)
def test_broken_layout_is_noticed(wording, text, line, what):
    violations = list(wording.layout(text))
    assert [number for number, _ in violations] == [line] and what in violations[0][1]


@pytest.mark.parametrize(
    "text",
    [
        TABLE + "| `a|b` | c \\| d |\n\nText.\n",
        "<!-- cells -->\n" + TABLE + "<!-- /cells -->\n",
        f"{LONG}\nend.\n\nText.\n",  # does not fit on the line before
        "```text\none\ntwo\n| x |\n```\n",
        "term\n: A definition of it.\n",
        "# Title\n\nWord.\n\nText.\n",
        "- one\n- two\n",
        "---\ntitle: x\nsdk: y\n---\n\nText.\n",
    ],
)
def test_good_layout_is_not(wording, text):
    assert list(wording.layout(text)) == []


def test_variables_are_named_by_what_they_are(wording):
    text = "found = 1\n\ndef rows(calm, table):\n    return f'{found}', table.found, 'found'\n"
    assert [number for number, _ in wording.names(text)] == [1, 3, 4]
