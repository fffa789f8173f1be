"""Output of a real notebook kernel: progress bars, then tables and figures."""

from __future__ import annotations

import re

import pytest

nbformat = pytest.importorskip("nbformat")
client = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

CELLS = {
    "bars": """
import time
import numpy as np
import dpb_gym
from dpb_gym.offline import LoggedData, evaluate_offline

@dpb_gym.register_agent("sleepy", supports=["recommendation"])
class Sleepy(dpb_gym.SingleAgent):
    def act(self, context):
        time.sleep(0.005)
        return 0

    def observe(self, context, action, feedback):
        pass

small = {"horizon": 230, "replicates": 2, "env_kwargs": {"dim": 3}}
agents = {"<sleepy>": "sleepy", "private": ("adaprivate-ts", "rho=0.5", {"batch": 20})}
result = dpb_gym.evaluate("DPB/Recommendation-v0", agents, **small)
""",
    "silence": """
dpb_gym.evaluate("DPB/Recommendation-v0", agents, progress=False, **small); None
""",
    "result": "result",
    "figure": "result.plot()",
    "agents": "dpb_gym.list_agents()",
    "audit": 'dpb_gym.audit("adaprivate-ts", "rho=2", 60, deployment=32)',
    "off-policy": """
log = LoggedData.from_problem("DPB/Recommendation-v0", 200, seed=1, dim=4)
evaluate_offline(np.full(log.expected.shape, 1 / log.expected.shape[1]), log, resamples=20)
""",
}


@pytest.fixture(scope="module")
def outputs():
    cells = [nbformat.v4.new_code_cell(source) for source in CELLS.values()]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    return dict(zip(CELLS, (cell.outputs for cell in notebook.cells)))


def html(outputs):
    return "".join(output["data"]["text/html"] for output in outputs if "data" in output)


def test_progress_bars_are_shown_by_default_and_end_with_a_summary(outputs):
    (shown,) = outputs["bars"]
    assert shown["output_type"] == "display_data"
    assert re.match(r"<progress value='920' max='920'></progress> 100%", html([shown]))
    assert shown["data"]["text/plain"].startswith("100%  1/1 jobs")
    assert outputs["silence"] == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("result", ["&lt;sleepy&gt;", "private", "Regret [95%]"]),
        ("agents", ["adaprivate-ts", "sleepy"]),
        ("audit", ["adaprivate-ts", "claimed 2"]),
        ("off-policy", ["estimator", "not private"]),
    ],
)
def test_results_are_shown_as_tables(outputs, name, said):
    text = html(outputs[name])
    assert "<table" in text and all(word in text for word in said)


def test_a_figure_is_shown_once(outputs):
    assert [("image/png" in o["data"]) for o in outputs["figure"] if "data" in o] == [True]
