"""Elementary functions as plain Python functions, with the bits of the compiled ones.

A call takes 1 to 10 us, ten times as long as `dpb_gym.portable`. But numba is not imported, which
takes 0.5 s and 65 MB, so that programs which only read results do not need it.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType


def _elementary() -> ModuleType:
    """Return a second module of the file of `dpb_gym.kernels.elementary`.

    By its name, its decorators compile nothing.
    """
    file = Path(__file__).parent / "kernels" / "elementary.py"
    spec = spec_from_file_location(f"{__name__}.elementary", file)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_PLAIN = _elementary()


def _function(name: str) -> Callable[[float], float]:
    plain = getattr(_PLAIN, name)
    return lambda x: float(plain(float(x)))


exp, expm1, log, log1p = map(_function, ("exp", "expm1", "log", "log1p"))
erfcx, log_normal_cdf = map(_function, ("erfcx", "log_normal_cdf"))
