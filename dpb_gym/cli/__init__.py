"""The command line: ``dpb``.

Only this module is imported before the arguments are read.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import NoReturn

from dpb_gym.program_start import INTERRUPTED, raise_on_interruption

BAD_INPUT = 2
FAILURE = 1
RETIRED = {
    "--rho": "--budget rho={}",
    "--epsilon": "--budget eps={},delta=1e-5",
    "--delta": "--budget eps=VALUE,delta={}",
}


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the ``dpb`` program; see `run`."""
    _open_streams()
    gc.set_threshold(50_000, 20, 20)  # most objects live until the end
    # Arrow's default allocator keeps 45 MB of what a large board frees.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    raise_on_interruption()
    raise SystemExit(run(arguments))


def _open_streams() -> None:
    """Replace closed streams by the null device, and escape letters that the locale lacks."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        if hasattr(getattr(sys, name), "reconfigure"):
            getattr(sys, name).reconfigure(errors="backslashreplace")


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Errors are one line on the standard error; ``--debug`` adds the traceback.

    Args:
        arguments: Arguments after ``dpb``; those of the process by default.

    Returns:
        Exit status: 0; 1 if something failed; 2 for bad input; 3 if a table can be read in several
        ways, with the arguments that decide; 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"] or ["--help"]
    if words[0] == "help":
        words = [*words[1:], "--help"]
    with warnings.catch_warnings():
        if not debug:
            warnings.showwarning = lambda message, *_, **__: _print_error("warning", message)
        try:
            from typer.main import get_command

            from dpb_gym.cli.app import app

            status = get_command(app).main(words, prog_name="dpb", standalone_mode=False)
            sys.stdout.flush()
            # Typer returns this status after Ctrl-C, click raises.
            return _interrupted(words) if status == INTERRUPTED else int(status or 0)
        except BaseException as error:
            if debug and not isinstance(error, SystemExit):
                import traceback

                traceback.print_exc()
            return _status(error, words)


def _status(error: BaseException, words: list[str]) -> int:
    from dpb_gym.errors import DPBError, QuestionError

    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else FAILURE
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        return _interrupted(words)
    try:
        sys.stdout.flush()
    except OSError:  # full disk or closed pipe (dpb list agents | head); prevents a second error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return FAILURE
    status = FAILURE
    text = str(error)
    if hasattr(error, "format_message"):  # of click, or of typer's copy of it
        status = BAD_INPUT
        option = getattr(error, "option_name", None)
        command = getattr(getattr(error, "ctx", None), "command_path", "dpb")
        text = f"{error.format_message()} (see: {command} --help)"
        if option in RETIRED:
            given = dict(word.partition("=")[::2] for word in words)
            value = given.get(option) or dict(pairwise(words)).get(option) or "VALUE"
            text = f"{option} does not exist, use {RETIRED[option].format(value)}"
    elif isinstance(error, QuestionError):
        from dpb_gym.cli.options import QUESTIONS
        from dpb_gym.cli.table_questions import refusal

        status = QUESTIONS
        text = refusal(error.questions, words)
    elif isinstance(error, DPBError):
        status = FAILURE if isinstance(error, RuntimeError) else BAD_INPUT
    elif not isinstance(error, OSError):
        text = f"unexpected {type(error).__name__}: {error} (--debug shows where)"
    _print_error("error", text)
    return status


def _interrupted(words: list[str]) -> int:
    resume = ""
    if words[0] in ("run", "tune", "reproduce"):
        from dpb_gym.suites.provenance import shell_word

        resume = "; resume with: dpb " + " ".join(map(shell_word, words))
    print(f"dpb: interrupted{resume}", file=sys.stderr)
    return INTERRUPTED


def _print_error(kind: str, message: object) -> None:
    print(f"dpb: {kind}: {' '.join(str(message).split())}", file=sys.stderr)
