"""Learning from perturbed contexts: the stored table, and the effect in a small run."""

from __future__ import annotations

import importlib
import json
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def study(import_benchmark: Any) -> Any:
    return import_benchmark("input_perturbation")


def test_the_page_is_written_from_the_stored_result(study: Any) -> None:
    data = json.loads(study.STORED.read_text(encoding="utf-8"))
    page = study.PAGE.read_text(encoding="utf-8")
    marked = importlib.import_module("marked")
    assert marked.block(page, "input-perturbation") == study.table(data)
    assert f"T = {data['horizon']:,}" in page and f"of {data['replicates']} replicates" in page
    assert (data["horizon"], data["replicates"]) == (study.HORIZON, study.REPLICATES)


def test_the_regret_grows_with_the_number_of_perturbed_vectors(study: Any) -> None:
    """Each of N vectors has N times the variance of one, so that more items hide each other."""
    regrets = [
        np.mean(
            study.played(
                "greedy-mnl", None, "rho=100", "DPB/Assortment-v0", 150,
                n_items=items, context_norm="clip",
            )
        )
        for items in (20, 100)
    ]  # fmt: skip
    raw = study.played(
        "greedy-mnl", None, None, "DPB/Assortment-v0", 150, n_items=100, context_norm="clip"
    )
    assert regrets[1] > regrets[0] + 0.1 > np.mean(raw) + 0.2
    assert regrets[1] < 1.1


def test_stored_regret_grows_with_the_number_of_vectors_only_where_they_are_perturbed(
    study: Any,
) -> None:
    rows = json.loads(study.STORED.read_text(encoding="utf-8"))["rows"]

    def means(agent: str, noise: str | None, budget: str | None) -> list[float]:
        key = ("assortment", agent, noise, budget)
        return [r["mean"] for r in rows if (r["kind"], r["agent"], r["noise"], r["budget"]) == key]

    perturbed = means("greedy-mnl", "rho=100", None)
    assert perturbed == sorted(perturbed) and perturbed[-1] > perturbed[0] + 0.3
    assert max(means("one-pass-mnl", None, "rho=100")) < 0.1
