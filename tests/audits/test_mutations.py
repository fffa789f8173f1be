"""Every mutant of the mutation benchmark is caught by the check that its row names."""

from __future__ import annotations

import re
from pathlib import Path

import audit_mutations as BENCHMARK
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("mutant", BENCHMARK.MUTANTS, ids=lambda mutant: mutant.what)
def test_no_mutant_passes_unexplained(mutant):
    report = mutant.run()
    BENCHMARK.clear()
    assert BENCHMARK.check_of(report) == mutant.caught, report
    assert bool(mutant.why) == (mutant.caught == BENCHMARK.NONE)


@pytest.mark.parametrize("agent", [BENCHMARK.Honest, BENCHMARK.HonestRunning])
def test_the_agents_without_an_error_pass(agent):
    report = BENCHMARK.of(agent, 200, deployment=2000)()
    assert report.verdict == "PASS" and report.control == "FAIL", report


def test_the_page_has_a_row_of_every_mutant():
    page = (ROOT / "docs" / "audit.md").read_text()
    rows = re.search("<!-- mutations -->(.*?)<!-- /mutations -->", page, re.DOTALL)[1]
    written = re.findall(r"^\| (.+?) \| [A-Z ]+ \| (.+?) \|", rows, re.MULTILINE)
    assert written == [(mutant.what, mutant.caught) for mutant in BENCHMARK.MUTANTS]
    assert len(written) >= 20
