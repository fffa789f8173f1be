"""Elementary functions as plain Python functions, with the bits of the compiled ones.

A call takes 1 to 10 us, ten times as long as `dpb_gym.portable`. But numba is not imported, which
takes 0.5 s and 65 MB, so that programs which only read results do not need it.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

_COMPILERS = SimpleNamespace(**dict.fromkeys(("inline", "jit", "vectorised"), lambda f: f))


def _import(name: str, *rest: Any) -> Any:
    return _COMPILERS if name == "dpb_gym.kernels._jit" else builtins.__import__(name, *rest)


def _definitions() -> dict[str, Any]:
    """Return what `dpb_gym.kernels.elementary` defines if its decorators compile nothing."""
    spec = find_spec("dpb_gym.kernels.elementary")
    assert spec is not None and spec.loader is not None
    defined = {"__name__": __name__, "__builtins__": {**vars(builtins), "__import__": _import}}
    exec(spec.loader.get_code(spec.name), defined)  # type: ignore[attr-defined]
    return defined


_PLAIN = _definitions()


def _function(name: str) -> Callable[[float], float]:
    plain = _PLAIN[name]
    return lambda x: float(plain(float(x)))


exp, expm1, log, log1p = map(_function, ("exp", "expm1", "log", "log1p"))
erfcx, log_normal_cdf = map(_function, ("erfcx", "log_normal_cdf"))
