"""Hot loops of the agents, compiled by numba on first use.

As in `dpb_gym.kernels`: no fast-math, no threads, one replicate at a time, lazily loaded
submodules.
"""

from dpb_gym.lazy import submodules

__getattr__ = submodules(__name__)
