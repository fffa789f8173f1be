"""HTTP: tokens, errors, metrics, and the OpenAPI document against random requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from dpb_gym.service import DecisionService
from dpb_gym.service.application import MOST_BYTES, application

from .http_helpers import NEWS, PRICES, SLATES, call, started

pytest.importorskip("starlette", reason="needs the extra [serve]")
prometheus = pytest.importorskip("prometheus_client", reason="needs the extra [serve]")
TOKEN = "0123456789abcdef-token"
ROW = {"features": {"hour": 6, "age": 55}}


@pytest.fixture
def service(tmp_path: Any) -> Iterator[DecisionService]:
    running = started(tmp_path)
    yield running
    running.close()


def answered(app: Any, path: str, body: Any, **options: Any) -> tuple[int, Any]:
    status, _, content = call(app, "POST", path, body, **options)
    return status, json.loads(content) if content else None


def test_decide_and_observe(service: DecisionService) -> None:
    app = application(service)
    status, answer = answered(app, "/decide", ROW)
    assert status == 200 and answer["decision"] == 1
    assert answer["action"] in NEWS["problem"]["actions"]
    assert answered(app, "/observe", {"decision": 1, "response": 1}) == (204, None)
    status, answer = answered(app, "/decide", [ROW, {**ROW, "excluded": ["sport", "music"]}])
    assert status == 200 and [row["decision"] for row in answer] == [2, 3]
    assert answer[1]["action"] == "politics"
    responses = [{"decision": n, "response": 0.5} for n in (3, 2)]
    assert answered(app, "/observe", responses) == (204, None)
    assert service.synced and service.session.pending == ()


@pytest.mark.parametrize(
    ("body", "row", "field"),
    [
        (b"", None, None),
        (b"  ", None, None),
        (b"{", None, None),
        (b"\xff\xfe", None, None),
        (b"[" * 100_000, None, None),
        (b'{"features": {"hour": ' + b"9" * 5000 + b', "age": 1}}', None, None),
        (b"null", 0, None),
        (b"[]", None, None),
        (b"{}", 0, "features"),
        (b'{"features": {"hour": 1, "age": "young"}}', 0, "features.age"),
        (b'{"features": {"hour": 1, "age": NaN}}', 0, "features.age"),
        (b'{"features": {"hour": 1, "age": 1e999}}', 0, "features.age"),
        (b'{"features": {"hour": 1}}', 0, "features.age"),
        (b'{"features": {"hour": 1, "age": 2}, "excluded": ["chess"]}', 0, "excluded.0"),
        (b'{"features": {"hour": 1, "age": 2}, "user": "ana"}', 0, "user"),
    ],
)
def test_bad_bodies_of_decide(
    service: DecisionService, body: bytes, row: int | None, field: str | None
) -> None:
    status, answer = answered(application(service), "/decide", body)
    assert status == 400
    assert [(error["row"], error["field"]) for error in answer["errors"]] == [(row, field)]
    assert service.session.decisions == 0


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"", None),
        (b"{}", "decision"),
        (b'{"decision": 1, "response": NaN}', "response"),
        (b'{"decision": 1, "response": "yes"}', "response"),
        (b'{"decision": 1, "response": 1.5}', "response"),
        (b'{"decision": 2, "response": 1}', "decision"),
        (b'{"decision": "x", "response": 1}', "decision"),
    ],
)
def test_bad_bodies_of_observe(service: DecisionService, body: bytes, field: str | None) -> None:
    service.decide(ROW)
    status, answer = answered(application(service), "/observe", body)
    assert status == 400 and answer["errors"][0]["field"] == field
    assert service.session.pending == (1,)


def test_a_token_is_needed(service: DecisionService) -> None:
    app = application(service, TOKEN)
    for path, body in (("/decide", ROW), ("/observe", {}), ("/decide", b"")):
        for token in (None, "", TOKEN[:-1], TOKEN + "x", "töken"):
            status, headers, content = call(app, "POST", path, body, token)
            assert status == 401 and headers["www-authenticate"] == "Bearer"
            assert json.loads(content)["errors"][0]["row"] is None
    assert call(app, "GET", "/metrics")[0] == 401
    assert call(app, "GET", "/health")[0] == 200
    assert service.session.decisions == 0
    assert answered(app, "/decide", ROW, token=TOKEN)[0] == 200
    assert call(app, "GET", "/metrics", token=TOKEN)[0] == 200


def test_unknown_paths_methods_and_large_bodies(service: DecisionService) -> None:
    app = application(service)
    assert answered(app, "/activate", ROW)[0] == 404
    status, headers, content = call(app, "GET", "/decide")
    assert status == 405 and headers["allow"] == "POST" and json.loads(content)["errors"]
    status, answer = answered(app, "/decide", b" " * (MOST_BYTES + 1))
    assert status == 413 and "1,048,576 bytes" in answer["errors"][0]["message"]


def test_the_horizon_is_a_conflict(tmp_path: Any) -> None:
    service = started(tmp_path, problem={**NEWS["problem"], "horizon": 1})
    app = application(service)
    assert answered(app, "/decide", ROW)[0] == 200
    status, answer = answered(app, "/decide", ROW)
    assert status == 409 and "planned for 1" in answer["errors"][0]["message"]
    service.close()


def test_an_error_of_the_agent_tells_nothing_of_others(
    service: DecisionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any, context: Any) -> Any:
        raise ValueError("customer 7 bought a ring")

    app = application(service)
    with monkeypatch.context() as patched:
        patched.setattr(type(service.session.agent), "act", fail)
        status, answer = answered(app, "/decide", ROW)
    assert status == 500 and "ring" not in json.dumps(answer)
    assert answered(app, "/decide", ROW)[0] == 200


def test_a_failed_service_stops_the_program(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    service = started(tmp_path)
    stops: list[int] = []
    app = application(service, None, lambda: stops.append(1))

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("dpb_gym.service.journal.os.fdatasync", full)
        assert answered(app, "/decide", ROW)[0] == 503
    assert stops
    status, _, content = call(app, "GET", "/health")
    assert status == 503 and json.loads(content)["status"] == "failed"
    assert answered(app, "/decide", ROW)[0] == 503
    service.close()


def test_metrics_are_prometheus_text(service: DecisionService) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    app = application(service)
    answered(app, "/decide", ROW)
    answered(app, "/decide", ROW)
    answered(app, "/decide", b"{}")
    answered(app, "/observe", {"decision": 2, "response": 1})
    status, headers, content = call(app, "GET", "/metrics")
    assert status == 200 and headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(content.decode())
        for sample in family.samples
    }
    assert samples[("dpb_decisions",)] == 2 and samples[("dpb_pending",)] == 1
    assert samples[("dpb_horizon",)] == 500 and samples[("dpb_journal_bytes",)] > 0
    assert samples[("dpb_requests_total", "/decide", "200")] == 2
    assert samples[("dpb_requests_total", "/decide", "400")] == 1
    assert samples[("dpb_request_seconds_count", "/decide")] == 3


def test_answers_at_the_same_time_share_writes(
    service: DecisionService, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpb_gym.service import journal

    writes: list[int] = []
    real = journal.os.fdatasync

    def counted(file: int) -> None:
        writes.append(file)
        real(file)

    monkeypatch.setattr("dpb_gym.service.journal.os.fdatasync", counted)
    app = application(service)
    statuses: list[int] = []

    async def one() -> None:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": json.dumps(ROW).encode(), "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {"type": "http", "method": "POST", "path": "/decide", "headers": [],
                 "query_string": b""}  # fmt: skip
        await app(scope, receive, send)
        statuses.append(sent[0]["status"])

    async def all_of_them() -> None:
        await asyncio.gather(*(one() for _ in range(40)))

    asyncio.run(all_of_them())
    assert statuses == [200] * 40 and service.session.decisions == 40
    assert 1 <= len(writes) < 40


def test_a_client_that_goes_away_is_no_error_of_the_program(service: DecisionService) -> None:
    app = application(service)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": "/decide", "headers": [],
             "query_string": b""}  # fmt: skip
    asyncio.run(app(scope, receive, send))
    assert sent[0]["status"] == 400 and service.session.decisions == 0


def test_the_lifespan_saves_and_frees_the_folder(tmp_path: Any) -> None:
    service = started(tmp_path)
    app = application(service)

    async def live() -> None:
        async with app.router.lifespan_context(app):
            service.decide(ROW)

    asyncio.run(live())
    again = started(tmp_path)
    assert again.session.decisions == 1
    again.close()


# schemathesis

ROWS = {"news": NEWS, "prices": PRICES, "slates": SLATES}


def sent(cases: Any, **options: Any) -> set[int]:
    """Send random requests and check the answers; return their statuses."""
    statuses = set()

    @settings(max_examples=30, suppress_health_check=list(HealthCheck), database=None)
    @given(case=cases)
    def check(case: Any) -> None:
        statuses.add(case.call_and_validate(**options).status_code)

    check()
    return statuses


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["POSITIVE", "NEGATIVE"])
@pytest.mark.parametrize("name", ROWS)
def test_random_requests_get_documented_answers(tmp_path: Any, name: str, mode: str) -> None:
    """Answers have documented statuses and forms; wrong bodies are rejected, right ones decided.

    All checks of Schemathesis are made, such as that a request without the token is rejected.
    """
    schemathesis = pytest.importorskip("schemathesis", reason="a requirement of the tests")
    from schemathesis.specs.openapi.checks import positive_data_acceptance

    problem = {**ROWS[name]["problem"], "horizon": 100_000}
    service = started(tmp_path, ROWS[name], problem=problem)
    app = application(service, TOKEN)
    headers = {"Authorization": f"Bearer {TOKEN}"}
    schema = schemathesis.openapi.from_asgi("/openapi.json", app)
    statuses: dict[str, set[int]] = {}
    for parsed in schema.get_all_operations():
        operation = parsed.ok()
        if mode == "NEGATIVE" and operation.method == "get":
            continue  # which have no parameters
        # a right body of /observe can have a decision that was never made
        unknown = [positive_data_acceptance] if operation.path == "/observe" else []
        cases = operation.as_strategy(generation_mode=schemathesis.GenerationMode[mode])
        statuses[operation.path] = sent(cases, headers=headers, excluded_checks=unknown)
    assert 400 in statuses["/observe"]
    assert 200 in statuses["/decide"] if mode == "POSITIVE" else 400 in statuses["/decide"]
    service.close()
