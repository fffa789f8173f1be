"""Time, memory and page size of a leaderboard of 10,000 cells, and response times of the page.

    python benchmarks/leaderboard.py [--rows 2000] [--blocks 5] [--page FILE.html] [--json FILE]

Converts synthetic results of many agents at several budgets on ten tasks to rows, a table in a
terminal and a page. With ``--page`` an existing page is opened in the browser instead. Times are
processor seconds of the page's main thread: until it is interactive, and per keystroke of a search,
including rendering. The browser's part needs Chromium, chromedriver and selenium, and is skipped
without them.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from dpb_gym.privacy import Budget, Composition, GaussianEvent, Guarantee
from dpb_gym.registry import agent_spec
from dpb_gym.results.cell_result import CellResult, Timing
from dpb_gym.results.result import Result
from dpb_gym.suites.spec import AgentRun, Cell
from dpb_gym.suites.suite import Suite

TASKS, REPLICATES, CHECKPOINTS, HORIZON = 10, 30, 40, 10_000
BUDGETS = (None, 0.05, 0.1, 0.5, 1.0)
WORDS = ("agent-1", "lin-ucb (tuned)", "rho=0.5", "pricing task-3", "eps -joint", "k", "p", "l")
READY = "return performance.getEntriesByName('ready').length && performance.timing.domInteractive"
# Type a key and wait until the result is rendered.
TYPE = """
const [text, done] = arguments, box = document.querySelector('#q');
box.value = text;
box.dispatchEvent(new Event('input'));
requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));
"""


def results(rows: int, blocks: int) -> tuple[Suite, list[CellResult]]:
    """Return the cells of `rows` rows in `blocks` blocks each."""
    tasks = tuple(
        {
            "name": f"task-{k}",
            "track": f"track-{k % 5}",
            "env": "DPB/Pricing-v0",
            "horizon": HORIZON,
            "normalisation": {"random": 1000.0, "oracle": 6000.0},
        }
        for k in range(TASKS)
    )
    tracks = {f"track-{k}": {"title": f"Track {k}"} for k in range(5)}
    suite = Suite.model_validate(
        {"name": "large-v0", "replicates": REPLICATES, "tasks": tasks, "tracks": tracks}
    )
    rng = np.random.default_rng(0)
    rounds = tuple(np.unique(np.geomspace(1, HORIZON, CHECKPOINTS).astype(int)).tolist())
    growth = np.sqrt(np.array(rounds) / HORIZON)
    spec, cells, size = agent_spec("lin-ucb"), [], REPLICATES // blocks
    for k in range(rows):
        task, budget = suite.tasks[k % TASKS], BUDGETS[k // TASKS % len(BUDGETS)]
        agent = k // TASKS // len(BUDGETS)
        limit = None if budget is None else Budget.zcdp(budget)
        run = AgentRun(spec=spec, label=f"agent-{agent}", budget=limit)
        guarantee = None
        if budget is not None:
            curve = Composition.of(GaussianEvent(sigma=(0.5 / budget) ** 0.5, sensitivity=1.0))
            guarantee = Guarantee("joint", "user-round", curve=curve).to_dict()
        level = 50 + 10 * agent + (0 if budget is None else 40 / budget**0.5)
        for block in range(blocks):
            cell = Cell(
                suite=suite.name,
                protocol=suite.protocol,
                task=task,
                seed=0,
                agent=run,
                checkpoints=rounds,
                start=block * size,
                stop=(block + 1) * size,
            )
            regret = growth * rng.normal(level, 0.1 * level, (size, 1))
            timing = Timing(size * HORIZON, 1.0, 0.5, 0.5, 1)
            cells.append(CellResult(cell, regret, 6000 - regret, guarantee, timing))
    return suite, cells


def busy(driver: Any) -> float:
    """Return the processor seconds of the page's main thread so far."""
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(float(one["value"]) for one in metrics if one["name"] == "TaskDuration")


def read(page: Path) -> dict[str, Any] | None:
    """Open a page in headless Chromium, type into its search, and return the times."""
    binary, service = shutil.which("chromium"), shutil.which("chromedriver")
    try:
        from selenium import webdriver
    except ImportError:
        return None
    if binary is None or service is None:
        return None
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options, webdriver.ChromeService(service))
    try:
        driver.set_window_size(1400, 900)
        driver.get("about:blank")
        driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        driver.get(page.absolute().as_uri())
        while not driver.execute_script(READY):
            time.sleep(0.01)
        ready = busy(driver)
        nodes = driver.execute_script("return document.querySelectorAll('*').length")
        time.sleep(0.5)  # wait for idle callbacks
        # Results are visible below the search box.
        driver.execute_script("document.querySelector('#controls').scrollIntoView()")
        keys = [word[:i] for word in WORDS for i in (*range(1, len(word) + 1), 0)]
        took = []
        for key in keys:
            before = busy(driver)
            driver.execute_async_script(TYPE, key)
            took.append((busy(driver) - before, key))
    finally:
        driver.quit()
    return {
        "interactive_s": ready,
        "search_median_s": float(np.median([seconds for seconds, _ in took])),
        "search_worst_s": max(took)[0],
        "search_worst": max(took)[1],
        "nodes": nodes,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--page", type=Path)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    figures: dict[str, object] = {}
    if arguments.page is None:
        from rich.console import Console

        from dpb_gym import report

        suite, cells = results(arguments.rows, arguments.blocks)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start, used = time.perf_counter(), time.process_time()
        data = Result(suite, cells, created="2026-01-01").to_leaderboard()
        rows = time.perf_counter()
        report.table(data, console=Console(file=io.StringIO(), width=140))
        table = time.perf_counter()
        arguments.page = Path(tempfile.mkdtemp()) / "leaderboard.html"
        report.html(data, arguments.page)
        end = time.perf_counter()
        figures = {
            "cells": len(cells),
            "rows": sum(len(task.rows) for task in data.tasks),
            "rows_s": rows - start,
            "table_s": table - rows,
            "page_s": end - table,
            "total_s": end - start,
            "processor_s": time.process_time() - used,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            "cells_in_memory_mb": before / 1024,
        }
    figures["page_mb"] = arguments.page.stat().st_size / 1e6
    figures["browser"] = read(arguments.page)
    text = json.dumps(figures, indent=2)
    print(text)
    if arguments.json is not None:
        arguments.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
