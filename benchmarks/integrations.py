"""What works with dpb-gym, unmodified: real programs, each in an environment of its own.

``python benchmarks/integrations.py`` makes a virtual environment with pinned packages for each
program, runs its checks (``benchmarks/integration_checks``) and prints one table. Names of lanes
restrict it. ``--store`` writes docs/results/integrations.json and the table of
docs/add-an-environment.md; lanes that were not run keep their rows.

Repositories are cloned at a commit into a temporary folder, and never kept. INTEGRATION_SOURCES
names a folder with copies for machines that cannot clone. What cannot be had is skipped, and the
table says why. Environments are deleted afterwards; uv keeps its cache of downloads.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import marked

ROOT = Path(__file__).parents[1]
CHECKS = ROOT / "benchmarks/integration_checks"
STORED, PAGE = ROOT / "docs/results/integrations.json", ROOT / "docs/add-an-environment.md"
MINUTES = 20
TORCH = "torch==2.13.0"
THEIRS = {"CleanRL ppo_continuous_action.py": "the script needs a Gymnasium before 1.0"}
"""Programs that fail with every environment, and why."""
ORDER = ("works unmodified", "needs this line", "does not", "skipped")


class Source(NamedTuple):
    """A repository at a commit."""

    name: str
    address: str
    commit: str


class Lane(NamedTuple):
    """Checks in one environment.

    Attributes:
        check: Script of `CHECKS`.
        packages: Pinned requirements, beside dpb-gym.
        source: The repository that the checks need; its folder is in the variable NAME_SOURCE.
    """

    check: str
    packages: tuple[str, ...]
    source: Source | None = None


GITHUB = "https://github.com/"
LANES = {
    "gymnasium": Lane(
        "gymnasium_check",
        (
            "gymnasium==1.4.0", "pytest==9.0.2", "dill", "pygame>=2.5", "moviepy>=2",
            "opencv-python-headless", TORCH, "jax==0.10.2", "array-api-compat==1.16.0",
            "array-api-extra==0.11.5",
        ),
        Source(
            "GYMNASIUM", GITHUB + "Farama-Foundation/Gymnasium",
            "3f0476a8cc224dcce2167cc4b6971ae0f04d5cfc",
        ),
    ),
    "stable-baselines3": Lane(
        "sb3", (TORCH, "stable-baselines3==2.9.2", "sb3-contrib==2.9.2", "gymnasium==1.4.0")
    ),
    "torchrl": Lane("torchrl_check", (TORCH, "torchrl==0.14.1", "gymnasium==1.4.0")),
    "tianshou": Lane("tianshou_check", (TORCH, "tianshou==2.0.1", "gymnasium==1.4.0")),
    "skrl": Lane("skrl_check", (TORCH, "skrl==2.1.1", "gymnasium==1.4.0")),
    "rllib": Lane("rllib_check", (TORCH, "ray[rllib]==2.60.0", "gymnasium==1.2.2")),
    "minari": Lane("minari_check", ("minari[create,hdf5]==0.5.4", "gymnasium==1.4.0")),
    "rl-baselines3-zoo": Lane(
        "zoo_check", (TORCH, "rl-zoo3==2.9.2", "stable-baselines3==2.9.2", "gymnasium==1.4.0")
    ),
    "cleanrl": Lane(
        "cleanrl_check",
        (TORCH, "tyro==0.9.31", "tensorboard==2.20.0", "gymnasium==1.4.0"),
        Source("CLEANRL", GITHUB + "vwxyzjn/cleanrl", "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb"),
    ),
    "obp": Lane("obp_check", (TORCH, "obp==0.4.1")),
    "mabwiser": Lane("mabwiser_check", ("mabwiser==2.7.4",)),
    "vowpalwabbit": Lane("vw_check", ("vowpalwabbit==9.11.9",)),
    "privacy": Lane("privacy_check", ("dp-accounting==0.6.0", "jax-privacy==2.0.0", "jax==0.10.2")),
    "rliable": Lane("rliable_check", ("rliable==1.2.0", "pandas<3")),
}  # fmt: skip


class UnavailableError(Exception):
    """Something that a lane needs cannot be had, with the reason."""


def call(*words: Any, **options: Any) -> str:
    """Run a command and return its output; raise UnavailableError with its last line."""
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, **options)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
        raise UnavailableError(f"{Path(words[0]).name}: {lines[-1].strip()}")
    return done.stdout


def made(lane: Lane, folder: Path) -> Path:
    """Make the environment of a lane and return its interpreter."""
    place, python = folder / "env", folder / "env/bin/python"
    environment = dict(os.environ)
    uv = shutil.which("uv")
    wanted = [*lane.packages, "-e", ROOT]
    if uv is None:
        call(sys.executable, "-m", "venv", place)
        call(python, "-m", "pip", "install", "--quiet", *wanted)
        return python
    # wheels that pip is told of, such as PyTorch for CPU, which uv does not read
    links = subprocess.run(
        [sys.executable, "-m", "pip", "config", "get", "global.find-links"],
        capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    backend = () if links else ("--torch-backend", "cpu")
    if links:
        known = environment.get("UV_FIND_LINKS", "").split(",")
        environment["UV_FIND_LINKS"] = ",".join(filter(None, [*links.split(), *known]))
    call(uv, "venv", "--quiet", "--python", sys.executable, place)
    call(uv, "pip", "install", "--quiet", "--python", python, *backend, *wanted, env=environment)
    return python


def fetched(source: Source, folder: Path) -> Path:
    """Return a folder with the repository at its commit."""
    copies = os.environ.get("INTEGRATION_SOURCES")
    if copies:
        own = Path(copies) / source.name.lower()
        if not own.is_dir():
            raise UnavailableError(f"INTEGRATION_SOURCES has no {source.name.lower()}")
        return Path(shutil.copytree(own, folder / "source"))
    place = folder / "source"
    call("git", "init", "--quiet", place)
    call("git", "-C", place, "fetch", "--quiet", "--depth", 1, source.address, source.commit)
    call("git", "-C", place, "checkout", "--quiet", "FETCH_HEAD")
    return place


def versions(python: Path, lane: Lane) -> dict[str, str]:
    """Return the installed versions of a lane's pinned packages."""
    names = [p.partition("[")[0].partition("=")[0].partition(">")[0].partition("<")[0]
             for p in lane.packages]  # fmt: skip
    program = (
        "import importlib.metadata as m, json, sys\n"
        "print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
    )
    installed: dict[str, str] = json.loads(call(python, "-c", program, *names))
    return installed


def run(name: str) -> dict[str, Any]:
    """Return versions and rows of a lane."""
    lane = LANES[name]
    folder = Path(tempfile.mkdtemp(prefix=f"dpb-{name}-"))
    report: dict[str, Any] = {"versions": {}, "source": "", "rows": []}
    environment = dict(os.environ)
    try:
        python = made(lane, folder)
        report["versions"] = versions(python, lane)
        if lane.source is not None:
            environment[f"{lane.source.name}_SOURCE"] = str(fetched(lane.source, folder))
            report["source"] = f"{lane.source.address}/tree/{lane.source.commit}"
        done = subprocess.run(
            [python, CHECKS / f"{lane.check}.py"], cwd=folder, env=environment,
            capture_output=True, text=True, timeout=60 * MINUTES,
        )  # fmt: skip
        rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
        report["rows"] = [json.loads(row) for row in rows]
        if done.returncode or not rows:
            said = (done.stderr.strip().splitlines() or ["no message"])[-1]
            report["rows"].append(_row(name, "the rest of its checks", "does not", said[:200]))
    except UnavailableError as error:
        report["rows"].append(_row(name, "all of its checks", "skipped", str(error)[:200]))
    except subprocess.TimeoutExpired:
        reason = f"took more than {MINUTES} minutes"
        report["rows"].append(_row(name, "all of its checks", "does not", reason))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return report


def _row(program: str, what: str, verdict: str, seen: str) -> dict[str, str]:
    return {"program": program, "what": what, "verdict": verdict, "line": "", "seen": seen}


def table(stored: dict[str, Any]) -> str:
    """Return the Markdown table of stored rows."""
    lines = ["| program | versions | what | verdict | seen |", "|---|---|---|---|---|"]
    for name in sorted(stored["lanes"], key=list(LANES).index):
        lane = stored["lanes"][name]
        said = ", ".join(f"{k} {v.partition('+')[0]}" for k, v in lane["versions"].items())
        for row in lane["rows"]:
            verdict = row["verdict"]
            if row["line"]:
                verdict += f": `{row['line']}`"
            if row["verdict"] == "does not" and row["program"] in THEIRS:
                verdict += f" ({THEIRS[row['program']]})"
            cells = (row["program"], said, row["what"], verdict, row["seen"])
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
            said = ""
    return "\n".join(lines)


def counts(stored: dict[str, Any]) -> str:
    """Return how many rows have each verdict, as a sentence."""
    rows = [row for lane in stored["lanes"].values() for row in lane["rows"]]
    numbers = {verdict: sum(row["verdict"] == verdict for row in rows) for verdict in ORDER}
    said = ", ".join(f"{count} {verdict}" for verdict, count in numbers.items() if count)
    return f"{len(rows)} checks: {said}. Python {stored['python']}, {stored['date']}."


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="LANE", help=", ".join(LANES))
    parser.add_argument("--store", action="store_true", help="write docs/results and the page")
    options = parser.parse_args()
    unknown = sorted(set(options.names) - set(LANES))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(LANES)}")
    stored: dict[str, Any] = {"lanes": {}}
    if STORED.exists() and options.names:
        stored = json.loads(STORED.read_text("utf-8"))
    ran = {}
    for name in options.names or LANES:
        print(f"{name} ...", file=sys.stderr, flush=True)
        ran[name] = run(name)
    facts = {"python": ".".join(map(str, sys.version_info[:3])), "date": str(datetime.date.today())}
    print(table({"lanes": ran}))
    print(counts({"lanes": ran, **facts}))
    if options.store:
        stored |= facts
        stored["lanes"] = {
            name: ran.get(name, stored["lanes"].get(name))
            for name in LANES if name in ran or name in stored["lanes"]
        }  # fmt: skip
        STORED.write_text(json.dumps(stored, indent=1) + "\n", "utf-8")
        write(stored)
    failed = [row for lane in ran.values() for row in lane["rows"] if row["verdict"] == ORDER[2]]
    raise SystemExit(any(row["program"] not in THEIRS for row in failed))


def write(stored: dict[str, Any]) -> None:
    """Write the blocks of the page."""
    marked.put(PAGE, "integrations", table(stored))
    marked.put(PAGE, "counts", counts(stored))


if __name__ == "__main__":
    main()
