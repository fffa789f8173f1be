"""HTTP for a decision service: requests, answers, metrics.

One event loop makes every call of the service, so requests are decided one after the other. An
answer waits until its event is on the disk; requests at the same time share one write.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, Any

from dpb_gym.errors import CheckpointError, DataError, HorizonExceeded, optional_module
from dpb_gym.service.bodies import BodyError, FieldError
from dpb_gym.service.decision_service import DecisionService, ServiceError
from dpb_gym.service.openapi import document

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response

MOST_BYTES = 1 << 20
TICK_SECONDS = 1.0
BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)
GAUGES = {
    "decisions": "Decisions of the session so far.",
    "pending": "Decisions without a response.",
    "horizon": "Decisions that the session was planned for; 0: no horizon.",
    "journal_bytes": "Size of the journal since the last snapshot.",
    "snapshot_seconds": "Age of the last snapshot.",
}


class _Answers:
    """Answers of one service.

    Args:
        service: The service.
        token: What clients send as bearer token; None: nothing.
        stop: Called once the service has failed.
    """

    def __init__(
        self, service: DecisionService, token: str | None, stop: Callable[[], None]
    ) -> None:
        prometheus: Any = optional_module("prometheus_client", "dpb serve", "serve")
        self.service = service
        self._token = None if token is None else f"Bearer {token}".encode()
        self._stop = stop
        self._document = document(service.bodies, token=token is not None)
        self._syncing: asyncio.Future[None] | None = None
        self.registry = prometheus.CollectorRegistry()
        self._requests = prometheus.Counter(
            "dpb_requests",
            "Requests by path and status.",
            ("path", "status"),
            registry=self.registry,
        )
        self._seconds = prometheus.Histogram(
            "dpb_request_seconds",
            "Time from the body to the answer.",
            ("path",),
            buckets=BUCKETS,
            registry=self.registry,
        )
        for name, text in GAUGES.items():
            gauge = prometheus.Gauge(f"dpb_{name}", text, registry=self.registry)
            gauge.set_function(functools.partial(self._number, name))
        self._text = prometheus.generate_latest
        self._type = "text/plain; version=0.0.4; charset=utf-8"

    def _number(self, name: str) -> float:
        return float(self.service.status()[name] or 0)

    async def decide(self, request: Request) -> Response:
        """Answer ``POST /decide``."""
        return await self._answer(request, self._decide)

    async def observe(self, request: Request) -> Response:
        """Answer ``POST /observe``."""
        return await self._answer(request, self._observe)

    def _decide(self, body: Any) -> Any:
        decisions = self.service.decide(body)
        return decisions if isinstance(body, list) else decisions[0]

    def _observe(self, body: Any) -> None:
        self.service.observe(body)

    async def _answer(self, request: Request, work: Callable[[Any], Any]) -> Response:
        start = time.perf_counter()
        path = request.url.path
        status, value = await self._worked(request, work)
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(time.perf_counter() - start)
        return _json(value, status)

    async def _worked(self, request: Request, work: Callable[[Any], Any]) -> tuple[int, Any]:
        """Return status and JSON value of an answer."""
        from starlette.requests import ClientDisconnect

        if not self._allowed(request):
            return 401, _errors("a token is needed: Authorization: Bearer TOKEN")
        try:
            content = await _content(request)
            if content is None:
                return 413, _errors(f"a body has at most {MOST_BYTES:,} bytes")
            answer = work(_parsed(content))
            await self._durable()
        except ClientDisconnect:
            return 400, _errors("the connection ended before the body")
        except BodyError as error:
            return 400, {"errors": [each._asdict() for each in error.errors]}
        except HorizonExceeded as error:
            return 409, _errors(str(error))
        except ServiceError as error:
            return 500, _errors(str(error))
        except (CheckpointError, DataError) as error:
            self._stop()
            return 503, _errors(str(error))
        return (204, None) if answer is None else (200, answer)

    async def _durable(self) -> None:
        """Wait until what was decided is on the disk."""
        while not self.service.synced:
            if self._syncing is None:
                self._syncing = asyncio.ensure_future(asyncio.to_thread(self.service.sync))
            running = self._syncing
            try:
                await asyncio.shield(running)
            finally:
                if self._syncing is running and running.done():
                    self._syncing = None

    def _allowed(self, request: Request) -> bool:
        if self._token is None:
            return True
        given = request.headers.get("authorization", "").encode("utf-8", "replace")
        return hmac.compare_digest(given, self._token)

    async def health(self, request: Request) -> Response:
        """Answer ``GET /health``."""
        status = self.service.status()
        return _json(status, 200 if status["status"] == "ok" else 503)

    async def metrics(self, request: Request) -> Response:
        """Answer ``GET /metrics``."""
        from starlette.responses import Response

        if not self._allowed(request):
            return _json(_errors("a token is needed: Authorization: Bearer TOKEN"), 401)
        return Response(self._text(self.registry), media_type=self._type)

    async def openapi(self, request: Request) -> Response:
        """Answer ``GET /openapi.json``."""
        return _json(self._document, 200)

    async def save_regularly(self) -> None:
        """Write snapshots when they are due."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            try:
                self.service.save_if_due()
            except CheckpointError:
                self._stop()
                return


def application(
    service: DecisionService,
    token: str | None = None,
    stop: Callable[[], None] = lambda: None,
) -> Starlette:
    """Return the ASGI application of a service, which is closed with it.

    Args:
        service: The service, which this process owns.
        token: What clients send as bearer token; None: nothing.
        stop: Called once the service has failed, to end the program.

    Raises:
        MissingExtraError: If the extra ``[serve]`` is not installed.
    """
    optional_module("starlette", "dpb serve", "serve")
    from starlette.applications import Starlette
    from starlette.exceptions import HTTPException
    from starlette.routing import Route

    answers = _Answers(service, token, stop)

    @contextlib.asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        saving = asyncio.ensure_future(answers.save_regularly())
        try:
            yield
        finally:
            saving.cancel()
            service.close()

    async def refuse(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return _json(_errors(error.detail), error.status_code, error.headers)

    async def fail(request: Request, error: Exception) -> Response:
        return _json(_errors("unexpected error, the log says which"), 500)

    handlers: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
        HTTPException: refuse,
        Exception: fail,
    }
    routes = [
        Route("/decide", answers.decide, methods=["POST"]),
        Route("/observe", answers.observe, methods=["POST"]),
        Route("/health", answers.health, methods=["GET"]),
        Route("/metrics", answers.metrics, methods=["GET"]),
        Route("/openapi.json", answers.openapi, methods=["GET"]),
    ]
    return Starlette(routes=routes, lifespan=life, exception_handlers=handlers)


async def _content(request: Request) -> bytes | None:
    """Return a body, None if it is too large."""
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > MOST_BYTES:
            return None
    return content


def _parsed(content: bytes) -> Any:
    """Return a body's JSON value.

    Raises:
        BodyError: If it is none.
    """
    if not content.strip():
        raise BodyError([FieldError(None, None, "the body is empty; it must be JSON")])
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BodyError([FieldError(None, None, f"the body is no JSON: {error}")]) from None


def _errors(message: str) -> dict[str, Any]:
    return {"errors": [{"row": None, "field": None, "message": message}]}


def _json(value: Any, status: int, headers: Any = None) -> Response:
    from starlette.responses import JSONResponse, Response

    if status == 204:
        return Response(status_code=status)
    given = dict(headers or {})
    if status == 401:
        given["WWW-Authenticate"] = "Bearer"
    return JSONResponse(value, status, given)
