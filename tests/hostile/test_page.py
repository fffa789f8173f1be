"""The part "Robustness tests" of docs/contributing.md states the right number of cases."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from hostile_lists import DEFAULT_TRIES, TRIES
from test_forgeries import NUMBERS
from test_unexpected_files import CALLS, FILES, GIVEN, HOWS

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "contributing.md"


def test_the_page_states_the_numbers_of_cases() -> None:
    page = PAGE.read_text(encoding="utf-8")
    text = page.partition("\n## Robustness tests\n")[2].partition("\n## ")[0]
    said = [int(n) for n in re.findall(r"^\| [^|]+ \| ([\d,]+) \|", text, re.M)]
    commands = re.search(r'"DPB_TRIES", (\d+)', (TESTS / "cli" / "test_fuzz.py").read_text())
    values = runpy.run_path(str(TESTS / "envs" / "test_fuzz.py"))["VALUES"]
    assert commands is not None and f"takes {len(values)} hostile values" in text
    source = (Path(__file__).parent / "test_unexpected_files.py").read_text()
    bombs = source.split("    made = {")[1]
    assert said == [
        DEFAULT_TRIES, 2 * len(NUMBERS), DEFAULT_TRIES, DEFAULT_TRIES,
        len(FILES) * len(HOWS) * len(CALLS), 2 * len(GIVEN), DEFAULT_TRIES,
        len(re.findall(r'^        "', bombs.split("    }")[0], re.M)), int(commands[1]),
    ]  # fmt: skip
    assert TRIES == DEFAULT_TRIES or "DPB_TRIES" in text
