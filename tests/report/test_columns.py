"""A column declared once appears everywhere under one name."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import re

import pytest
from rich.console import Console

from dpb_gym import report
from dpb_gym.errors import ParameterError
from dpb_gym.report.columns import COLUMNS, ResultColumn, columns, register
from dpb_gym.report.page import render

NAME = "column_of_this_test"


@pytest.fixture
def column():
    """A registered column, removed after the test."""
    added = ResultColumn(
        NAME,
        "Regret/round",
        "number",
        value=lambda task, row: row.regret.mean / task.horizon,
        unit="reward/round",
        help="Mean regret of a round.",
        better="less",
    )
    before = list(COLUMNS)
    register(added)
    yield added
    COLUMNS[:] = before


def page_data(text):
    packed = re.search(r'id="data">([^<]*)<', text).group(1)
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_a_new_column_is_in_every_table_file_and_page_under_its_name(make, column):
    data = make.data()
    task = data.tasks[0]
    expected = {row.key: row.regret.mean / task.horizon for row in task.rows}
    records = report.records(task)
    assert sorted(record[NAME] for record in records) == sorted(expected.values())
    read = list(csv.DictReader(io.StringIO(report.to_csv(task))))
    assert [float(record[NAME]) for record in read] == [record[NAME] for record in records]
    rows = json.loads(report.to_json(task))["rows"]
    assert [row[NAME] for row in rows] == [expected[row.key] for row in task.rows]
    stream = io.StringIO()
    report.table(task, console=Console(file=stream, width=220, color_system=None))
    lines = stream.getvalue().splitlines()
    assert any(column.title in line for line in lines)
    for row in task.rows:
        label = row.agent if row.budget is None else f"{row.agent} {row.budget}"
        (line,) = [line for line in lines if line.startswith(f"{label}  ")]
        assert report.number_format.number(expected[row.key]) in line
    text = render(data)
    assert "Mean regret of a round." in text
    packed = page_data(text)
    (declared,) = [one for one in packed["columns"] if one["name"] == NAME]
    assert declared["title"] == "Regret/round" and set(declared["shown"]) >= {"task", "details"}
    values = packed["tables"][0]["values"][NAME]
    assert values == pytest.approx([expected[row.key] for row in task.rows], rel=1e-5)


def test_a_new_column_is_in_the_data_frame_with_its_unit(make, column):
    pytest.importorskip("pandas")
    frame = report.to_frame(make.task())
    assert NAME in frame.columns and frame.attrs["units"][NAME] == "reward/round"


def test_records_files_and_page_have_the_same_names(make):
    task = make.task()
    names = {column.name for column in columns("records")}
    (record, *_) = report.records(task)
    assert {name for name in record if not name.endswith(("_low", "_high"))} == names
    read = csv.reader(io.StringIO(report.to_csv(task)))
    assert next(read) == list(record)
    assert set(record) <= set(json.loads(report.to_json(task))["rows"][0]) | {
        f"{column.name}{end}" for column in COLUMNS for end in ("_low", "_high")
    }
    packed = page_data(render(make.data([task])))["tables"][0]
    assert names <= {*packed["values"], *packed["same"]}


def test_a_name_is_taken_once(column):
    for name in (NAME, "regret", "speed"):
        with pytest.raises(ParameterError, match="choose another name"):
            register(ResultColumn(name, "Again"))
