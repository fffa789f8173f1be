"""README and docs: every Python snippet runs, every command works, every link resolves."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# test_site.py covers generated pages.
WRITTEN = [p for p in DOCS.rglob("*.md") if not p.relative_to(DOCS).parts[0].startswith("_")]
TOP = [ROOT / f"{name}.md" for name in ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")]
PAGES = [*TOP, *sorted(WRITTEN)]
FENCE = re.compile(r"^```(\w+)[^\n]*\n(.*?)^```$", re.M | re.S)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
NAMES = [str(p.relative_to(ROOT)) for p in PAGES]


def blocks(page, language):
    return [code for lang, code in FENCE.findall(page.read_text()) if lang == language]


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_python_snippets_run(page, tmp_path, forks):
    code = "\n".join(b for b in blocks(page, "python") if not b.startswith(">>>"))
    if not code:
        return
    # Worker processes import the script, so it needs a guard.
    guarded = "if __name__ == '__main__':\n" + _indent(code)
    done = forks.run(guarded, cwd=tmp_path, DPB_CACHE=str(tmp_path / "c"))
    assert done.returncode == 0, done.stderr[-3000:]


SESSIONS = """
import doctest, sys
options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
sys.exit(doctest.testfile(sys.argv[1], module_relative=False, optionflags=options).failed)
"""


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_python_sessions_print_what_they_show(page, tmp_path, forks):
    if not any(b.startswith(">>>") for b in blocks(page, "python")):
        return
    done = forks.run(SESSIONS, str(page), cwd=tmp_path, DPB_CACHE=str(tmp_path / "c"))
    assert done.returncode == 0, done.stdout[-3000:]


def test_the_first_snippet_of_the_readme_prints_what_it_shows(tmp_path, forks):
    readme = ROOT / "README.md"
    done = forks.run(blocks(readme, "python")[0], cwd=tmp_path, DPB_CACHE=str(tmp_path / "c"))
    assert done.stdout == blocks(readme, "text")[0]


def _indent(code):
    return "".join(f"    {line}\n" if line.strip() else "\n" for line in code.splitlines())


# One process runs and prints the commands of a page. Only the README's use all cores, in worker
# processes, which import the script: without a guard each of them would run the commands again.
RUN_ALL = """
import json, os, sys
from dpb_gym.cli import run
if __name__ == "__main__":
    if sys.argv[1] != "README.md":
        os.sched_getaffinity = lambda _: {0}
    for line, words in json.loads(sys.argv[2]):
        print("$", line, file=sys.stderr, flush=True)
        if status := run(words):
            sys.exit(status)
"""


OTHERS = {"pip", "git", "cd", "python", "python3", "source", ".", "curl", "docker"}
"""Commands of other programs."""


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_commands_work(page, tmp_path, forks):
    makefile = (ROOT / "Makefile").read_text()
    commands = []
    for block in blocks(page, "yaml"):
        if named := re.match(r"# (\w+\.yaml)\n", block):
            (tmp_path / named[1]).write_text(block)
    for block in blocks(page, "bash"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if "make" in words:
                target = next(w for w in words[words.index("make") + 1 :] if "=" not in w)
                assert re.search(rf"^{target}:|^\.PHONY:.* {target}\b", makefile, re.M), line
            elif words[:2] == ["dpb", "reproduce"]:
                from dpb_gym.papers import figure_files

                # A figure takes minutes; tests/papers runs small ones.
                figures = [
                    t for t in figure_files() if t == words[2] or t.startswith(f"{words[2]}/")
                ]
                assert figures, line
            elif words[:2] == ["dpb", "serve"]:
                continue  # tests/service/test_service_page.py serves the page
            elif words and words[0] == "dpb":
                # An archive needs all replicates of the suite.
                few = "run" in words and "--replicates" not in words and "dpb submit" not in block
                # the environment's 10,000 rounds take ten seconds
                short = words[1] == "audit" and "--deployment" not in words
                more = ["--replicates", "2"] * few + ["--deployment", "200"] * short
                commands.append((line, words[1:] + more))
            elif words[:1] == ["python"] and words[1].startswith("examples/"):
                assert (ROOT / words[1]).exists(), line
            elif words:
                assert words[0] in OTHERS, line
    if commands:
        words = page.name, json.dumps(commands)
        done = forks.run(RUN_ALL, *words, cwd=tmp_path, DPB_CACHE=str(tmp_path / "c"))
        assert done.returncode == 0, f"{done.stdout[-1500:]}{done.stderr[-1500:]}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_local_links_resolve(page):
    for target in LINK.findall(page.read_text()):
        if "://" in target or target.startswith(("#", "mailto:")):
            continue
        if target.startswith("_generated/"):
            continue  # Sphinx checks these
        path = (page.parent / target.partition("#")[0]).resolve()
        assert path.exists(), f"{page.name}: {target}"
        anchor = target.partition("#")[2]
        assert not anchor or anchor in anchors(path), f"{page.name}: {target}"


def anchors(page):
    """Return the anchors of a page's headings, as GitHub and MyST define them."""
    heads = re.findall(
        r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M
    )
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
