"""Speed of the harness, as ratios measured in one run.

    python benchmarks/speed.py [--quick] [--only PART ...] [--peer NAME=PYTHON ...] [--json FILE]
    python benchmarks/speed.py --only curves --plot docs/_static/speed.png

Every number is the median over repeats of interleaved measurements of processor time on one core,
so that a busy machine slows both sides of a ratio equally. Other packages are timed in their own
environments, e.g. ``--peer river=/path/to/python`` (see peer_linucb.py). Each curve
runs in a separate process, whose peak memory is shown.

``--store`` stores the parts that were measured in docs/results/speed.json, with the processor and
the day, and writes the tables of docs/cluster.md from it. A test compares both.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

# Use one core; must be set before NumPy is imported.
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import decisions  # noqa: E402
import install_weight  # noqa: E402
import marked  # noqa: E402
import numpy as np  # noqa: E402

from dpb_gym import evaluate, make_problem  # noqa: E402
from dpb_gym.agent import plays_stretches  # noqa: E402
from dpb_gym.privacy import Budget  # noqa: E402
from dpb_gym.registry import agent_spec  # noqa: E402

HERE = Path(__file__).parent
STORED, PAGE = HERE.parent / "docs/results/speed.json", HERE.parent / "docs/cluster.md"
README = HERE.parent / "README.md"
CURVES = {
    "one-pass-mnl": ("DPB/Assortment-v0", {"n_items": 20, "capacity": 4, "dim": 5}),
    "one-pass-pricing": ("DPB/Pricing-v0", {"dim": 5}),
    "one-pass-linear": ("DPB/Recommendation-v0", {"dim": 10}),
}
BUDGETS = ("none", "rho=1")
PARTS = (
    *("policies", "peers", "ageing", "starting", "clone", "tests", "board", "curves", "sizes"),
    *("decisions", "weight", "isolation"),
)
# Of each axis: agent, environment, parameters that have the size, and ascending sizes with the
# number of rounds. A budget of rho = 0.01 keeps theta unsure in all of them.
SIZES = {
    "items": (
        *("one-pass-mnl", "DPB/Assortment-v0", ("n_items",)),
        ((1_000, 400), (10_000, 200), (100_000, 60), (1_000_000, 20)),
    ),
    "candidates": (
        *("one-pass-linear", "DPB/Recommendation-v0", ("n_arms", "n_candidates")),
        ((1_000, 400), (10_000, 200), (100_000, 60)),
    ),
    "features of a customer": (
        *("one-pass-pricing", "DPB/Pricing-v0", ("dim",)),
        ((10, 400), (30, 400), (100, 400), (300, 400)),
    ),
    "features of an item": (
        *("one-pass-mnl", "DPB/Assortment-v0", ("dim",)),
        ((10, 400), (30, 400), (100, 400)),
    ),
    "features of a candidate": (
        *("one-pass-linear", "DPB/Recommendation-v0", ("dim",)),
        ((10, 400), (30, 400), (100, 400), (300, 400)),
    ),
}
BOARD, ROWS, CELLS = "docs/leaderboard/dpb-bench-v1", 2000, 100_000
# Sizes (T, B) of a series, ascending, as a process's peak memory never decreases.
SERIES = {
    "T": [(1000, 4), (10_000, 4), (100_000, 4), (1_000_000, 4)],
    "B": [(2000, 1), (2000, 4), (2000, 16), (2000, 64), (2000, 256)],
}


class Lockstep:
    """One agent in the lockstep loop, advanced in slices so that measurements interleave."""

    def __init__(self, env_id, agent, replicates, horizon, budget="none", compiled=True, **kwargs):
        self.compiled = compiled
        self.problem = make_problem(env_id, horizon=horizon, **kwargs)
        self.replicates = replicates
        seeds = range(replicates)
        self.instance = self.problem.instance(seeds)
        spec = agent_spec(agent)
        given = Budget.parse(budget)
        self.agent = spec.make()
        self.agent.set_up(self.problem.info, spec.streams(seeds, given), given)
        self.regret = np.zeros(replicates)

    def run(self, rounds):
        """Play `rounds` rounds and return replicate-rounds per second."""
        start = time.process_time()
        done = 0
        while done < rounds:
            stretch = None
            if self.compiled and self.agent.stretches and plays_stretches(self.agent):
                # None where one round fills the memory that a stretch may take
                stretch = self.instance.move(rounds - done)
            done += self._play_round() if stretch is None else self._play_stretch(stretch)
            if self.instance.t[0] < self.problem.horizon:
                self.instance.advance()
        return rounds * self.replicates / (time.process_time() - start)

    def _play_stretch(self, stretch):
        """Play rounds in compiled code, as the harness does; return how many."""
        view = stretch.view()
        with self.agent.curator.round(view.context.t, len(stretch.best)):
            actions = self.agent.play(view)
        expected, observed, rewards = stretch.outcome(view, actions, "agent")
        regret = self.instance.regret(expected, observed, stretch.best).reshape(rewards.shape)
        self.regret = np.add.accumulate(np.vstack((self.regret, regret)))[-1]
        return len(stretch.best)

    def _play_round(self):
        """Play one round; return 1."""
        context = self.instance.context()
        action = self.agent.act(context)
        outcome = self.instance.respond(action)
        self.regret += outcome.regret
        with self.agent.curator.round(context.t):
            self.agent.observe(context, action, outcome.feedback)
        return 1


def drawing(problem, replicates, rounds):
    """Return a function for the rounds/s of drawing an environment's random numbers and no more.

    Normals are drawn by inversion of uniforms, and features are scaled and rounded to float32.
    """
    instance = problem.instance(range(replicates))
    block = len(instance._block["response"])

    def run():
        start, blocks = time.process_time(), -(-rounds // block)
        for _ in range(blocks):
            for i in range(replicates):
                instance._refill(i)
        return blocks * block * replicates / (time.process_time() - start)

    return run


def alternate(sides, repeats):
    """Return the rates of each side over interleaved repeats."""
    rates = {name: [] for name in sides}
    for side in sides.values():
        side()
    for _ in range(repeats):
        for name, side in sides.items():
            rates[name].append(side())
    return rates


def ratio(rates, a, b):
    return statistics.median(x / y for x, y in zip(rates[a], rates[b]))


def import_seconds(code, repeats):
    def once(snippet):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", snippet], check=True, capture_output=True)
        return time.perf_counter() - start

    once(code[0]), once(code[1])
    return statistics.median(once(code[1]) - once(code[0]) for _ in range(repeats))


def policies(report, scale, repeats):
    """Compare agents with the random policy, and that with drawing its random numbers."""
    large = {"n_items": 100, "dim": 5, "capacity": 10}
    for env_id, size, rounds, names in (
        ("DPB/Assortment-v0", large, 160, ("random", "ucb-mnl", "ts-mnl", "greedy-mnl")),
        ("DPB/Recommendation-v0", {}, 800, ("random", "lin-greedy", "lin-ucb", "lin-ts")),
        (
            *("DPB/Pricing-v0", {}, 800),
            ("random", "greedy-pricing", "glm-ucb-pricing", "fixed-price"),
        ),
    ):
        where = f"{env_id}{' N=100 d=5 K=10' if size else ''}"
        for B in (64, 1):
            few = rounds * scale
            lanes = [Lockstep(env_id, name, B, few * (repeats + 2), **size) for name in names]
            sides = {n: (lambda lane=lane, few=few: lane.run(few)) for n, lane in zip(names, lanes)}
            if size:
                sides["drawing"] = drawing(lanes[0].problem, B, few)
            rates = alternate(sides, repeats)
            for name in names:
                title = f"{name}, {where}, B={B}"
                report(title, statistics.median(rates[name]), "-", "rounds/s")
            for a, b, target in (("random", "drawing", 0.5), ("ucb-mnl", "random", 0.33)):
                if size:
                    report(f"{a} / {b}, B={B}", ratio(rates, a, b), f">= {target}")


def peers(report, scale, named):
    """Compare lin-ucb with other packages' LinUCB."""
    for peer in named:
        name, _, python = peer.partition("=")
        lanes = {B: Lockstep("DPB/Recommendation-v0", "lin-ucb", B, 1_000_000) for B in (64, 1)}
        rates = {side: [] for side in (*lanes, name)}
        for lane in lanes.values():
            lane.run(200)
        for _ in range(9):
            for B, lane in lanes.items():
                rates[B].append(lane.run((1000 if B > 1 else 10_000) * scale))
            script = [str(HERE / "peer_linucb.py"), name, "--rounds", "4000"]
            command = [python, "-W", "ignore", *script]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            rates[name].append(float(done.stdout))
        report(f"{name} LinUCB", statistics.median(rates[name]), "-", "rounds/s")
        for B, target in ((64, ">= 60"), (1, ">= 20")):
            report(f"lin-ucb (B={B}) / {name}'s LinUCB", ratio(rates, B, name), target)


def ageing(report, quick, repeats):
    """Compare the cost of late and early rounds."""
    late = 20_000 if quick else 100_000
    for env_id, agent in (
        ("DPB/Recommendation-v0", "lin-ucb"),
        ("DPB/Pricing-v0", "greedy-pricing"),
        ("DPB/Assortment-v0", "ucb-mnl"),
    ):
        kwargs = {"n_items": 20, "capacity": 4, "dim": 5} if "Assortment" in env_id else {}
        old = Lockstep(env_id, agent, 16, late + 20_000, **kwargs)
        old.run(late)
        costs = []
        for _ in range(repeats):
            young = Lockstep(env_id, agent, 16, late + 20_000, **kwargs)
            young.run(1000)
            costs.append(young.run(2000) / old.run(2000))
        title = f"{agent}: cost per round at t={late:,} / at t=1,000"
        report(title, statistics.median(costs), "<= 1.2")


def starting(report):
    """Measure the time of imports and of the command line."""
    ours = ("import gymnasium", "import gymnasium, dpb_gym")
    report("import dpb_gym beyond import gymnasium", import_seconds(ours, 9), "<= 0.15", "s")
    helped = ("pass", "import sys; sys.argv=['dpb','--help']; from dpb_gym.cli import main; main()")
    report("dpb --help beyond starting Python", import_seconds(helped, 9), "<= 0.5", "s")


def extend(folder, rows, blocks=0):
    """Write the published results to a folder, with copies under other labels up to `rows` rows.

    Each row consists of so many `blocks` of one replicate each; 0 leaves the blocks as published.
    """
    from dpb_gym.results.result_directory import ResultDirectory
    from dpb_gym.results.row_result import by_row

    published = ResultDirectory.open(HERE.parent / BOARD)
    row_cells = by_row(published.results())
    for cells in list(row_cells.values())[: rows - len(row_cells)]:
        for old in cells:
            agent = old.cell.agent.model_copy(update={"label": f"{old.cell.agent.label} again"})
            new = replace(old, cell=old.cell.model_copy(update={"agent": agent}))
            row_cells.setdefault(new.cell.row, []).append(new)
    results = [result for cells in row_cells.values() for result in cells]
    if blocks:
        results = [
            block(cells[0], number) for cells in row_cells.values() for number in range(blocks)
        ]
    with ResultDirectory.writing(folder, published.suite, {}) as store:
        store.add(results)


def block(result, number):
    """Return a cell of one replicate with the numbers of a replicate of a published cell."""
    cell = result.cell.model_copy(update={"start": number, "stop": number + 1})
    one = slice(at := number % len(result.regret), at + 1)
    return replace(result, cell=cell, regret=result.regret[one], reward=result.reward[one])


def spend(command, **options):
    """Run a program; return its processor and wall time in s and its peak memory in MiB.

    Processor time and memory include its children.
    """
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, **options)
    _, status, used = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} failed with status {status}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - start, used.ru_maxrss / 1024


def clone(report):
    """Measure `make leaderboard` in a fresh clone, then the smoke suite once more."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NUMBA", "DPB"))}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "-q", str(HERE.parent), folder], check=True)
        make = ["make", "-s", "-C", folder, f"PYTHON={sys.executable}", "VENV=.venv"]
        again = [f"{folder}/.venv/bin/dpb", "run", "smoke", "--out", f"{folder}/again"]
        for what, command, target in (
            ("installation", [*make, ".venv/.installed"], "-"),
            ("make leaderboard without installation", [*make, "leaderboard"], "-"),
            ("second run of smoke", again, "<= 12"),
        ):
            processor, wall, _ = spend(command, env=kept, stderr=subprocess.DEVNULL)
            report(f"fresh clone: {what}, processor time", processor, target, "s")
            report(f"fresh clone: {what}, wall time", wall, "-", "s")


def tests(report):
    """Measure `make test` in a fresh clone, with the installation of all requirements."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NUMBA", "DPB"))}
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(["git", "clone", "-q", str(HERE.parent), folder], check=True)
        make = ["make", "-s", "-C", folder, f"PYTHON={sys.executable}", "VENV=.venv"]
        processor, wall, _ = spend([*make, "test"], env=kept, stderr=subprocess.DEVNULL)
        report("fresh clone: make test, processor time", processor, "-", "s")
        report("fresh clone: make test, wall time", wall, "-", "s")


def readme(data: dict[str, Any]) -> str:
    """Return the README's two commands: what each prints, and the stored wall time of each."""
    seconds = {
        row["figure"]: row["value"]
        for part in ("clone", "tests")
        for row in data.get(part, {"rows": []})["rows"]
    }
    steps = ("installation", "make leaderboard without installation")
    board = sum(seconds[f"fresh clone: {step}, wall time"] for step in steps)
    test = seconds.get("fresh clone: make test, wall time")
    test_time = "not measured" if test is None else f"{test / 60:.0f} min"
    where = f"{data['clone']['processor']}, two workers, empty caches"
    return "\n".join([
        f"| command | includes all set-up and prints | wall time ({where}) |",
        "|---|---|---|",
        "| `make leaderboard` | the table of the smoke suite; it writes leaderboard.html and "
        f"regret.png | {board:.0f} s |",
        "| `make test` | the test results and the slowest tests; status 0 if all pass | "
        f"{test_time} |",
    ])  # fmt: skip


def board(report, repeats):
    """Measure `dpb leaderboard` on `ROWS` rows and on `CELLS` cells, after a run without counting.

    The results are written by another process, as a program starts with the peak of its parent.
    """
    for what, blocks, target in (
        (f"{ROWS:,} rows", 0, ("<= 3", "<= 250")),
        (f"{CELLS:,} cells", CELLS // ROWS, ("<= 30", "-")),
    ):
        with tempfile.TemporaryDirectory() as folder:
            spend([sys.executable, __file__, "--extend", folder, str(blocks)])
            code = f"from dpb_gym.cli import main; main(['leaderboard', {folder!r}])"
            took = [spend([sys.executable, "-c", code]) for _ in range(repeats + 1)]
            processor, wall, peak = (statistics.median(values) for values in zip(*took[1:]))
        report(f"dpb leaderboard, {what}, processor time", processor, target[0], "s")
        report(f"dpb leaderboard, {what}, wall time", wall, "-", "s")
        report(f"dpb leaderboard, {what}, peak memory", peak, target[1], "MiB")


def measure(agent, budget, along):
    """Return microseconds per replicate and round, and peak memory in MiB, for each size."""
    env_id, kwargs = CURVES[agent]
    Lockstep(env_id, agent, 2, 300, budget, **kwargs).run(300)  # compiles
    points = []
    for horizon, replicates in SERIES[along]:
        rate = Lockstep(env_id, agent, replicates, horizon, budget, **kwargs).run(horizon)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
        points.append((1e6 / rate, peak))
    return points


def measure_sizes(axis):
    """Return ms of a round, ms of it without the agent, and peak memory in MiB, for each size."""
    agent, env_id, names, sizes = SIZES[axis]
    sides = (agent, "rho=0.01"), ("random", "none")
    for name, budget in sides:  # compiles
        Lockstep(env_id, name, 1, 40, budget, **dict.fromkeys(names, sizes[0][0])).run(40)
    points = []
    for size, rounds in sizes:
        kwargs = dict.fromkeys(names, size)
        costs = []
        for name, budget in sides:
            rate = Lockstep(env_id, name, 1, rounds, budget, **kwargs).run(rounds)
            costs.append(1e3 / rate)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0
        points.append((*costs, peak))
    return points


def by_size(report):
    """Measure a round of one replicate by the size of the problem, an axis at a time."""
    for axis, (agent, _, _, sizes) in SIZES.items():
        command = [sys.executable, __file__, "--size", axis]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        points = json.loads(done.stdout)
        for (size, _), (cost, without, peak) in zip(sizes, points):
            title = f"{agent}, {size:,} {axis}"
            report(title, cost, f"{without:.3g} ms without the agent, {peak:,.0f} MiB", "ms")
        last, first = points[-1][0] - points[-1][1], points[-2][0] - points[-2][1]
        slope = math.log(last / first) / math.log(sizes[-1][0] / sizes[-2][0])
        report(f"{agent}, exponent of the last step", slope, "-", "")


def curves(report, path):
    """Measure the cost per round along T and B, for one agent per problem."""
    series = {}
    for agent in CURVES:
        for budget in BUDGETS:
            for along, sizes in SERIES.items():
                command = [sys.executable, __file__, "--series", agent, budget, along]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                series[agent, budget, along] = points = json.loads(done.stdout)
                for (horizon, replicates), (cost, peak) in zip(sizes, points):
                    title = f"{agent}, {budget}, T={horizon:,} B={replicates}"
                    report(title, cost, f"{peak:,.0f} MiB at most", "us/round")
            points = series[agent, budget, "T"]
            title = f"{agent}, {budget}: cost per round at T=1,000,000 / at T=10,000"
            report(title, points[3][0] / points[1][0], "<= 1.2")
    if path:
        draw(path, series)


def draw(path, series):
    """Draw cost and memory along T and along B."""
    import matplotlib
    from matplotlib.figure import Figure

    from dpb_gym.report.figure_layout import style
    from dpb_gym.report.palette import shade

    shades = {agent: shade(k)[0] for k, agent in enumerate(CURVES)}
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(6.9, 4.4))
        grid = figure.subplots(2, 2, sharex="col")
        for (agent, budget, along), points in series.items():
            sizes = [size[list(SERIES).index(along)] for size in SERIES[along]]
            for row, values in enumerate(zip(*points)):
                grid[row][list(SERIES).index(along)].plot(
                    sizes,
                    values,
                    color=shades[agent],
                    linestyle="-" if budget != "none" else (0, (4, 2)),
                    marker="o",
                    label=f"{agent}, {'no budget' if budget == 'none' else budget}",
                )
        for column, label in enumerate(("rounds T (B = 4)", "replicates B (T = 2,000)")):
            for row, unit in enumerate(("µs of a core per round", "peak memory, MiB")):
                axes = grid[row][column]
                axes.set(xscale="log", ylabel="" if column else unit)
                axes.set_xticks([10**k for k in ((3, 4, 5, 6), (0, 1, 2))[column]])
                axes.xaxis.set_major_formatter("{x:,.0f}")
                axes.set_xlabel(label if row else "")
                axes.set_ylim(0, 1.1 * axes.get_ylim()[1])
                axes.minorticks_off()
        grid[0][1].set(yscale="log", ylim=(0.3, 30.0), yticks=(0.5, 1, 2, 5, 10, 20))
        grid[0][1].yaxis.set_major_formatter("{x:g}")
        grid[0][1].minorticks_off()
        grid[0][0].legend()
        figure.savefig(path, dpi=150)


def slowest(report):
    """Measure the decisions of served agents, with an empty cache of kernels."""
    for name in decisions.AGENTS:
        times = decisions.fresh(name, 2000)
        report(f"{name}: serve", times["serve"], "-", "s")
        report(f"{name}: median decision", 1e3 * times["median"], "-", "ms")
        report(f"{name}: slowest of 2,000 decisions", 1e3 * times["worst"], "-", "ms")
        report(f"{name}: compilation after serve", times["late"], "0", "s")


def isolation(report):
    """Measure the wall time of a round with and without a process for the curator."""
    for replicates in (1, 10):
        for isolate, name in ((False, "in one process"), (True, "with --isolate")):
            play(20, replicates, isolate)  # compiles
            few, many = (play(rounds, replicates, isolate) for rounds in (20, 220))
            report(f"a round of {replicates} replicates, {name}", 5.0 * (many - few), "-", "ms")


def play(rounds, replicates, isolate):
    """Return the wall time of a run of one-pass-linear, in seconds."""
    start = time.perf_counter()
    agents = {"ours": ("one-pass-linear", "rho=1")}
    options = {"horizon": rounds, "replicates": replicates, "isolate": isolate}
    evaluate("DPB/Recommendation-v0", agents, progress=False, **options)
    return time.perf_counter() - start


def weight(report):
    """Measure the disk space of the required packages."""
    sizes = {name: size for name, (size, _) in install_weight.weights(()).items()}
    report("all required packages", sum(sizes.values()), "-", "MB")
    for name in sorted(sizes, key=sizes.__getitem__)[:-5:-1]:
        report(name, sizes[name], "-", "MB")


def processor():
    """Return the name of the processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def shown(value, unit):
    """Return a measured value with its unit, with three digits or all before the point."""
    number = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
    return f"{number} times" if unit == "x" else f"{number} {unit}"


def table(part: str, data: dict[str, Any]) -> str:
    """Return the table of a part of `data`; "curves T" and "curves B" are along T and B."""
    name, _, along = part.partition(" ")
    section = data[name]
    rows = section["rows"]
    if along:
        sizes = [f"T={T:,} B={B}" for T, B in SERIES[along]]
        at = {row["figure"]: row for row in rows}
        lines = [["agent", *sizes, "peak memory"]]
        for agent in CURVES:
            for budget in BUDGETS:
                own = [at[f"{agent}, {budget}, {size}"] for size in sizes]
                title = f"`{agent}`, {budget.replace('none', 'no budget')}"
                cells = [f"{row['value']:.3g}" for row in own]
                lines.append([title, *cells, own[-1]["target"].removesuffix(" at most")])
    elif name == "sizes":
        lines = [["measured", "value", "in this round and process"]]
        lines += [[row["figure"], shown(row["value"], row["unit"]), row["target"]] for row in rows]
    else:
        lines = [["measured", "value"]]
        lines += [[row["figure"], shown(row["value"], row["unit"])] for row in rows]
    return f"{section['processor']}, {section['day']}:\n\n{marked.table(lines)}"


def on_page(page: str, data: dict[str, Any]) -> str:
    """Return the page with every block ``<!-- speed PART -->`` written again."""
    return marked.replaced(page, "speed", lambda part, _: table(part, data))


def store(rows: list[dict[str, Any]]) -> None:
    """Store the measured parts and write the page."""
    data = json.loads(STORED.read_text("utf-8")) if STORED.exists() else {}
    for part in dict.fromkeys(row["part"] for row in rows):
        kept = ("figure", "value", "target", "unit")
        own = [{key: row[key] for key in kept} for row in rows if row["part"] == part]
        day = date.today().isoformat()
        data[part] = {"processor": processor(), "day": day, "rows": own}
    text = json.dumps(data, indent=1, ensure_ascii=False)
    STORED.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(on_page(PAGE.read_text("utf-8"), data), encoding="utf-8")
    marked.put(README, "commands", readme(data))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rounds")
    parser.add_argument("--only", action="append", default=[], choices=PARTS, metavar="PART")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--plot", type=Path, help="where the curves are drawn")
    parser.add_argument("--series", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--size", choices=SIZES, help=argparse.SUPPRESS)
    parser.add_argument("--extend", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--store", action="store_true", help="write docs/cluster.md")
    args = parser.parse_args()
    if args.series:
        print(json.dumps(measure(*args.series)))
        return
    if args.size:
        print(json.dumps(measure_sizes(args.size)))
        return
    if args.extend:
        extend(args.extend[0], ROWS, int(args.extend[1]))
        return
    scale, repeats = (1, 3) if args.quick else (8, 7)
    rows: list[dict] = []

    def report(name, value, target, unit="x"):
        value = float(f"{value:.4g}")
        rows.append({"part": part, "figure": name, "value": value, "target": target, "unit": unit})
        print(f"{name:<74}{value:>10.3g} {unit:<9} target {target}", flush=True)

    parts = {
        "policies": lambda: policies(report, scale, repeats),
        "peers": lambda: peers(report, scale, args.peer),
        "ageing": lambda: ageing(report, args.quick, repeats),
        "starting": lambda: starting(report),
        "clone": lambda: clone(report),
        "tests": lambda: tests(report),
        "board": lambda: board(report, repeats),
        "curves": lambda: curves(report, args.plot),
        "sizes": lambda: by_size(report),
        "decisions": lambda: slowest(report),
        "weight": lambda: weight(report),
        "isolation": lambda: isolation(report),
    }
    for part in args.only or PARTS:
        parts[part]()
        if args.store:
            store(rows)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
