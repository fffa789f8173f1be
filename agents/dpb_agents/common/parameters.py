"""Base of agents whose annotated attributes are parameters."""

from __future__ import annotations

from dataclasses import field
from typing import dataclass_transform

from dpb_gym.agent import Agent
from dpb_gym.parameters import check_parameters, with_parameters
from dpb_gym.parameters import choice as choice
from dpb_gym.parameters import flag as flag
from dpb_gym.parameters import inside as inside
from dpb_gym.parameters import integer as integer
from dpb_gym.parameters import positive as positive
from dpb_gym.parameters import real as real


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
class Configured(Agent):
    """Agent whose annotated attributes are parameters, checked by the constructor.

    Subclasses are keyword-only dataclasses.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        with_parameters(cls)

    def __post_init__(self) -> None:
        check_parameters(self)
