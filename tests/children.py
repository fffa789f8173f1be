"""What tests of forked processes share."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable
from typing import Any

from dpb_gym.errors import AgentError


def in_child(work: Callable[[], Any], fork: Callable[[], int] | None = None) -> Any:
    """Return what a function returns in a forked process, as JSON."""
    reader, writer = os.pipe()
    if not (fork or os.fork)():
        try:
            os.write(writer, json.dumps(work()).encode())
        except BaseException:
            os.write(writer, json.dumps(traceback.format_exc()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        answer = json.loads(file.read())
    os.wait()
    return answer


def error_of(use: Callable[[], Any]) -> str:
    """Return the text of the AgentError that a call raises, or what it did instead."""
    try:
        return f"no error: {use()!r}"
    except AgentError as error:
        return str(error)
