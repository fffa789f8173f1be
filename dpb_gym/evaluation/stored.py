"""What the files of a result directory and of a submission may say, checked before it is used."""

from __future__ import annotations

import json
from typing import Annotated, Any, TypeVar

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from dpb_gym.evaluation.schema import problems

Text = Annotated[str, Field(max_length=2000)]
Texts = dict[Text, Text | None]
T = TypeVar("T")


class _Run(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]
    command: Annotated[str, Field(max_length=100_000)]
    agents: list[Text]
    failures: list[Text]
    status: Text
    versions: Texts
    revision: Text | None
    machine: Texts
    imported: dict[Text, Any]


class _Results(TypedDict):
    protocol: Text
    suite_text: str
    created: Text
    audits: dict[str, dict[str, Any]]
    rows: list[Any]


class _Manifest(_Results):
    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]
    updated: Text
    runs: list[_Run]
    stated: dict[str, dict[str, Any]]


class _Submission(_Results):
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)  # type: ignore[misc]
    submission: int
    sender: Text
    suite: Text
    algorithm: int
    agent: Texts
    versions: Texts
    revision: Text | None
    machine: Texts
    table: Text


MANIFEST, SUBMISSION = TypeAdapter(_Manifest), TypeAdapter(_Submission)


def read(content: bytes, schema: TypeAdapter[Any], what: str, version: int) -> dict[str, Any]:
    """Reads a JSON file that states its version under the key `what`.

    Raises:
        ValueError: If it is no such file, of another version, or not as the schema says; if a
            number is not finite or does not fit 64 bits, or text cannot be written again.
    """
    value = json.loads(content.decode(), parse_int=_whole)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    found = value.get(what) if isinstance(value, dict) else None
    if found != version:
        raise ValueError(f"expected {what} version {version}, found {found!r:.100}")
    try:
        schema.validate_python(value)
    except ValidationError as error:
        raise ValueError(problems(error)) from None
    return dict(value)


def _whole(text: str) -> int:
    if len(text) < 19:
        return int(text)
    raise ValueError(f"{text:.40} is no number of 64 bits")
