"""JSON records and other objects of Python as columns of a table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from dpb_data import vowpal_wabbit
from dpb_gym.errors import DataError, shown


def json_columns(
    raw: bytes, where: str
) -> tuple[dict[str, list[Any]], tuple[int, ...]] | None:  # fmt: skip
    """Return the columns of JSON lines or of a JSON list of objects, and numbers of empty lines.

    The columns of objects inside of objects have names such as ``customer.age``.
    Logs of Vowpal Wabbit become rounds, see `dpb_data.vowpal_wabbit.table`. None for other text.

    Raises:
        DataError: If a line is damaged, or holds a list, or a name stands for objects and values.
    """
    text = raw.decode("utf-8", errors="replace").lstrip("\ufeff")
    start = text.lstrip()[:1]
    if start not in ("{", "["):
        return None
    lines = text.split("\n")
    if start == "{":
        numbers = [k for k, line in enumerate(lines, start=1) if line.strip()]
        places = [f"line {k}" for k in numbers]
        records = [_json(f"{where}: line {k}", lines[k - 1]) for k in numbers]
        empty = tuple(k for k in range(1, numbers[-1]) if not lines[k - 1].strip())
    else:
        records = _json(where, text)
        places = [f"entry {k}" for k in range(1, len(records) + 1)]
        empty = ()
    if any(isinstance(record, dict) and vowpal_wabbit.is_round(record) for record in records[:1]):
        return vowpal_wabbit.table(lines), ()
    plain = [record for record in records if isinstance(record, dict)]
    objects = {name for record in plain for name, value in record.items()
               if isinstance(value, dict)}  # fmt: skip
    if not any(record.get(name) is not None and not isinstance(record.get(name), dict)
               for name in objects for record in plain):  # fmt: skip
        records = [_flat(record) if isinstance(record, dict) else record for record in records]
    names = dict.fromkeys(name for record in records if isinstance(record, dict) for name in record)
    for place, record in zip(places, records):
        if not isinstance(record, dict):
            raise DataError(f"{where}: {place}: expected an object, got {shown(record)}")
        inner = [name for name, value in record.items() if isinstance(value, (dict, list))]
        if inner:
            raise DataError(
                f"{where}: {place}: {inner[0]} holds {shown(record[inner[0]])}: write it as "
                "columns of plain values"
            )
    return {name: [record.get(name) for record in records] for name in names}, empty


def _flat(record: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    """Return an object without objects inside, whose names are joined by points."""
    fields = {}
    for name, value in record.items():
        own = f"{before}{name}"
        fields |= _flat(value, f"{own}.") if isinstance(value, dict) else {own: value}
    return fields


def _json(where: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(f"{where}: expected JSON ({error})") from error


def as_columns(source: Any) -> Any:
    """Return a list of mappings as columns; any other source unchanged."""
    if not (isinstance(source, list) and source and all(isinstance(r, Mapping) for r in source)):
        return source
    names = dict.fromkeys(str(name) for row in source for name in row)
    return {name: [row.get(name) for row in source] for name in names}
