"""The command ``dpb serve``."""

from __future__ import annotations

import gc
import socket
from typing import Any

from typer import Argument, Exit, Option

from dpb_gym.cli import options
from dpb_gym.errors import DataError, ParameterError, optional_module


def serve(
    config: str = Argument(metavar="CONFIG.yaml", help="See docs/service.md."),
    session: str | None = Option(
        None, metavar="FILE", help="Begin with a session that Session.save wrote."
    ),
    host: str | None = Option(None, help="Address, instead of the configuration's."),
    port: int | None = Option(None, min=0, max=65535, help="Port; 0: any free one."),
    workers: int = Option(1, min=1, hidden=True),
) -> None:
    """Serve a session by HTTP: decide, observe, health, metrics.

    Example: dpb serve shop.yaml
    """
    if workers != 1:
        raise ParameterError(
            f"--workers {workers}: one process owns the session, as two would spend its budget "
            "twice. Requests at the same time share its writes; see docs/service.md"
        )
    uvicorn: Any = optional_module("uvicorn", "dpb serve", "serve")
    from dpb_gym.service import DecisionService, ServiceSettings
    from dpb_gym.service.application import application

    settings = ServiceSettings.read(config)
    changes = {"host": host, "port": port}
    settings = settings.over({k: v for k, v in changes.items() if v is not None})
    token = settings.token()
    listening = _socket(settings.host, settings.port)
    service = DecisionService(settings, session=session, log=options.log)
    server: Any = None

    def stop() -> None:
        server.should_exit = True

    app = application(service, token, stop)
    server = uvicorn.Server(
        uvicorn.Config(app, lifespan="on", log_level="warning", access_log=False)
    )
    name, number = listening.getsockname()[:2]
    shown = f"[{name}]" if ":" in name else name
    options.note(f"serving {settings.agent} at http://{shown}:{number}, {service.guarantee}")
    gc.collect()
    gc.freeze()  # collections during requests skip the objects of the start
    server.run(sockets=[listening])
    if service.failed is not None:
        raise Exit(1)


def _socket(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        DataError: If the address is in use or none of this machine.
    """
    # asyncio sends short answers at once only if the protocol is named
    listening = socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except OSError as error:
        listening.close()
        raise DataError(f"cannot listen at {host}, port {port}: {error.strerror}") from error
    return listening
