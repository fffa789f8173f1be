"""Specifications read from YAML or Python: validation and one-line error messages."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Mapping
from typing import Annotated, Any, TypeVar

import numpy as np
import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, ValidationError

from dpb_gym.errors import DPBError, ParameterError, SuiteError

Slug = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9.]+)*$", max_length=60)]
Label = Annotated[str, AfterValidator(lambda text: printable(text))]
T = TypeVar("T")
Many = Annotated[tuple[T, ...], Strict(False)]
"""A tuple; YAML has lists only."""


def printable(text: str) -> str:
    """Return a label if it is printable text without control or zero-width characters.

    Raises:
        ParameterError: If it is not printable or too long.
    """
    if not text.strip() or text != text.strip() or not text.isprintable() or len(text) > 500:
        raise ParameterError(f"a label must be printable text, got {text!r:.100}")
    return text


class Spec(BaseModel):
    """Immutable model; unknown keys and wrong types are rejected."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True)


def in_memory(value: Any) -> bool:
    """Return whether a parameter is a data table, stored in results by name and digest only."""
    named = isinstance(getattr(value, "name", None), str)
    return named and callable(getattr(value, "digest", None))


def plain(value: Any, what: str) -> Any:
    """Convert parameters to plain JSON values.

    Raises:
        ParameterError: If a value has no JSON form and could not be stored with a result.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise ParameterError(f"{what}: {value} cannot be stored; use None or a finite number")
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), what)
    if isinstance(value, (list, tuple)):
        return [plain(item, what) for item in value]
    if in_memory(value):
        return {"name": value.name, "digest": value.digest()}
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ParameterError(f"{what}: keys must be text to be stored, got {list(value)!r}")
        return {key: plain(item, f"{what}[{key!r}]") for key, item in value.items()}
    raise ParameterError(
        f"{what}: {value!r} cannot be stored; allowed are None, booleans, numbers, text, arrays, "
        "lists and mappings"
    )


def canonical(value: Any) -> str:
    """Return JSON text with sorted keys and no spaces, equal for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def problems(error: ValidationError) -> str:
    """Return the validation errors in one line that names the keys."""
    details = error.errors()
    places = [detail["loc"] for detail in details]
    told = [detail for detail in details if not _follows(detail, places)]
    return "; ".join(_problem(detail) for detail in told[:5])


def _follows(detail: Any, places: list[tuple[int | str, ...]]) -> bool:
    """Return whether an error is due to another: a list without its wrong entries is too short.

    Likewise a list with a wrong entry is no text, where both are allowed.
    """
    place = detail["loc"] if detail["type"] == "too_short" else detail["loc"][:-1]
    if detail["type"] not in ("too_short", "string_type") or not place:
        return False
    return any(other[: len(place)] == place and other != detail["loc"] for other in places)


def _problem(detail: Any) -> str:
    parts = [str(part) for part in detail["loc"] if part not in ("tuple", "str")]
    path = ".".join(part for part in parts if not part.startswith(("tuple[", "function-")))
    if detail["type"] == "extra_forbidden":
        return f"{path}: unknown key"
    if detail["type"] == "missing":
        return f"{path}: missing"
    text = detail["msg"].removeprefix("Value error, ").replace("valid tuple", "list")
    text = text[0].lower() + text[1:] if text.startswith("Input ") else text
    got = "" if detail["type"] == "value_error" else f", got {detail['input']!r:.80}"
    return f"{path}: {text}{got}" if path else f"{text}{got}"


def raised(error: ValidationError) -> DPBError:
    """Return the `DPBError` that caused a validation error, else a `ParameterError`."""
    for detail in error.errors():
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, DPBError):
            return cause
    return ParameterError(f"not a valid run: {problems(error)}")


S = TypeVar("S", bound=Spec)


def read_spec(model: type[S], text: str, source: str) -> S:
    """Read a specification from YAML.

    Args:
        model: Class of the specification.
        text: The YAML, a mapping.
        source: Name of the source, for messages.

    Raises:
        SuiteError: If it is invalid; the message names the key and what is allowed.
    """
    try:
        data = parse_yaml(text)
    except ValueError as error:
        raise SuiteError(f"{source}: not valid YAML: {error}") from None
    if not isinstance(data, dict):
        what, got = model.__name__.lower(), type(data).__name__
        raise SuiteError(f"{source}: a {what} is a mapping of keys to values, got {got}")
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise SuiteError(f"{source}: {problems(error)}") from None
    except SuiteError as error:
        raise SuiteError(f"{source}: {error}") from None


_Parser: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader


class _Loader(_Parser):  # type: ignore[misc]
    """Loader that refuses keys that appear twice, by libyaml where PyYAML has it."""


def _mapping(loader: _Loader, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
    seen = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node, deep=True)
        if isinstance(key, Hashable) and key in seen:
            raise yaml.constructor.ConstructorError(
                None, None, f"the key {key!r} appears twice", key_node.start_mark
            )
        seen.add(key)
    return yaml.SafeLoader.construct_mapping(loader, node, deep=True)


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)
# YAML 1.1 reads 1e-5 as text: its numbers need a point and a signed exponent.
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(?:\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)


MOST_TEXT, MOST_VALUES, MOST_LEVELS = 1 << 20, 20_000, 100
"""Limits: characters of a file, values after aliases are expanded, and levels of nesting."""


def _unfolded(node: yaml.Node, known: dict[int, int]) -> int:
    """Return the number of values below a node, with every alias expanded."""
    if id(node) not in known:
        known[id(node)] = MOST_VALUES + 1  # while it is counted: a node that contains itself
        children = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = [n for child in children for n in (child if isinstance(child, tuple) else [child])]
        known[id(node)] = 1 + sum(_unfolded(part, known) for part in parts)
    return known[id(node)]


def _check_levels(text: str) -> None:
    """Raise `ValueError` for deep nesting, at which libyaml would end the process.

    Events are parsed without recursion.
    """
    levels = 0
    for event in yaml.parse(text, _Parser):
        levels += isinstance(event, yaml.CollectionStartEvent)
        levels -= isinstance(event, yaml.CollectionEndEvent)
        if levels > MOST_LEVELS:
            raise ValueError(f"it has more than {MOST_LEVELS} levels of nesting")


def parse_yaml(text: str) -> Any:
    """Parse YAML.

    Raises:
        ValueError: If the text is not YAML, a key appears twice, it is nested too deeply, or it
            is too large with aliases expanded. The message is one line.
    """
    if len(text) > MOST_TEXT:
        raise ValueError(f"{len(text):,} characters are over {MOST_TEXT:,}")
    try:
        _check_levels(text)
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        if _unfolded(node, {}) > MOST_VALUES:
            raise ValueError(f"it unfolds to more than {MOST_VALUES:,} values")
        return loader.construct_document(node)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
        start = error.context_mark
        since = "" if start is None else f" ({error.context} from line {start.line + 1} on)"
        raise ValueError(f"{where}{error.problem}{since}") from None
    except (yaml.YAMLError, RecursionError, OverflowError) as error:
        raise ValueError(str(error).split("\n")[0]) from None
