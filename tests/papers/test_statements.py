"""Each numbered statement of the papers has an entry, and each entry a target that exists."""

from __future__ import annotations

import copy
from typing import Any

import pytest


@pytest.fixture
def statements(import_benchmark: Any) -> Any:
    return import_benchmark("paper_statements")


def test_every_statement_of_the_papers_has_a_target(statements: Any) -> None:
    assert statements.faults(statements.read()) == []


def test_the_numbers_are_those_of_the_papers(statements: Any) -> None:
    """Counted by hand in the texts, which are not part of the repository."""
    counts = {
        paper: sum(len(numbers) for numbers in data["numbers"].values())
        for paper, data in statements.read().items()
    }
    assert counts == {"private-assortment": 50, "private-pricing": 35, "adaprivate-ts": 22}


def test_the_page_is_written_from_the_entries(statements: Any) -> None:
    page = statements.PAGE.read_text(encoding="utf-8")
    assert statements.on_page(page, statements.read()) == page
    assert page.count("<!-- where ") == 3


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda entries: entries.pop("Lemma S6"), "Lemma S6: no entry"),
        (lambda entries: entries.update({"Lemma S99": {}}), "Lemma S99: not in the paper"),
        (lambda entries: entries["Figure 1"].pop("reason"), "Figure 1: no code, test, figure"),
        (lambda entries: entries["Figure 1"].update(reason=""), "Figure 1: no code, test, figure"),
        (lambda entries: entries["Figure 1"].update(about=""), "Figure 1: says nothing about it"),
        (lambda entries: entries["Figure 1"].update(page=1), "Figure 1: unknown key page"),
        (lambda entries: entries["Figure 4"].update(figure="private-assortment/fig9"), "fig9 does"),
        (lambda entries: entries["Lemma S6"].update(errata=["A99"]), "erratum A99 does not exist"),
        (
            lambda entries: entries["Lemma S6"].update(code="dpb_gym/none.py::f"),
            "code dpb_gym/none.py::f does not exist",
        ),
        (
            lambda entries: entries["Lemma S6"].update(test="tests/papers/test_statements.py"),
            "test tests/papers/test_statements.py does not exist",
        ),
        (
            lambda entries: entries["Lemma S6"].update(
                code="dpb_gym/privacy/guarantee.py::Guarantee.no_such_method"
            ),
            "Guarantee.no_such_method does not exist",
        ),
    ],
)
def test_a_damaged_entry_is_a_fault(statements: Any, change: Any, fault: str) -> None:
    papers = copy.deepcopy(statements.read())
    change(papers["private-assortment"]["statements"])
    assert any(fault in line for line in statements.faults(papers))
