"""Reader of certificates: strict JSON, and the schema of every field.

The schema has no free fields but two: the parameters of an agent and of an environment, whose names
belong to other packages.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, NotRequired, TypeVar, cast

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    Tag,
    TypeAdapter,
    ValidationError,
)
from typing_extensions import TypedDict

from dpb_gym import validation
from dpb_gym.errors import ParameterError, shown
from dpb_gym.privacy.guarantee import NOTIONS, RELATIONS, UNITS

FORMAT = "dpb-gym certificate, version 2"
MOST_BYTES = 2**24
MOST_ENTRIES = 10_000
DEEPEST = 24
"""Depth of the values of a certificate; deeper values exhaust the stack of some readers."""
LONGEST_NUMBER = 40  # characters; no finite double needs more

T = TypeVar("T")


def strict(schema: type) -> type:
    """Return a typed dictionary that rejects unknown fields, other types and infinite numbers."""
    config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)
    schema.__pydantic_config__ = config  # type: ignore[attr-defined]
    return schema


def _printable(value: str) -> str:
    return validation.text("text", value)


Text = Annotated[str, Field(max_length=2000), AfterValidator(_printable)]
Values = dict[Text, JsonValue]
Hex = Annotated[str, Field(pattern=r"^[0-9a-f]+$", min_length=32, max_length=128)]
Count = Annotated[int, Field(ge=0, le=validation.LARGEST)]
Size = Annotated[int, Field(ge=1, le=validation.LARGEST)]
EventFacts = dict[Text, Text | int | float]
NotNegative = Annotated[float, Field(ge=0.0)]


def _names(options: tuple[str, ...]) -> Any:
    """Return the type of texts that are one of some names."""
    return Literal[options]


@strict
class GuaranteeFacts(TypedDict):
    """`Guarantee.to_dict`; `Event` checks the fields of events."""

    notion: _names(NOTIONS)  # type: ignore[valid-type]
    unit: _names(UNITS)  # type: ignore[valid-type]
    relation: _names(RELATIONS)  # type: ignore[valid-type]
    curve: Annotated[list[EventFacts], Field(min_length=1, max_length=1000)]
    basis: Annotated[Text, Field(pattern=r"^(computed|declared|as printed)")]
    uses: Annotated[list[Size], Field(min_length=2, max_length=2)] | None
    inherited: NotRequired[Annotated[list[EventFacts], Field(min_length=1, max_length=1000)]]


@strict
class AccountFacts(TypedDict):
    """`Account.summary`."""

    lifetime: Text
    unit: Text
    notion: _names(NOTIONS)  # type: ignore[valid-type]
    people: Count
    largest_rho: NotNegative


@strict
class Versions(TypedDict):
    """Versions of the packages that determine the numbers of a run."""

    dpb_gym: Text
    numpy: Text
    scipy: Text


@strict
class AuditOrigin(TypedDict):
    """Arguments of `dpb_gym.audits.audit`, with which it can be run again."""

    agent: Text
    parameters: Values
    budget: Text
    runs: Size
    env_id: Text | None
    env_kwargs: Values
    horizon: Size | None
    seed: Count
    confidence: Annotated[float, Field(gt=0.0, lt=1.0)]
    deployment: Size | None
    versions: Versions


@strict
class AuditFacts(TypedDict):
    """`AuditReport.summary`."""

    subject: Text
    verdict: Text
    claimed: Text
    runs: Size
    control: Text | None
    epsilon: NotNegative
    mu: NotNegative
    origin: AuditOrigin | None


@strict
class CodeFacts(TypedDict):
    """Source of the agent: its class, the hash of its code, and the revision of its repository."""

    entry_point: Text
    digest: Hex | None
    revision: Text | None


@strict
class TaskFacts(TypedDict):
    """`dpb_gym.suites.spec.Task.identity`: the problem of a row of a result directory."""

    name: Text
    env: Text
    env_kwargs: Values
    horizon: Size


@strict
class ProblemFacts(TypedDict):
    """`ProblemInfo.to_dict`: the problem of a session."""

    kind: Text
    horizon: NotRequired[Size]
    dim: Size
    reward_range: Annotated[list[float], Field(min_length=2, max_length=2)]
    n_items: NotRequired[Size]
    capacity: NotRequired[Size]
    exactly: NotRequired[bool]
    masked: NotRequired[bool]
    stock: NotRequired[list[Count]]
    equal_revenues: NotRequired[bool]
    demand: NotRequired[Text]
    zeta: NotRequired[float]
    price_range: NotRequired[Annotated[list[float], Field(min_length=2, max_length=2)]]
    n_candidates: NotRequired[Size]
    n_arms: NotRequired[Size]
    max_interactions: NotRequired[Size]
    partial_feedback: bool
    delay: NotRequired[Text]
    rating_uses: NotRequired[Size]
    person_uses: NotRequired[Size]
    log_release: NotRequired[Text]
    prior: NotRequired[Values]
    binary: NotRequired[bool]


def _kind_of_problem(value: Any) -> str:
    return "task" if isinstance(value, dict) and "env" in value else "problem"


@strict
class Facts(TypedDict):
    """What one run stated; see `Certificate.of`."""

    agent: Annotated[Text, Field(min_length=1)]
    parameters: Values
    budget: Text
    generator: Literal["system", "seeded"]
    code: CodeFacts
    guarantee: GuaranteeFacts
    provisos: Annotated[list[Text], Field(max_length=100)]
    problem: Annotated[
        Annotated[TaskFacts, Tag("task")] | Annotated[ProblemFacts, Tag("problem")],
        Discriminator(_kind_of_problem),
    ]
    audit: AuditFacts | None
    lifetime: AccountFacts | None


@strict
class CertifiedRun(TypedDict):
    """One run. Its findings are compared with those that are computed from its facts."""

    facts: Facts
    findings: dict[str, JsonValue]


@strict
class Signature(TypedDict):
    """Ed25519 signature; key and signature are hexadecimal."""

    algorithm: Literal["ed25519"]
    public_key: Annotated[Hex, Field(min_length=64, max_length=64)]
    value: Annotated[Hex, Field(min_length=128, max_length=128)]


@strict
class Content(TypedDict):
    """A certificate."""

    format: Literal["dpb-gym certificate, version 2"]
    versions: Versions
    entries: Annotated[list[CertifiedRun], Field(min_length=1, max_length=MOST_ENTRIES)]
    sha256: Annotated[Hex, Field(min_length=64, max_length=64)]
    signature: NotRequired[Signature]


SCHEMA = TypeAdapter(Content)
FACTS = TypeAdapter(Facts)


def parse(content: bytes | str) -> dict[str, Any]:
    """Return the certificate in a JSON text.

    Raises:
        ParameterError: If it is no JSON, has a key twice in one object, a number that is not
            finite, more than `MOST_BYTES` or `DEEPEST` levels, or violates the schema. The message
            names the fields.
    """
    if len(content) > MOST_BYTES:
        raise ParameterError(f"a certificate has at most {MOST_BYTES:,} bytes")
    try:
        value = json.loads(
            content,
            object_pairs_hook=_object,
            parse_constant=_not_finite,
            parse_int=_number(int),
            parse_float=_number(float),
        )
    except RecursionError:
        raise ParameterError(f"values are nested deeper than {DEEPEST} levels") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ParameterError(f"not JSON: {error}") from None
    return validated(SCHEMA, value)


def validated(schema: TypeAdapter[Any], value: Any) -> dict[str, Any]:
    """Return a value of plain JSON types if it has the schema.

    Raises:
        ParameterError: If it is nested too deeply or violates the schema.
    """
    # level by level, as a recursive check would fail on what it should refuse
    for depth, _ in enumerate(_levels(value)):
        if depth >= DEEPEST:
            raise ParameterError(f"values are nested deeper than {DEEPEST} levels")
    stated = value.get("format") if isinstance(value, dict) else None
    if schema is SCHEMA and stated != FORMAT:
        raise ParameterError(
            f"format should be {FORMAT!r}, got {shown(stated)}; write the certificate again with "
            "this version"
        )
    try:
        schema.validate_python(value)
    except ValidationError as error:
        raise ParameterError(_problems(error)) from None
    return cast(dict[str, Any], value)  # not the validated copy, whose integers can be floats


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yield the values of each level of nesting."""
    level = [value]
    while level:
        yield level
        inner: list[Any] = []
        for part in level:
            if isinstance(part, dict):
                inner += part.values()
            elif isinstance(part, list):
                inner += part
        level = inner


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; readers disagree on which of two equal keys counts."""
    members: dict[str, Any] = {}
    for name, value in pairs:
        if name in members:
            raise ParameterError(f"the key {shown(name)} occurs twice in one object")
        members[name] = value
    return members


def _not_finite(text: str) -> Any:
    raise ParameterError(f"{text} is no number of JSON")


def _number(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return a reader of finite numbers."""

    def number(text: str) -> T:
        # reading an integer takes time that is quadratic in its digits
        if len(text) > LONGEST_NUMBER or abs(float(text)) == float("inf"):
            raise ParameterError(f"{text:.40} is no finite number of double precision")
        return read(text)

    return number


def _problems(error: ValidationError) -> str:
    """Return the violations, each with the path of its field."""
    lines = []
    details = error.errors(include_url=False, include_context=False)
    for detail in details[:5]:
        path = ".".join(str(part) for part in detail["loc"])
        message = {
            "extra_forbidden": "unknown field",
            "missing": "missing field",
        }.get(detail["type"], detail["msg"].removeprefix("Value error, "))
        lines.append(f"{path.encode('unicode_escape').decode()[:200]}: {message}")
    if len(details) > len(lines):
        lines.append(f"and {len(details) - len(lines)} more")
    return "; ".join(lines)
