"""OpenAPI document of a service: what its problem's requests and answers look like."""

from __future__ import annotations

import math
from typing import Any

from dpb_gym.privacy.account import LONGEST_ID
from dpb_gym.problems.kinds import kind_of
from dpb_gym.service.bodies import MOST, MOST_ROWS, Bodies
from dpb_gym.service.settings import version
from dpb_gym.validation import LARGEST

Schema = dict[str, Any]
ERRORS: Schema = {
    "type": "object",
    "required": ["errors"],
    "additionalProperties": False,
    "properties": {
        "errors": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["row", "field", "message"],
                "additionalProperties": False,
                "properties": {
                    "row": {"type": ["integer", "null"], "minimum": 0},
                    "field": {"type": ["string", "null"]},
                    "message": {"type": "string"},
                },
            },
        }
    },
}
STATUS: Schema = {
    "type": "object",
    "required": ["status", "decisions", "pending", "horizon", "guarantee"],
    "properties": {
        "status": {"enum": ["ok", "failed"]},
        "decisions": {"type": "integer", "minimum": 0},
        "pending": {"type": "integer", "minimum": 0},
        "horizon": {"type": ["integer", "null"]},
        "guarantee": {"type": "string"},
    },
}
FAILURES = {
    "400": "A row or field is wrong; nothing was done",
    "401": "The token is missing or wrong",
    "409": "The horizon is over",
    "413": "The body is too large",
    "500": "The agent failed",
    "503": "The service has stopped, and must be started again",
}


def document(bodies: Bodies, *, token: bool) -> Schema:
    """Return the OpenAPI document as JSON values.

    Args:
        bodies: Reads the requests.
        token: Whether clients need a token.
    """
    schemas = {
        "Customer": _customer(bodies),
        "Decision": {
            "type": "object",
            "required": ["decision", "action"],
            "additionalProperties": False,
            "properties": {"decision": _integer(1), "action": _action(bodies)},
        },
        "Response": {
            "type": "object",
            "required": ["decision", "response"],
            "additionalProperties": False,
            "properties": {"decision": _integer(1), "response": _response(bodies)},
        },
        "Errors": ERRORS,
        "Status": STATUS,
    }
    spec: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "dpb-gym decision service", "version": version()},
        "paths": _paths(),
        "components": {"schemas": schemas},
    }
    if token:
        spec["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        spec["security"] = [{"token": []}]
    return spec


def _paths() -> Schema:
    decided = _content({"anyOf": [_ref("Decision"), _rows("Decision")]})
    decide = {"200": {"description": "The decisions, in the order of the rows", **decided}}
    return {
        "/decide": {"post": _operation("decide", "Decide for customers", "Customer", decide)},
        "/observe": {
            "post": _operation(
                "observe",
                "Record responses to decisions",
                "Response",
                {"204": {"description": "Recorded"}},
            )
        },
        "/health": {
            "get": {
                "operationId": "health",
                "summary": "State of the service; needs no token",
                "security": [],
                "responses": {
                    "200": {"description": "It answers", **_content(_ref("Status"))},
                    "503": {"description": FAILURES["503"], **_content(_ref("Status"))},
                },
            }
        },
        "/metrics": {
            "get": {
                "operationId": "metrics",
                "summary": "Prometheus text",
                "responses": {
                    "200": {
                        "description": "The metrics",
                        "content": {"text/plain": {"schema": {"type": "string"}}},
                    },
                    "401": {"description": FAILURES["401"], **_content(_ref("Errors"))},
                },
            }
        },
    }


def _operation(name: str, summary: str, row: str, answers: Schema) -> Schema:
    failures = {
        status: {"description": text, **_content(_ref("Errors"))}
        for status, text in FAILURES.items()
    }
    body = {"required": True, **_content({"anyOf": [_ref(row), _rows(row)]})}
    return {
        "operationId": name,
        "summary": summary,
        "requestBody": body,
        "responses": {**answers, **failures},
    }


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _rows(name: str) -> Schema:
    return {"type": "array", "minItems": 1, "maxItems": MOST_ROWS, "items": _ref(name)}


def _content(schema: Schema) -> Schema:
    return {"content": {"application/json": {"schema": schema}}}


def _integer(low: int, high: int = LARGEST) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


def _number(low: float, high: float) -> Schema:
    bounds = {"minimum": low, "maximum": high}
    return {"type": "number", **{k: v for k, v in bounds.items() if math.isfinite(v)}}


def _numbers(shape: tuple[int, ...], each: Schema) -> Schema:
    """Return the schema of an array of numbers of a shape, as nested lists."""
    for size in reversed(shape):
        each = {"type": "array", "minItems": size, "maxItems": size, "items": each}
    return each


def _name(bodies: Bodies) -> Schema:
    """Return the schema of one action."""
    if bodies.actions is not None:
        return {"enum": list(bodies.actions)}
    return _integer(0, bodies.n_actions - 1)


def _customer(bodies: Bodies) -> Schema:
    """Return the schema of a row of ``/decide``."""
    info = bodies.info
    shape = kind_of(info.kind).feature_shape(info)
    features = _numbers(shape, _number(-MOST, MOST))
    if bodies.features is not None:
        features = {
            "type": "object",
            "required": list(bodies.features),
            "additionalProperties": False,
            "properties": {name: _number(*ends) for name, ends in bodies.features.items()},
        }
    user = _integer(0)
    if bodies.people:
        user = {"anyOf": [{"type": "string", "minLength": 1, "maxLength": LONGEST_ID}, user]}
    few = {"type": "array", "uniqueItems": True, "maxItems": max(0, bodies.n_actions - 1)}
    schemas = {
        "features": features,
        "user": user,
        "excluded": {**few, "items": _name(bodies)} if bodies.n_actions else {},
        "revenues": _numbers((info.n_items or 0,), _number(*info.reward_range)),
        "arms": {
            **_numbers((info.n_candidates or 0,), _integer(0, (info.n_arms or 1) - 1)),
            "uniqueItems": True,
        },
    }
    return {
        "type": "object",
        "required": [name for name, required in bodies.fields.items() if required],
        "additionalProperties": False,
        "properties": {name: schemas[name] for name in bodies.fields},
    }


def _action(bodies: Bodies) -> Schema:
    return kind_of(bodies.info.kind).action_schema(bodies.info, _name(bodies))


def _response(bodies: Bodies) -> Schema:
    response = kind_of(bodies.info.kind).response
    if response == "choice":
        return {"anyOf": [_name(bodies), {"type": "null"}]}
    if response == "demand":
        logistic = bodies.info.demand == "logistic"
        return {"enum": [0, 1, True, False]} if logistic else {"type": "number"}
    if response is None:
        return _number(*bodies.info.reward_range)
    return {"type": "array", "minItems": 2, "maxItems": 2}
