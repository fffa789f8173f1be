"""Validation of user input, with messages that state what was given and what is allowed."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpb_gym.errors import DPBError, ParameterError, shown

FloatArray = NDArray[np.float64]
T = TypeVar("T")
LARGEST = 2**53


def integer(name: str, value: Any, low: int, high: int | None = None) -> int:
    """Return `value` as an int in ``low..high`` or raise `ParameterError`."""
    ok = isinstance(value, (int, np.integer)) and not isinstance(value, (bool, np.bool_))
    if not ok or value < low or value > (LARGEST if high is None else high):
        allowed = f"an integer >= {low}" if high is None else f"an integer in {low}..{high}"
        raise ParameterError(f"{name} must be {allowed}, got {shown(value)}")
    return int(value)


def real(
    name: str,
    value: Any,
    low: float = -math.inf,
    high: float = math.inf,
    *,
    open_low: bool = False,
    open_high: bool = False,
    error: type[DPBError] = ParameterError,
) -> float:
    """Return `value` as a finite float in the interval or raise `error`."""
    ok = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if ok:
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        ok = math.isfinite(number) and low <= number <= high
        ok = ok and not (open_low and number == low) and not (open_high and number == high)
        if ok:
            return number
    left = "(" if open_low else "["
    right = ")" if open_high else "]"
    allowed = f" in {left}{low}, {high}{right}"
    if math.isinf(high):
        allowed = "" if math.isinf(low) else f" {'>' if open_low else '>='} {low:g}"
    raise error(f"{name} must be a finite number{allowed}, got {shown(value)}")


# Control and surrogate characters, line ends, and formats: direction marks, zero-width characters.
_UNSEEN = frozenset(("Cc", "Cs", "Cf", "Zl", "Zp"))


def text(name: str, value: Any, *, empty: bool = False, lines: bool = False) -> str:
    """Return `value` if it is printable text that can be written to a file.

    Args:
        name: Name for the message.
        value: The text.
        empty: Whether it may be empty.
        lines: Whether it may contain line breaks and tabs.

    Raises:
        ParameterError: If it is no text, is empty, or contains invisible characters.
    """
    if not isinstance(value, str):
        raise ParameterError(f"{name} must be a string, got {type(value).__name__}")
    if not empty and not value.strip():
        raise ParameterError(f"{name} must not be empty")
    checked = value.replace("\n", "").replace("\t", "") if lines else value
    plain = checked.isascii() and checked.isprintable()
    if not plain and any(unicodedata.category(c) in _UNSEEN for c in checked):
        raise ParameterError(
            f"{name} must hold no control, surrogate, direction or zero-width characters, "
            f"got {value!r}"
        )
    return value


def slug(text: str) -> str:
    """Return text as lower-case letters, digits and single hyphens, for file and task names."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "x"


def optional(check: Callable[..., T], name: str, value: Any, *limits: Any, **more: Any) -> T | None:
    """Return None for None, else the result of a check of this module."""
    return None if value is None else check(name, value, *limits, **more)


def settle(owner: Any, name: str, check: Callable[..., Any], *limits: Any, **more: Any) -> None:
    """Replace a field of a frozen data class by what a check of this module returns.

    So the field is a built-in number: those of NumPy can overflow, and operators of a subclass can
    return anything.

    Raises:
        ParameterError: As the check.
    """
    object.__setattr__(owner, name, check(name, getattr(owner, name), *limits, **more))


def flag(name: str, value: Any) -> bool:
    """Return `value` as a bool or raise `ParameterError`."""
    if not isinstance(value, (bool, np.bool_)):
        raise ParameterError(f"{name} must be True or False, got {shown(value)}")
    return bool(value)


def choice(name: str, value: Any, options: Iterable[str]) -> str:
    """Return `value` if it is one of `options` or raise `ParameterError`."""
    allowed = tuple(options)
    if not isinstance(value, str) or value not in allowed:
        raise ParameterError(
            f"{name} must be one of {', '.join(map(repr, allowed))}, got {shown(value)}"
        )
    return value


def span(name: str, value: Any, *, finite: bool = True) -> tuple[float, float]:
    """Return a pair (lowest, highest) as floats.

    Raises:
        ParameterError: If they are not two increasing numbers, finite by default.
    """
    try:
        low, high = (float(end) for end in value)
    except Exception:  # a value that cannot be unpacked or converted
        raise ParameterError(f"{name} must be (lowest, highest), got {shown(value)}") from None
    if not low < high or (finite and not math.isfinite(high - low)):
        kind = "finite and increasing" if finite else "increasing"
        raise ParameterError(f"{name} must be {kind}, got {shown(value)}")
    return low, high


def array(
    name: str,
    value: Any,
    shape: tuple[int | None, ...],
    low: float = -math.inf,
    high: float = math.inf,
) -> FloatArray:
    """Return a finite float64 array of the given shape (None = any length)."""
    result = numbers(name, value)
    fits = result.shape == shape or (
        result.ndim == len(shape) and all(s in (None, n) for s, n in zip(shape, result.shape))
    )
    if not fits:
        wanted = "(" + ", ".join("any" if s is None else str(s) for s in shape) + ")"
        raise ParameterError(f"{name} must have shape {wanted}, got {result.shape}")
    # NaN fails both comparisons, and infinity one of them.
    if result.size and -math.inf < low <= result.min() and result.max() <= high < math.inf:
        return result
    if not np.isfinite(result).all():
        raise ParameterError(f"{name} must be finite, got NaN or infinity")
    bounded = low > -math.inf or high < math.inf
    if bounded and result.size and (result.min() < low or result.max() > high):
        raise ParameterError(
            f"{name} must lie in [{low}, {high}], got values in [{result.min()}, {result.max()}]"
        )
    return result


def numbers(name: str, value: Any) -> FloatArray:
    """Return `value` as a float64 array.

    Raises:
        ParameterError: If it contains anything but real numbers, such as text or masked values.
    """
    if type(value) is np.ndarray and value.dtype == np.float64:
        return value
    try:
        given = np.asanyarray(value)
    except Exception:  # rows of unequal length, or an object whose conversion fails
        raise ParameterError(f"{name} must be an array of numbers, got {shown(value)}") from None
    if isinstance(given, np.ma.MaskedArray) or given.dtype.kind not in "biuf":
        what = "a masked array" if isinstance(given, np.ma.MaskedArray) else str(given.dtype)
        raise ParameterError(f"{name} must be an array of numbers, got {what}: {shown(value)}")
    with np.errstate(over="ignore"):
        result: FloatArray = np.asarray(given, dtype=np.float64)
    return result


def variant(
    name: str, value: Any, options: Mapping[str, Mapping[str, float]]
) -> tuple[str, dict[str, Any]]:
    """Parse ``"kind"``, ``"kind,parameter=number,..."`` or a mapping with the key ``kind``.

    Args:
        name: Name for messages.
        value: The user's value.
        options: Parameters of each kind with their defaults.

    Returns:
        The kind, and its parameters, defaults included.
    """
    given = parse_variant(name, value) if isinstance(value, str) else value
    if not isinstance(given, Mapping):
        raise ParameterError(
            f"{name} must be one of {', '.join(map(repr, options))}, with parameters like "
            f"'kind,parameter=1', or a mapping with the key 'kind', got {shown(value)}"
        )
    kind = choice(name if given is not value else f"{name}: kind", given.get("kind"), options)
    own = {k: v for k, v in given.items() if k != "kind"}
    return kind, settings(f"{name} {kind!r}", own, options[kind])


def parse_variant(name: str, value: str) -> dict[str, Any]:
    """Parse ``"kind,parameter=number,..."`` to a mapping with the key ``kind``.

    Raises:
        ParameterError: If the text after the first comma has another form.
    """
    kind, *rest = value.split(",")
    parameters: dict[str, Any] = {"kind": kind.strip()}
    for part in rest:
        key, _, number = part.partition("=")
        try:
            size = float(number)
        except ValueError:
            raise ParameterError(
                f"{name}: {part.strip()!r} must be 'parameter=number', in {shown(value)}"
            ) from None
        parameters[key.strip()] = int(size) if size.is_integer() else size
    return parameters


def settings(what: str, given: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """Return the known parameters, overridden by the given ones.

    Raises:
        ParameterError: If `given` is no mapping, or has an unknown key.
    """
    if not isinstance(given, Mapping):
        raise ParameterError(f"{what} must be a mapping of {', '.join(known)}, got {shown(given)}")
    for key in given:
        if key not in known:
            raise ParameterError(f"{what} takes {', '.join(known)}, got {shown(key)}")
    return {**known, **given}
