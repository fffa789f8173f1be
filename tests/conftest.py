"""Settings of all tests."""

from __future__ import annotations

import ast
import gc
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import settings

# Tests run in parallel. Products of small matrices are twenty times slower with several threads on
# a busy core. NumPy reads this when it is loaded, here and in processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Copies of the library, which tests install and run, share its compiled kernels.
COMPILED = Path(__file__).parents[1] / ".pytest_cache" / "kernels"
os.environ.setdefault("NUMBA_CACHE_DIR", str(COMPILED))

# Checkpoints and audits of tests are noted in a folder that is deleted, not in the user's state
# directory.
STATE = tempfile.TemporaryDirectory(prefix="dpb-state-")
os.environ["XDG_STATE_HOME"] = STATE.name

# A shell's background jobs and their children ignore Ctrl-C, so tests of it would hang.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadlines: on a busy machine any example may take long.
settings.register_profile("dpb", deadline=None)
settings.load_profile("dpb")

# Collection makes millions of objects that stay, so few of them are looked at again.
gc.set_threshold(50_000, 20, 50)

STARTS = re.compile(
    r"\b(subprocess|multiprocessing|nbclient|webdriver|forks|in_child|os\.fork)\b"
    r"|\bworkers=([2-9]|workers)"
)
"""What the source of a function has that starts processes itself."""


@cache
def process_starters(path: Path) -> frozenset[str]:
    """Return the names of the functions of a file that start processes, also through others."""
    text = path.read_text(encoding="utf-8")
    if not STARTS.search(text):  # most files, whose syntax trees take seconds
        return frozenset()
    lines = text.splitlines()
    imported: set[str] = set()
    starters: set[str] = set()
    used: dict[str, set[str]] = {}
    nodes = list(ast.parse(text).body)
    for node in nodes:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            nodes += node.body
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if STARTS.search("\n".join(lines[first - 1 : node.end_lineno])):
                starters.add(node.name)
            used[node.name] = _names(node)
        elif isinstance(node, ast.ImportFrom) and STARTS.search(node.module or ""):
            imported |= {each.asname or each.name for each in node.names}
    while more := {name for name in used if used[name] & (starters | imported)} - starters:
        starters |= more
    return frozenset(starters)


def _names(function: ast.AST) -> set[str]:
    """Return the names that a function uses, fixtures included, without its own variables."""
    nodes = list(ast.walk(function))
    own = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    used = {n.id for n in nodes if isinstance(n, ast.Name)} - own
    return used | {n.arg for n in nodes if isinstance(n, ast.arg)}


# The first files in the order in which two workers take them: one compiles all kernels while the
# other runs tests with few kernels, then the longest ones; short ones fill the gaps.
FIRST = (
    "agents/test_zoo.py",
    "release",
    "report/browser",
    "data",
    "structure",
    "privacy",
    "harness/running/test_interruption.py",
    "harness/running/test_parallel.py",
    "bits",
    "docs/test_snippets.py",
    "audits",
    "agents/recommendation",
    "agents/one_pass",
    "harness",
    "sb3",
    "plugin",
    "cli",
    "examples",
    "papers",
    "hostile",
)


# Left out by `make test`: audits of every agent, all pages and examples, killed processes, other
# processors, and training by deep learning.
LONG_PATHS = (
    "agents/one_pass/test_agents.py::test_switched_customers",
    "agents/one_pass/test_linear_audit.py",
    "agents/pricing/test_small_budgets.py",
    "agents/recommendation/rivals/test_privacy.py",
    "agents/recommendation/test_adaprivate_amp.py::test_audits",
    "agents/recommendation/test_user_level.py::test_audits",
    "agents/recommendation/test_user_level.py::test_erratum",
    "agents/test_delayed.py::test_every_agent_beats_random_when_responses_are_late[pricing",
    "agents/test_delayed.py::test_every_agent_beats_random_when_responses_are_late[recommendation",
    "agents/test_forged_sessions.py::test_no_forged_field_changes",
    "audits/test_agents.py",
    "audits/test_delayed.py",
    "audits/test_isolation.py::test_agents_play",
    "audits/test_isolation.py::test_agents_that",
    "audits/test_isolation.py::test_attacks",
    "audits/test_isolation.py::test_no_process",
    "audits/test_isolation.py::test_play_is",
    "audits/test_isolation.py::test_protected",
    "audits/test_mutations.py",
    "bits/test_bits.py::test_bits_do_not",
    "docs/test_guides.py::test_tutorials",
    "docs/test_snippets.py::test_commands_work[docs",
    "docs/test_snippets.py::test_python_snippets_run[docs",
    "examples",
    "harness/planning/test_costs.py::test_a_forecast_of_memory_is_near_what_a_run_takes",
    "harness/planning/test_costs.py::test_folded_records_do_not_grow_with_the_horizon[mle",
    "harness/results/test_result_directory.py::test_a_full_disk",
    "harness/results/test_storage.py::test_kill_9",
    "harness/running/test_errors.py::test_edited_code",
    "harness/running/test_interruption.py",
    "harness/running/test_parallel.py::test_a_cluster_without_workers",
    "harness/running/test_parallel.py::test_a_killed_dask_worker",
    "harness/running/test_parallel.py::test_a_run_resumes",
    "harness/running/test_parallel.py::test_agents_of_a_script",
    "harness/running/test_two_hosts.py",
    "hostile/test_forgeries.py::test_every_value",
    "hostile/test_unexpected_files.py::test_bombs",
    "kernels/test_cache.py::test_copies_of_the_library",
    "kernels/test_cache.py::test_damaged_files",
    "papers/test_reproduction.py::test_the_command_on_a_real_figure",
    "plugin/test_third_party.py::test_a_new_kind",
    "plugin/test_third_party.py::test_the_agent_runs_in_worker",
    "privacy/test_account.py::test_processes_that_share_an_account_do_not_overspend[postgres-spawn",
    "privacy/test_objective_perturbation.py::test_search_over_one",
    "privacy/test_toeplitz.py::test_shipped_parameters",
    "problems/test_expedia.py::test_theta_does_not_depend",
    "problems/test_limited_stock.py::test_the_fluid_bound_is_never_below",
    "problems/test_misspecified.py::test_features_and_intercept",
    "release/test_packages.py::test_the_installed_package_runs",
    "report/browser/test_tracks.py::test_two_thousand_rows",
    "report/test_notebook_kernel.py",
    "report/test_plots.py::test_empty_lone_crowded",
    "sb3/test_training.py",
)
LONG = tuple(f"tests/{start}" for start in LONG_PATHS)

# One agent of each family is audited by `make test` as well.
AUDIT = "tests/audits/test_agents.py::test_private_agents_pass_and_fail_with_a_third_of_the_noise"
AUDITED = tuple(f"{AUDIT}[{name}]" for name in ("dp-se", "dpmnl", "jdp-lin-ucb", "local-pricing"))

# Sweeps over seeds, agents and settings together, of which `make test` has every k-th variant.
# The number of values of an axis is no multiple of k, so that each value is among them.
THINNED = {
    "audits/test_mechanisms.py::test_erratum_a1": 3,
    "audits/test_mechanisms.py::test_erratum_p1": 5,
    "audits/test_mechanisms.py::test_erratum_r2": 3,
    "agents/one_pass/test_linear.py::test_a_search_for_the_worst_pair_of_rounds_finds_the_bound": 5,
    "agents/one_pass/test_linear.py::test_the_typical_length_is_known_to_a_tenth": 4,
    "agents/reference/test_adaprivate.py::test_actions_and_sums_are_equal_in_every_round": 3,
    "agents/reference/test_one_pass_linear.py::test_actions_and_theta_are_equal": 5,
    "agents/reference/test_one_pass_mnl.py::test_offers_and_posteriors_are_equal": 4,
    "agents/reference/test_one_pass_pricing.py::test_prices_and_posteriors_are_equal": 5,
    "agents/recommendation/test_user_level.py::test_replacing_a_user": 5,
    "agents/test_devices.py::test_a_device_is_configuration_and_releases": 5,
    "agents/test_stretches.py::test_stretches_equal_single_rounds[": 2,
    "privacy/test_accounting.py::test_zero_out_poisson_gaussian_is_exact": 3,
}

# Tests of all agents take seconds with each of these, and `sb3/test_deep_agents.py` has short ones.
DEEP = re.compile(r"[\[-](ppo|dqn|sac)[]-]")


def place(item: pytest.Item) -> int:
    """Return the position of a test in `FIRST`."""
    path = item.path.relative_to(Path(__file__).parent).as_posix()
    return next((i for i, start in enumerate(FIRST) if path.startswith(start)), len(FIRST))


def pytest_configure(config: pytest.Config) -> None:
    """Let every second worker collect in reverse.

    Workers start together. In a new checkout, each of them then compiles half of the test files and
    reads the byte code of the others. `mark` brings the tests into one order.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    if int(worker.removeprefix("gw")) % 2 == 0:
        return
    here = Path(__file__).parent
    given = [Path(argument) for argument in config.args]
    folders = sorted(path for path in here.iterdir() if path.is_dir())
    parts = [part for path in given for part in (folders if path.resolve() == here else [path])]
    config.args[:] = [str(part) for part in reversed(parts)]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--variants", type=int, default=None, metavar="N",
        help="run at most N variants of each parametrised test, the first and the last among them",
    )  # fmt: skip


def some(items: list[pytest.Item], most: int) -> list[pytest.Item]:
    """Return at most so many variants of each test, evenly spaced."""
    variants: dict[str, list[pytest.Item]] = {}
    for item in items:
        variants.setdefault(item.nodeid.partition("[")[0], []).append(item)
    kept = set()
    for own in variants.values():
        count = min(most, len(own))
        kept |= {own[i * (len(own) - 1) // max(count - 1, 1)] for i in range(count)}
    return [item for item in items if item in kept]


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    mark(items)
    yield  # pytest selects by marks
    if (most := config.getoption("--variants")) is not None:
        kept = some(items, most)
        config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
        items[:] = kept


def mark(items: list[pytest.Item]) -> None:
    """Sort tests, and set the marks that depend on their names and files."""
    items.sort(key=lambda item: (place(item), item.path))
    seen: dict[str, int] = {}
    for item in items:
        if item.nodeid.startswith(LONG) and item.nodeid not in AUDITED:
            item.add_marker(pytest.mark.long)
        for start, step in THINNED.items():
            if item.nodeid.startswith(f"tests/{start}"):
                number = seen[start] = seen.get(start, -1) + 1
                if number % step:
                    item.add_marker(pytest.mark.long)
        if getattr(item, "originalname", item.name) in process_starters(item.path):
            item.add_marker(pytest.mark.process)
        if DEEP.search(item.name) and "tests/sb3/" not in item.nodeid:
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.sb3)
            item.add_marker(
                pytest.mark.skipif(
                    find_spec("stable_baselines3") is None, reason="needs the [sb3] extra"
                )
            )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Exclude loaded modules from garbage collection, which took a tenth of the time."""
    gc.collect()
    gc.freeze()


class Forks:
    """Run programs in processes of their own, forked from one that imported the library."""

    def __init__(self, folder: Path) -> None:
        self.out, self.err = folder / "out", folder / "err"
        self.server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("forks.py"))],
            env={**os.environ, "MPLBACKEND": "Agg", "COLUMNS": "120"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, program: str | Path, *arguments: str, cwd: Path, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program, a path or its text, in a folder."""
        if not isinstance(program, Path):
            (script := cwd / "program.py").write_text(program)
            program = script
        words = [str(program), *arguments]
        for file in (self.out, self.err):
            file.write_text("")
        request = words, str(cwd), environment, str(self.out), str(self.err)
        assert self.server.stdin and self.server.stdout
        print(json.dumps(request), file=self.server.stdin, flush=True)
        status = int(self.server.stdout.readline())
        return subprocess.CompletedProcess(
            words, status, self.out.read_text(), self.err.read_text()
        )


@pytest.fixture(scope="session", autouse=True)
def audits_in_this_process() -> Iterator[Callable[..., Any]]:
    """Run the replays of audits here, one after another; return the function that forks for them.

    A process of the tests has a gigabyte of modules and compiled code. To copy its page tables
    takes several times as long as a replay.
    """
    from dpb_gym.audits import interference
    from dpb_gym.privacy import forks as owners

    def in_turn(works: Any) -> Iterator[Any]:
        known = set(owners.OWNERS)
        try:
            yield from (work() for work in works)
        finally:
            # Releasers of a replay raise if they are changed, also when a later fork ends them.
            for owner in set(owners.OWNERS) - known:
                owners.OWNERS.discard(owner)

    forking = interference._apart
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interference, "_apart", in_turn)
        yield forking


@pytest.fixture
def audits_in_processes(
    audits_in_this_process: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run the replays of audits in processes of their own, as outside of tests."""
    monkeypatch.setattr("dpb_gym.audits.interference._apart", audits_in_this_process)


@pytest.fixture(scope="module")
def few_points() -> Iterator[None]:
    """Give `response-pricing` 32 points of its law of the features instead of 512.

    They change its accuracy, which is tested in agents/pricing, and take a sixteenth of the time.
    """
    from dpb_agents.pricing import response_pricing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(response_pricing, "POINTS", 32)
        yield


@pytest.fixture
def import_benchmark(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    """A function that imports a module of the folder `benchmarks`."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "benchmarks")
    return importlib.import_module


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Return a runner of programs without the cost of starting Python."""
    forks = Forks(tmp_path_factory.mktemp("forks"))
    yield forks
    forks.server.communicate()
