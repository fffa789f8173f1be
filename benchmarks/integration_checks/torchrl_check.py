"""TorchRL: `GymEnv` with its own checks, a rollout and a collector."""

from rows import attempt
from torchrl.collectors import Collector
from torchrl.envs.libs.gym import GymEnv
from torchrl.envs.utils import check_env_specs

import dpb_gym  # noqa: F401  (registers the environments)

IDS = {
    "DPB/Assortment-v0": {"n_items": 6, "capacity": 2, "dim": 3},
    "DPB/Pricing-v0": {"dim": 3},
    "DPB/Recommendation-v0": {"dim": 3, "n_candidates": 4},
}


def specs():
    for env_id, kwargs in IDS.items():
        check_env_specs(GymEnv(env_id, horizon=20, **kwargs))
    return ", ".join(IDS)


def rollout():
    total = 0.0
    for env_id, kwargs in IDS.items():
        rounds = GymEnv(env_id, horizon=20, **kwargs).rollout(30)
        assert rounds["next", "truncated"][-1].item() and len(rounds) == 20
        total += rounds["next", "reward"].sum().item()
    return f"20 rounds each, then truncated; reward {total:.2f}"


def collect():
    collector = Collector(
        lambda: GymEnv("DPB/Pricing-v0", horizon=20, dim=3), None,
        frames_per_batch=40, total_frames=80,
    )  # fmt: skip
    frames = sum(batch.numel() for batch in collector)
    collector.shutdown()
    return f"{frames} frames"


attempt("TorchRL GymEnv", "check_env_specs", specs)
attempt("TorchRL GymEnv", "rollout to the horizon", rollout)
attempt("TorchRL Collector", "80 frames", collect)
