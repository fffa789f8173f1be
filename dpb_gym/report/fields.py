"""Frozen dataclasses whose fields are checked: kinds of fields, and errors of ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import field
from typing import Annotated, Any, TypeAlias, TypeVar, dataclass_transform

import pydantic.dataclasses
from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo

from dpb_gym import validation
from dpb_gym.errors import ParameterError, shown

_Class = TypeVar("_Class", bound=type)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def model(cls: _Class) -> _Class:
    """A frozen pydantic dataclass whose errors are ours."""
    made = pydantic.dataclasses.dataclass(frozen=True)(cls)
    init = made.__init__

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, (cls.__name__, *first["loc"])))
            own = first.get("ctx", {}).get("error")
            reason = own or f"{first['msg']}, got {shown(first['input'])}"
            raise ParameterError(f"{place}: {reason}") from None

    made.__init__ = checked  # type: ignore[method-assign]
    return made  # type: ignore[return-value]


def check(by: Callable[..., Any], *args: Any, **kwargs: Any) -> BeforeValidator:
    """A field's check: a function of its name, its value and these arguments."""

    def run(value: Any, info: ValidationInfo) -> Any:
        return by(str(info.field_name), value, *args, **kwargs)

    return BeforeValidator(run)


Label: TypeAlias = Annotated[str, check(validation.text)]
MaybeLabel: TypeAlias = Annotated[str, check(validation.text, empty=True)]
Prose: TypeAlias = Annotated[str, check(validation.text, empty=True, lines=True)]
Number: TypeAlias = Annotated[float, check(validation.real)]
Positive: TypeAlias = Annotated[float, check(validation.real, 0.0, open_low=True)]
NotNegative: TypeAlias = Annotated[float, check(validation.real, 0.0)]
Chance: TypeAlias = Annotated[float, check(validation.real, 0.0, 1.0)]
Count: TypeAlias = Annotated[int, check(validation.integer, 1)]
Accounting = Annotated[str, Field(pattern=r"^(computed|declared|as printed .{1,80})$")]
