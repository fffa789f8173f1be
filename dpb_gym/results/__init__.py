"""Results: numbers of cells, rows that join the replicates of a cell's blocks, tables and metrics.

A result directory holds one Parquet file and one manifest, in a folder or in an object store.
`Result` is what `evaluate` returns and what a result directory is loaded into.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.results.result import Result as Result
    from dpb_gym.results.result_directory import ResultDirectory as ResultDirectory

__all__, __getattr__, __dir__ = lazy_names(__name__)
