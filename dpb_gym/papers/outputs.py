"""What is written of a figure: picture, data, verdicts."""

from __future__ import annotations

import base64
import functools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpb_gym.evaluation import metrics
from dpb_gym.evaluation.filesystem import make_folder, write_file, write_json
from dpb_gym.papers.curves import Curve
from dpb_gym.papers.drawing import draw
from dpb_gym.papers.figure import Figure
from dpb_gym.papers.numbers import fill
from dpb_gym.papers.tables import details, guarantees, interval, markdown, p_text
from dpb_gym.papers.verdicts import Judgement, name
from dpb_gym.report.model import Interval

if TYPE_CHECKING:
    from jinja2 import Template

PICTURE, PAGE, NOTES, DATA, VERDICTS = (
    "figure.png",
    "figure.html",
    "figure.md",
    "curves.parquet",
    "verdicts.json",
)


def write_outputs(
    figure: Figure,
    judgements: Sequence[Judgement],
    curves: Sequence[Curve],
    facts: dict[str, str],
    folder: Path,
) -> tuple[Path, ...]:
    """Writes picture, data (Parquet), verdicts (JSON), and the pages (HTML and Markdown).

    Returns:
        The files.

    Raises:
        ResultError: If one cannot be written.
    """
    make_folder(folder)
    picture = draw(figure, curves, folder / PICTURE)
    _write_data(figure, curves, folder / DATA)
    write_json(folder / VERDICTS, to_json(figure, judgements, curves, facts))
    text = markdown(figure, judgements, curves, facts, PICTURE)
    write_file(folder / NOTES, text.encode())
    title = f"Reproduction of {figure.target}"
    page = html([(figure, judgements, curves, facts, picture)], title)
    write_file(folder / PAGE, page.encode())
    return tuple(folder / file for file in (PICTURE, PAGE, NOTES, DATA, VERDICTS))


def html(
    figures: Sequence[
        tuple[Figure, Sequence[Judgement], Sequence[Curve], dict[str, str], Path | None]
    ],
    title: str,
) -> str:
    """One self-contained page for one figure or several, the pictures inside."""
    shown = [
        {
            "figure": figure,
            "judgements": judgements,
            "curves": curves,
            "guarantees": guarantees(curves),
            "tables": [fill(table, curves) for table in figure.tables],
            "facts": facts,
            "picture": None
            if picture is None
            else base64.b64encode(picture.read_bytes()).decode("ascii"),
        }
        for figure, judgements, curves, facts, picture in figures
    ]
    return _template().render(title=title, figures=shown)


@functools.cache
def _template() -> Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "interval": interval,
        "details": details,
        "coordinates": name,
        "p": p_text,
    }
    return environment.get_template("page.html.j2")


def to_json(
    figure: Figure,
    judgements: Sequence[Judgement],
    curves: Sequence[Curve],
    facts: dict[str, str],
) -> dict[str, Any]:
    """Verdicts, comparisons, final values and guarantees as plain JSON values."""
    return {
        "target": figure.target,
        "title": figure.title,
        "constants": list(figure.constants),
        "notes": list(figure.remarks),
        "run": facts,
        "claims": [
            {
                **judgement.claim.model_dump(mode="json"),
                "verdict": judgement.verdict,
                "summary": judgement.summary,
                "variants": judgement.variants,
                "samples": {
                    str(count): {
                        "verdict": smaller.verdict,
                        "summary": smaller.summary,
                        "comparisons": [asdict(comparison) for comparison in smaller.comparisons],
                    }
                    for count, smaller in judgement.samples.items()
                },
                "comparisons": [asdict(comparison) for comparison in judgement.comparisons],
            }
            for judgement in judgements
        ],
        "tables": [fill(table, curves).to_dict() for table in figure.tables],
        "curves": [
            {
                "task": curve.series.task,
                "agent": curve.series.agent,
                "budget": curve.series.budget,
                "axes": dict(curve.axes),
                "replicates": len(curve.series.replicates),
                "regret": asdict(curve.final),
                "recorded": {
                    name: asdict(metrics.bootstrap(list(column.values())))
                    for name, column in curve.recorded.items()
                },
                "guarantee": curve.guarantee,
                "guarantee_data": curve.series.guarantee,
            }
            for curve in curves
        ],
    }


def _write_data(figure: Figure, curves: Sequence[Curve], path: Path) -> None:
    """One row per curve and checkpoint: mean and interval; all axes as columns."""
    import io

    import pyarrow as pa
    from pyarrow import parquet

    rows: list[dict[str, Any]] = []
    for curve in curves:
        s = curve.series
        fixed = {
            "task": s.task,
            "agent": s.agent,
            "budget": s.budget,
            **{f"axis_{axis}": curve.axes[axis] for axis in figure.axes},
            "replicates": len(s.replicates),
            "guarantee": curve.guarantee,
        }
        points: list[tuple[int, Interval]] = list(zip(s.rounds.tolist(), curve.bands))
        rows += [
            {**fixed, "round": t, "regret": b.mean, "low": b.low, "high": b.high} for t, b in points
        ]
    for axis in figure.axes:
        column = f"axis_{axis}"
        kinds = {type(row[column]) for row in rows if row[column] is not None}
        if len(kinds) > 1 and not kinds <= {int, float}:
            rows = [{**r, column: None if r[column] is None else str(r[column])} for r in rows]
        elif kinds == {int, float}:
            rows = [{**r, column: None if r[column] is None else float(r[column])} for r in rows]
    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(rows), buffer)
    write_file(path, buffer.getvalue(), durable=False)
