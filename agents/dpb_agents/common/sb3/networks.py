"""Networks for lists of items: the same layers on every item, one score each.

Inside functions because the zoo must load without torch.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any


@lru_cache(maxsize=1)
def item_layers() -> Any:
    """Makes `layers(widths, activation)`: a fully connected network of those widths."""
    from torch import nn

    def layers(widths: list[int], activation: Any) -> nn.Sequential:
        stack = nn.Sequential()
        for inner, outer in pairwise(widths):
            stack.extend((nn.Linear(inner, outer), activation()))
        return stack

    return layers


@lru_cache(maxsize=1)
def slate_policy() -> type:
    """Makes the actor-critic policy of slates drawn by Plackett-Luce."""
    import torch
    from stable_baselines3.common.distributions import CategoricalDistribution
    from stable_baselines3.common.policies import ActorCriticPolicy
    from torch import nn

    layers = item_layers()

    class PlackettLuce(CategoricalDistribution):
        """Slates drawn one by one without replacement, by the softmax of what is left."""

        def __init__(self, count: int, places: int) -> None:
            super().__init__(count)
            self.places = places

        def proba_distribution_net(self, latent_dim: int) -> nn.Module:
            return nn.Linear(latent_dim, 1)

        def proba_distribution(self, action_logits: torch.Tensor) -> PlackettLuce:
            self.scores = action_logits.squeeze(-1)
            return self

        def log_prob(self, actions: torch.Tensor) -> torch.Tensor:
            slates = actions.long()
            chosen = self.scores.gather(1, slates)
            taken = nn.functional.one_hot(slates, self.action_dim)
            gone = (taken.cumsum(1) - taken).bool()
            left = self.scores.unsqueeze(1).masked_fill(gone, -torch.inf)
            return (chosen - left.logsumexp(-1)).sum(-1)

        def entropy(self) -> Any:
            """No closed form; the algorithm then estimates it by the log-probability."""
            return None

        def sample(self) -> torch.Tensor:
            gumbel = -torch.empty_like(self.scores).exponential_().log()
            return (self.scores + gumbel).topk(self.places).indices

        def mode(self) -> torch.Tensor:
            return self.scores.topk(self.places).indices

    class ItemEncoder(nn.Module):
        """The same layers on every item: per-item codes for the actor, their mean (from
        layers of their own) for the critic."""

        def __init__(self, count: int, features: int, net_arch: list[int], activation: Any) -> None:
            super().__init__()
            self.shape = (-1, count, features // count)
            widths = [self.shape[-1], *net_arch]
            self.latent_dim_pi = self.latent_dim_vf = widths[-1]

            self.actor, self.critic = layers(widths, activation), layers(widths, activation)

        def forward(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return self.forward_actor(features), self.forward_critic(features)

        def forward_actor(self, features: torch.Tensor) -> torch.Tensor:
            codes: torch.Tensor = self.actor(features.reshape(self.shape))
            return codes

        def forward_critic(self, features: torch.Tensor) -> torch.Tensor:
            mean: torch.Tensor = self.critic(features.reshape(self.shape)).mean(1)
            return mean

    class SlatePolicy(ActorCriticPolicy):
        """Actor-critic with one score per item and Plackett-Luce slates."""

        def _build(self, lr_schedule: Any) -> None:
            space: Any = self.action_space
            self.action_dist = PlackettLuce(int(space.nvec[0]), len(space.nvec))
            super()._build(lr_schedule)

        def _build_mlp_extractor(self) -> None:
            space: Any = self.action_space
            widths: Any = self.net_arch
            self.mlp_extractor: Any = ItemEncoder(
                int(space.nvec[0]), self.features_dim, widths, self.activation_fn
            )

    return SlatePolicy


@lru_cache(maxsize=1)
def candidate_values() -> type:
    """Makes the DQN policy with one value per candidate, from the candidate alone."""
    import torch
    from stable_baselines3.dqn.policies import DQNPolicy, QNetwork
    from torch import nn

    layers = item_layers()

    class CandidateValues(nn.Module):
        """The same layers and the same linear read-out on every candidate."""

        def __init__(self, count: int, features: int, net_arch: list[int], activation: Any) -> None:
            super().__init__()
            self.shape = (-1, count, features // count)
            widths = [self.shape[-1], *net_arch]
            self.encode = layers(widths, activation)
            self.value = nn.Linear(widths[-1], 1)

        def forward(self, features: torch.Tensor) -> torch.Tensor:
            values: torch.Tensor = self.value(self.encode(features.reshape(self.shape)))
            return values.squeeze(-1)

    class CandidateQNetwork(QNetwork):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            space: Any = self.action_space
            network: Any = CandidateValues(
                int(space.n), self.features_dim, self.net_arch, self.activation_fn
            )
            self.q_net = network

    class CandidatePolicy(DQNPolicy):
        def make_q_net(self) -> QNetwork:
            arguments = self._update_features_extractor(self.net_args, features_extractor=None)
            return CandidateQNetwork(**arguments).to(self.device)

    return CandidatePolicy
