"""Generate the reference of suite files from the models that validate them."""

from __future__ import annotations

from importlib import resources
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from dpb_gym import docstrings
from dpb_gym.report.leaderboard_data import Normalisation
from dpb_gym.suites.spec import Task
from dpb_gym.suites.suite import Participant, Suite, Track
from dpb_site.markdown import Pages, fence, table

MODELS: dict[type[Any], str] = {
    Suite: "The file",
    Task: "A task",
    Normalisation: "Constants of a task",
    Track: "A track",
    Participant: "An agent",
}
BUDGET = "budget"
LIMITS = {
    "minimum": ">= {}",
    "exclusiveMinimum": "> {}",
    "maximum": "<= {:,}",
    "minLength": "at least {} letters",
    "maxLength": "at most {} letters",
    "minItems": "at least {}",
    "pattern": "`{}`",
}


class _Schema(GenerateJsonSchema):
    """JSON schema generator with the type `BUDGET` for budgets, which JSON schema lacks."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> dict[str, Any]:
        return {"type": BUDGET}


def write(pages: Pages) -> None:
    """Write the page."""
    parts = [
        "# Suite files",
        "Keys of the file for `dpb run FILE.yaml`. Unknown keys and wrong types raise an error "
        "that names the key. A budget is text: `rho=0.5`, `eps=1,delta=1e-5` or `none`. `dpb show "
        "FILE.yaml` prints what would run.",
    ]
    for model, title in MODELS.items():
        about = docstrings.parse(model).attributes
        schema = TypeAdapter(model).json_schema(schema_generator=_Schema)
        rows = [
            [f"`{key}`", kind(field), _default(key, field, schema), about.get(key, "")]
            for key, field in schema["properties"].items()
        ]
        parts += [f"## {title}", table(["key", "type", "default", "meaning"], rows)]
    smoke = resources.files("dpb_gym.suites") / "smoke.yaml"
    parts += ["## Example", "The suite `smoke`:", fence("yaml", smoke.read_text("utf-8"))]
    pages.write("suite", parts)


def kind(field: dict[str, Any]) -> str:
    """Return the type of a key in words, with its limits."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        title = {m.__name__: t for m, t in MODELS.items()}[name]
        return f"[{title.lower()}](#{title.lower().replace(' ', '-')})"
    if "anyOf" in field:
        return " or ".join(kind(one) for one in field["anyOf"] if one.get("type") != "null")
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    limits = ", ".join(text.format(field[key]) for key, text in LIMITS.items() if key in field)
    plain = field.get("type", "any value")
    if plain == "array":
        plain = f"list of {kind(field.get('items', {}))}"
    elif plain == "object":
        named = [*field.get("patternProperties", {}).values()]
        values = named[0] if named else field.get("additionalProperties")
        plain = f"mapping to {kind(values)}" if isinstance(values, dict) else "mapping"
    words = {"string": "text", "boolean": "true or false"}.get(plain, plain)
    return f"{words} ({limits})" if limits else words


def _default(key: str, field: dict[str, Any], schema: dict[str, Any]) -> str:
    if key in schema.get("required", ()):
        return "required"
    value = field.get("default")
    return "" if value in (None, "", [], {}) else f"`{value}`"
