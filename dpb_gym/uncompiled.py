"""Elementary functions as plain Python functions, with the bits of the compiled ones.

A call takes 1 to 10 us, ten times as long as `dpb_gym.portable`. But no call loads the compiler,
which takes 0.5 s and 65 MB, so that programs which only read results do not need it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

from dpb_gym.kernels import elementary

_PLAIN = dict(vars(elementary))
for _name, _compiled in vars(elementary).items():
    if isinstance(_python := getattr(_compiled, "py_func", None), FunctionType):
        _PLAIN[_name] = FunctionType(_python.__code__, _PLAIN, _name)


def _function(name: str) -> Callable[[float], float]:
    plain = _PLAIN[name]
    return lambda x: float(plain(float(x)))


exp, expm1, log, log1p = map(_function, ("exp", "expm1", "log", "log1p"))
erfcx, log_normal_cdf = map(_function, ("erfcx", "log_normal_cdf"))
