"""Private feedback: local mechanisms, and wrappers that apply them to environments.

Mechanisms are batch functions with a guarantee. Wrappers privatise what an environment returns to
its agents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.feedback.channel import ResponseChannel as ResponseChannel
    from dpb_gym.feedback.channel import response_mechanism as response_mechanism
    from dpb_gym.feedback.context_mechanisms import CapStatistics as CapStatistics
    from dpb_gym.feedback.context_mechanisms import GaussianContexts as GaussianContexts
    from dpb_gym.feedback.context_mechanisms import GaussianStatistics as GaussianStatistics
    from dpb_gym.feedback.local_mechanisms import GaussianResponse as GaussianResponse
    from dpb_gym.feedback.local_mechanisms import LaplaceResponse as LaplaceResponse
    from dpb_gym.feedback.local_mechanisms import LocalMechanism as LocalMechanism
    from dpb_gym.feedback.local_mechanisms import RandomizedResponse as RandomizedResponse
    from dpb_gym.feedback.wrappers import CentralCurator as CentralCurator
    from dpb_gym.feedback.wrappers import PrivateContexts as PrivateContexts
    from dpb_gym.feedback.wrappers import PrivateResponse as PrivateResponse
    from dpb_gym.feedback.wrappers import PrivateStatistics as PrivateStatistics
    from dpb_gym.feedback.wrappers import VectorCentralCurator as VectorCentralCurator
    from dpb_gym.feedback.wrappers import VectorPrivateContexts as VectorPrivateContexts
    from dpb_gym.feedback.wrappers import VectorPrivateResponse as VectorPrivateResponse
    from dpb_gym.feedback.wrappers import VectorPrivateStatistics as VectorPrivateStatistics

__all__, __getattr__, __dir__ = lazy_names(__name__)
