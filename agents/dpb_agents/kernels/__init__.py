"""Hot loops of the zoo, compiled by numba on first use.

As in `dpb_gym.kernels`: no fast-math, no threads, one replicate at a time, and the submodules
are loaded when one of them is first used.
"""

from dpb_gym.lazy import submodules

__getattr__ = submodules(__name__)
