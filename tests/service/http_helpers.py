"""Configurations of services, and calls of their applications without a network."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import yaml

from dpb_gym.service import DecisionService, ServiceSettings

NEWS = {
    "agent": "one-pass-linear",
    "budget": "rho=1",
    "noise": "seeded",
    "seed": 4,
    "state_dir": "state",
    "problem": {
        "kind": "recommendation",
        "horizon": 500,
        "reward_range": [0, 1],
        "actions": ["sport", "politics", "music"],
        "features": {"hour": [0, 24], "age": [0, 120]},
    },
}
PRICES = {
    "agent": "one-pass-pricing",
    "budget": "rho=1",
    "noise": "seeded",
    "seed": 4,
    "state_dir": "state",
    "problem": {
        "kind": "pricing",
        "horizon": 500,
        "reward_range": [0, 1],
        "demand": "logistic",
        "zeta": 4,
        "features": {"age": [18, 98], "loyal": [0, 1]},
    },
}
SLATES = {
    "agent": "one-pass-mnl",
    "budget": "rho=1",
    "noise": "seeded",
    "seed": 4,
    "state_dir": "state",
    "problem": {
        "kind": "assortment",
        "horizon": 500,
        "reward_range": [0, 1],
        "actions": ["tea", "milk", "rice", "salt"],
        "capacity": 2,
        "dim": 2,
        "equal_revenues": False,
    },
}


def configured(at: Path, base: dict[str, Any] = NEWS, **changes: Any) -> ServiceSettings:
    """Write a configuration and return its settings."""
    path = at / "shop.yaml"
    path.write_text(yaml.safe_dump({**base, **changes}), encoding="utf-8")
    return ServiceSettings.read(path)


def started(
    at: Path, base: dict[str, Any] = NEWS, *, session: Any = None, **changes: Any
) -> DecisionService:
    """Return a service that compiles no kernels beforehand."""
    return DecisionService(
        configured(at, base, **changes), session=session, warm=False, log=lambda text: None
    )


def call(
    app: Any, method: str, path: str, body: Any = b"", token: str | None = None
) -> tuple[int, dict[str, str], bytes]:
    """Call an ASGI application; return status, headers and content.

    Args:
        app: The application.
        method: HTTP method.
        path: Path.
        body: Bytes, or a value that is sent as JSON.
        token: Bearer token.
    """
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "server": ("127.0.0.1", 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    response_headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], response_headers, b"".join(each.get("body", b"") for each in sent[1:])
