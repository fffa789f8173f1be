"""Schema of the manifest of a result directory, checked before use."""

from __future__ import annotations

import json
from typing import Annotated, Any, NotRequired

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from dpb_gym.suites.schema import problems

Text = Annotated[str, Field(max_length=2000)]
Texts = dict[Text, Text | None]
VERSION = 2


class _Run(TypedDict, total=False):
    __pydantic_config__ = ConfigDict(extra="allow", strict=True, defer_build=True)  # type: ignore[misc]
    command: Annotated[str, Field(max_length=100_000)]
    agents: list[Text]
    failures: list[Text]
    status: Text
    versions: Texts
    revision: Text | None
    machine: Texts
    imported: dict[Text, Any]


class _Submitted(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, defer_build=True)  # type: ignore[misc]
    sender: Text
    created: Text
    agent: Texts
    versions: Texts
    revision: Text | None
    machine: Texts


class _Manifest(TypedDict):
    __pydantic_config__ = ConfigDict(extra="allow", strict=True, defer_build=True)  # type: ignore[misc]
    protocol: Text
    suite_text: str
    created: Text
    updated: Text
    audits: dict[str, dict[str, Any]]
    stated: dict[str, dict[str, Any]]
    runs: list[_Run]
    rows: list[Any]
    submitted: NotRequired[_Submitted]


SCHEMA = TypeAdapter(_Manifest)


def read(content: bytes) -> dict[str, Any]:
    """Read a manifest.

    Raises:
        ValueError: If it is no manifest, has another version or violates the schema; if a number
            is not finite or exceeds 64 bits, or text cannot be encoded.
    """
    value = json.loads(content.decode(), parse_int=_whole)
    json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    version = value.get("manifest") if isinstance(value, dict) else None
    if version != VERSION:
        raise ValueError(f"expected manifest version {VERSION}, found {version!r:.100}")
    try:
        SCHEMA.validate_python(value)
    except ValidationError as error:
        raise ValueError(problems(error)) from None
    return dict(value)


def _whole(text: str) -> int:
    if len(text) < 19:
        return int(text)
    raise ValueError(f"{text:.40} is no number of 64 bits")
