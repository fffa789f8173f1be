"""Questions that a table does not answer, and the arguments that answer them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

PLACEHOLDERS = ("COLUMN", "NUMBER")
"""Values of answers that stand for one to fill in."""


@dataclass(frozen=True)
class Answer:
    """A possible answer to a question.

    Attributes:
        settings: Arguments of `dpb_data.read` that give this answer.
        means: What the table then says.
        pattern: Whether a value stands for one to fill in, such as ``"COLUMN"``.
    """

    settings: Mapping[str, Any]
    means: str
    pattern: bool = False

    def __str__(self) -> str:
        values = {
            key: value if self.pattern and value in PLACEHOLDERS else repr(value)
            for key, value in self.settings.items()
        }
        return ", ".join(f"{key}={value}" for key, value in values.items())

    def options(self) -> list[str]:
        """Return the words to add to a command of ``dpb``."""
        words = []
        for key, value in self.settings.items():
            own = ["--problem", value] if key == "problem" else ["--set", f"{key}={_yaml(value)}"]
            words += own
        return words


@dataclass(frozen=True)
class Question:
    """A question about a table.

    Attributes:
        topic: What it is about: an argument of `dpb_data.read`.
        text: The question, with the row and the column that raise it.
        answers: Possible answers, at least one. The list need not be complete.
        column: The column that it is about, or empty.
    """

    topic: str
    text: str
    answers: tuple[Answer, ...]
    column: str = ""

    def __str__(self) -> str:
        listed = "; ".join(f"{answer} ({answer.means})" for answer in self.answers)
        return f"{self.text} Name one of: {listed}"

    def lines(self) -> list[str]:
        """Return the question and its answers as lines for a terminal."""
        options = [shlex.join(answer.options()) for answer in self.answers]
        width = min(44, max(map(len, options)))
        return [
            self.text,
            *(f"  {option:<{width}}  {a.means}" for option, a in zip(options, self.answers)),
        ]


def _yaml(value: Any) -> str:
    """Return a value as YAML that is read back as the same value."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_yaml(str(k))}: {_element(v)}" for k, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_element, value)) + "]"
    if not isinstance(value, str):
        return json.dumps(value)
    return value if _plain(value, value) else json.dumps(value, ensure_ascii=False)


def _element(value: Any) -> str:
    if not isinstance(value, str):
        return _yaml(value)
    return value if _plain(f"[{value}]", [value]) else json.dumps(value, ensure_ascii=False)


def _plain(text: str, value: Any) -> bool:
    try:
        float(str(value if isinstance(value, str) else value[0]))
        return False  # 1e5 is text in YAML 1.1 and a number in settings
    except ValueError:
        pass
    try:
        return bool(yaml.safe_load(text) == value)
    except yaml.YAMLError:
        return False
