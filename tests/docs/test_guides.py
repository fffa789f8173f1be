"""Guides: suite reference, glossary, choice of an agent, tutorials, width of pages."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from pathlib import Path

import pytest
import yaml

from dpb_gym.registry import agent_specs
from dpb_gym.suites.spec import Task
from dpb_gym.suites.suite import Participant, Suite, Track

DOCS = Path(__file__).parents[2] / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))


@pytest.fixture(scope="module", autouse=True)
def extension():
    sys.path.insert(0, str(DOCS / "_ext"))
    yield
    sys.path.remove(str(DOCS / "_ext"))


def module(name):
    return importlib.import_module(name)


def test_every_key_of_a_suite_is_described(tmp_path):
    pages = module("dpb_site.markdown").Pages(tmp_path)
    module("dpb_site.suites").write(pages)
    text = (tmp_path / "suite.md").read_text()
    parts = dict(part.partition("\n")[::2] for part in text.split("\n## "))
    for title, model in (
        ("The file", Suite), ("A task", Task), ("A track", Track), ("An agent", Participant),
    ):  # fmt: skip
        rows = re.findall(r"^\| `(\w+)` \| (.+?) \| (.*?) \| (.+) \|$", parts[title], re.M)
        assert [row[0] for row in rows] == list(model.model_fields), title
        required = [name for name, field in model.model_fields.items() if field.is_required()]
        assert [row[0] for row in rows if row[2] == "required"] == required
    assert "integer (>= 1, <= 1,000,000) | required | Replicates per task." in parts["The file"]
    assert "mapping to list of budget" in parts["The file"]
    example = parts["Example"].partition("```yaml\n")[2].partition("```")[0]
    assert Suite.model_validate(yaml.safe_load(example)).name == "smoke"


def test_the_glossary_is_sorted_and_complete():
    text = (DOCS / "faq.md").read_text(encoding="utf-8")
    entries = re.findall(r"^(\S.*)\n: (.+)", text.partition("\n## Glossary\n")[2], re.M)
    terms = [term for term, _ in entries]
    assert terms == sorted(terms) and len(terms) > 30
    assert all(len(text) > 20 for _, text in entries)


def test_messages_of_the_page_of_errors_are_those_of_the_code():
    """Each part of a message between dots is in a source file."""
    rows = re.findall(r"^\| (.+?) \| .+ \|$", (DOCS / "faq.md").read_text(), re.M)
    messages = [row for row in rows if row not in ("message", "---") and "exit status" not in row]
    assert len(messages) > 5
    sources = [
        p.read_text() for d in ("dpb_gym", "envs_data") for p in (DOCS.parent / d).rglob("*.py")
    ]
    code = re.sub(r'"\s*\n\s*f?"', "", "\n".join(sources))
    code = code.replace('{", ".join(FORMATS)}', ".png, .pdf, .svg").replace(
        "{', '.join(FORMATS)}", ".png, .pdf, .svg"
    )
    for message in messages:
        for part in filter(None, (part.strip(" ;,") for part in message.split("..."))):
            assert part in code, message


def test_every_erratum_of_a_paper_quotes_it_and_refutes_it_by_code():
    parts = re.split(r"^##+ ", (DOCS / "errata.md").read_text(), flags=re.M)
    errata = [part for part in parts if re.match(r"[APR]\d+[., ]", part)]
    assert len(errata) > 35
    for part in errata:
        title, _, text = part.partition("\n")
        assert text.startswith("\n> "), f"no quotation: {title}"
        code = "".join(re.findall(r"```python\n(.*?)```", text, re.S))
        assert "assert" in code or "No error" in title, f"no assertion: {title}"


PARTS = (
    "Errors",
    "Valid but loose",
    "Not stated, or a choice of the experiments",
    "Contradictions inside a paper",
)


def test_every_erratum_of_a_paper_is_in_one_of_four_parts():
    """A withdrawn entry must not be among the errors, and no label is used twice."""
    pages = re.split(r"^## ", (DOCS / "errata.md").read_text(), flags=re.M)
    parts = {page.partition("\n")[0]: page for page in pages[1:]}
    labels = {
        part: [
            label
            for head in re.findall(r"^### ([APR]\d+[^.:]*)[.:] ", parts.get(part, ""), flags=re.M)
            for label in re.findall(r"[APR]\d+", head)
        ]
        for part in PARTS
    }
    assert all(labels.values()), labels
    used = [label for part in PARTS for label in labels[part]]
    assert len(used) == len(set(used))
    for paper, number in (("A", 18), ("P", 13), ("R", 23)):
        assert {f"{paper}{k}" for k in range(1, number + 1)} == {x for x in used if x[0] == paper}
    assert "P6" in labels["Valid but loose"] and "### P6. Withdrawn" in parts["Valid but loose"]
    assert "**P6 is withdrawn.**" in parts["Changes of this page"]


def test_the_choice_of_an_agent_states_the_right_guarantees():
    text = (DOCS / "choose.md").read_text()
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|([^|]*)\| (.+) \|$", text, re.M)[1:]
    kinds = {
        "a slate of items": "assortment",
        "a price": "pricing",
        "a slate of items and their prices": "assortment-pricing",
    }
    listed = set()
    for decided, protects, names in rows:
        for name in re.findall(r"`([a-z-]+\d?)`", names):
            spec = agent_specs()[name]
            if protects.strip():
                notion, unit = protects.strip().split(", ")
                # With a limit on a user's rounds the unit is all of them.
                capped = f"{name}`** with `max_rounds_per_user" in names
                assert spec.protects == (notion, "reward" if capped else unit), name
                assert kinds.get(decided, "recommendation") in spec.supports
            else:
                assert spec.protects is None
            listed.add(name)
    private = {n for n, s in agent_specs().items() if s.protects and n.startswith("one-pass")}
    assert private <= listed and len(listed) > 20


# What a first visitor came for: the agent's regret on the arena, and the cost on the table.
ANSWERS = {
    "arena": (r">mine</td>(<td[^>]*>[^<]*</td>){2}<td[^>]*>[\d,.]+ \[[\d,.]+, [\d,.]+\]",),
    "own_data": (r"at eps=1,delta=1e-6 you lose [\d.]+% \[", r">one-pass-pricing</td>"),
}


@pytest.mark.parametrize("script", TUTORIALS, ids=lambda path: path.stem)
def test_tutorials_run_as_notebooks(script, tmp_path):
    tutorials = module("dpb_site.tutorials")
    notebook = tutorials.run(
        tutorials.installing(tutorials.read(script.read_text())), tmp_path
    )  # as Colab runs it
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    # A first visitor answers a question in at most five actions after the installation.
    assert len(code) <= 6 or script.stem not in ("arena", "own_data")
    assert len(code) >= 4 and "# %%" not in "".join(cell.source for cell in notebook.cells)
    kinds = {kind for cell in code for out in cell.outputs for kind in out.get("data", {})}
    assert "text/html" in kinds
    text = "\n".join(tutorials.shown(notebook, tmp_path / "page.md")[1:])
    assert text.startswith("# ") and "<table" in text
    for answer in ANSWERS.get(script.stem, ()):
        assert re.search(answer, text), answer
    assert len(list(tmp_path.glob("page-*.png"))) == text.count("```{image}")


def test_a_tutorial_that_fails_stops_the_build(tmp_path):
    tutorials = module("dpb_site.tutorials")
    notebook = tutorials.read("# %% [markdown]\n# # Title\n\n# %%\n1 / 0\n")
    assert [cell.source for cell in notebook.cells] == ["# Title", "1 / 0"]
    with pytest.raises(Exception, match="ZeroDivisionError"):
        tutorials.run(notebook, tmp_path)


@pytest.mark.browser
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs a headless Chromium")
def test_pages_wider_than_a_phone_are_reported(tmp_path):
    view = '<!doctype html><meta name="viewport" content="width=device-width">'
    (tmp_path / "fine.html").write_text(f"{view}<p>{'word ' * 100}")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "cut.html").write_text(f"{view}<div style='width: 500px'>wide</div>")
    widths = module("phone").widths(tmp_path)
    assert widths["fine.html"] == 390 and widths["sub/cut.html"] > 390
