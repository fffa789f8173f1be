"""Docstrings as `dpb show` and the documentation print them."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpb_gym import docstrings


def parsed(text: str) -> docstrings.Docstring:
    def thing() -> None: ...

    thing.__doc__ = text
    return docstrings.parse(thing)


FULL = """Return one line
    and its continuation.

    A second paragraph, with code::

        Args: no section

    A third.

    Note:
        Args of others.

    Args:
        rate: First.
        *names (str): Many names: a list
            of them.

            - of any kind
        **options: See `Other`.

    Attributes:
        total: Sum.

    Returns:
        A number: the first.

    Unknown:
        rate: Not this one.
    """


def test_every_part_of_a_docstring() -> None:
    doc = parsed(FULL)
    assert doc.summary == "Return one line\nand its continuation."
    assert doc.body == "A second paragraph, with code:\n\n    Args: no section\n\nA third."
    assert doc.arguments == {
        "rate": "First.",
        "names": "Many names: a list of them. - of any kind",
        "options": "See `Other`.",
    }
    assert doc.attributes == {"total": "Sum."}


def test_text_after_the_arguments_belongs_to_none() -> None:
    doc = parsed("Sum.\n\nArgs:\n    a: One\n        two.\n\n    b: Three.\n\nMore: text.")
    assert doc.arguments == {"a": "One two.", "b": "Three."}


@pytest.mark.parametrize(
    "text",
    [
        "One.\n\nTwo.\n\nArgs:\n    none at all",
        "One.\n\nTwo.\n\nArgs:\n",
        "One.\n\nTwo.\n\nAttributes:\n\n   \n\nReturns:\n    x",
        "One.\n\nTwo.\n\nRaises:\n    without a colon",
    ],
)
def test_a_section_without_entries_leaves_summary_and_body(text: str) -> None:
    doc = parsed(text)
    assert (doc.summary, doc.body, doc.arguments, doc.attributes) == ("One.", "Two.", {}, {})


def test_no_docstring() -> None:
    assert parsed("") == docstrings.Docstring()


LINES = st.sampled_from(
    ["Args:", "Attributes:", "Raises:", "a: b", "    c: d", "        e", "f(", ""]
)


@given(st.lists(LINES | st.text(max_size=8), max_size=8).map("\n".join))
def test_any_text_is_parsed(text: str) -> None:
    assert isinstance(parsed(text), docstrings.Docstring)


WORD = st.from_regex(r"[a-z]{1,8}", fullmatch=True)


@pytest.mark.slow
@given(st.dictionaries(WORD, st.lists(WORD, min_size=1, max_size=6)), st.integers(30, 50))
def test_descriptions_come_back_from_wrapped_lines(
    entries: dict[str, list[str]], width: int
) -> None:
    lines = ["Sum.", "", *(["Args:"] if entries else [])]
    for name, words in entries.items():
        lines += textwrap.wrap(
            f"{name}: {' '.join(words)}",
            width,
            initial_indent="    ",
            subsequent_indent="        ",
        )
    assert parsed("\n".join(lines)).arguments == {k: " ".join(v) for k, v in entries.items()}


class Source:
    """Source of numbers.

    Args:
        seed: First number.

    Attributes:
        step: Difference of two numbers.
    """


class Base:
    """Base.

    Args:
        seed: See `Source`.
        scale: Factor.
    """

    def __init__(self, seed: int = 0, scale: float = 1.0) -> None: ...


class Derived(Base):
    """Derived numbers of a `Source`.

    Args:
        step: See `Source`.
    """

    def __init__(self, seed: int = 0, scale: float = 1.0, step: int = 1, more: int = 0) -> None: ...


def test_parameters_take_descriptions_of_bases_and_of_other_objects() -> None:
    assert docstrings.parameters(Derived) == {
        "seed": "First number.",
        "scale": "Factor.",
        "step": "Difference of two numbers.",
        "more": "",
    }
    assert docstrings.mentioned(Derived) == ["`Source`: Source of numbers."]
