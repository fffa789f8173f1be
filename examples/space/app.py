"""A leaderboard that visitors read and to which they submit archives of `dpb submit`.

``uvicorn app:app`` serves the result directory that DPB_BOARD names. An archive is imported as by
`dpb import`: completely or not at all. Its rows say "stated by" their sender until a maintainer
runs `dpb verify` on the directory. No submitted code is executed here.
"""

import os
import tempfile
import threading
from pathlib import Path

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from dpb_gym import Result
from dpb_gym.errors import DPBError
from dpb_gym.exchange.importing import import_submission
from dpb_gym.report.page import render

BOARD = os.environ.get("DPB_BOARD", "board")
LARGEST = int(os.environ.get("DPB_LARGEST_ARCHIVE", str(64 << 20)))
FORM = Path(__file__).with_name("submit.html").read_text(encoding="utf-8")

page = render(Result.load(BOARD).to_leaderboard())
importing = threading.Lock()


def add(archive: str) -> str:
    """Import an archive, draw the page again and return what was added."""
    global page
    with importing:
        merge = import_submission(archive, BOARD)
        page = render(Result.load(BOARD).to_leaderboard())
    return f"{merge.agent} by {merge.sender}: {merge.added} cells added, {merge.present} known"


async def show(request: Request) -> Response:
    return HTMLResponse(page)


async def form(request: Request) -> Response:
    return HTMLResponse(FORM)


async def submit(request: Request) -> Response:
    size = 0
    with tempfile.NamedTemporaryFile(suffix=".zip") as file:
        async for part in request.stream():
            size += len(part)
            if size > LARGEST:
                message = f"the archive is larger than {LARGEST} bytes; nothing was imported"
                return JSONResponse({"message": message}, 413)
            file.write(part)
        file.flush()
        try:
            return JSONResponse({"message": await run_in_threadpool(add, file.name)}, 201)
        except DPBError as error:
            message = str(error).replace(file.name, "the archive").replace(BOARD, "the board")
            return JSONResponse({"message": message}, 400)


app = Starlette(
    routes=[
        Route("/", show),
        Route("/submit", form),
        Route("/submissions", submit, methods=["POST"]),
    ]
)
