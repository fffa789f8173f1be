"""Questions about a table on the command line."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dpb_gym.cli import options
from dpb_gym.errors import DPBError, QuestionError

if TYPE_CHECKING:
    from dpb_data import Question, Reading


def ask(reading: Reading, words: Sequence[str]) -> Reading:
    """Ask the open questions on a terminal until there are none, and return the answered reading.

    Without a terminal the reading is returned as it is.

    Args:
        reading: The reading.
        words: The command, to print how to give the same answers without questions.
    """
    if not (reading.questions and sys.stdin.isatty() and sys.stderr.isatty()):
        return reading
    given: list[str] = []
    while reading.questions:
        chosen = _choice(reading.questions[0])
        pairs = [*zip(chosen[::2], chosen[1::2])]
        try:
            settings = options.read_settings([text for name, text in pairs if name == "--set"])
            problem = next((text for name, text in pairs if name == "--problem"), None)
            reading = reading.answer(problem, **settings)
        except DPBError as error:  # what was typed does not fit: ask again
            options.note(str(error))
            continue
        given += chosen
    options.note(f"the same without questions: {shlex.join([*words, *given])}")
    return reading


def _choice(question: Question) -> list[str]:
    """Ask one question and return the words that answer it, such as ``--set offered=50``."""
    text, *answers = question.lines()
    numbered = [f"  {k}. {line.strip()}" for k, line in enumerate(answers, start=1)]
    print("\n".join([text, *numbered]), file=sys.stderr)
    while True:
        print("Number of an answer, or NAME=VALUE: ", end="", file=sys.stderr, flush=True)
        line = sys.stdin.readline()
        if not line:  # the input ended
            raise QuestionError(question)
        typed = line.strip()
        if typed.isdigit() and 1 <= int(typed) <= len(answers):
            answer = question.answers[int(typed) - 1]
            if not answer.pattern:
                return answer.options()
            options.note(f"type {answer} with the value in place of the capital letters")
        elif typed.startswith("problem="):
            return ["--problem", typed.partition("=")[2].strip()]
        elif "=" in typed:
            return ["--set", typed]


def dry_run(reading: Reading) -> str:
    """Return what a table is read as, and the questions with the options that answer them."""
    return "\n".join([*reading.lines(), *_lines(reading.questions)])


def fields(reading: Reading) -> dict[str, Any]:
    """Return what a table is read as, and its questions, for JSON."""
    questions = [
        {
            "topic": question.topic,
            "text": question.text,
            "answers": [{"options": a.options(), "means": a.means} for a in question.answers],
        }
        for question in reading.questions
    ]
    names = ("problem", "layout", "columns", "settings", "roles", "repairs")
    return {name: getattr(reading, name) for name in names} | {"questions": questions}


def refusal(questions: Sequence[Question], words: Sequence[str]) -> str:
    """Print open questions with the options that answer them, and return the message of the error.

    Args:
        questions: The questions.
        words: The words of the command.
    """
    options.log("\n".join(_lines(questions)))
    number = len(questions)
    added = [word for question in questions for word in question.answers[0].options()]
    return (
        f"{number} {'question is' if number == 1 else 'questions are'} open. Add an option for "
        f"each, for instance: {shlex.join(['dpb', *words, *added])}"
    )


def _lines(questions: Sequence[Question]) -> list[str]:
    lines = []
    for k, question in enumerate(questions, start=1):
        text, *answers = question.lines()
        lines += [f"question {k}: {text}", *answers]
    return lines
