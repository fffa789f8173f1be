"""The built-in agents, by problem; importing the package registers all of them.

It is loaded through the entry-point group ``dpb_gym.agents``, like a third-party package.
"""

from __future__ import annotations

import importlib
import pkgutil

from dpb_gym.registry import set_standings

STANDINGS = {
    "ours": "one-pass-mnl one-pass-pricing one-pass-linear one-pass-linear-joint "
    "one-pass-sparse one-pass-sparse-joint resolving-mnl resolving-pricing response-pricing",
    "paper": "dpmnl dpmnl-approx private-pricing adaprivate-ts adaprivate-ucb adaprivate-amp "
    "adaprivate-adaptive adaprivate-user-ts adaprivate-user-ucb",
    "checked": "fliphat jdp-glm-ucb",
    "published": "jdp-lin-ucb dp-se adac-ucb adap-ucb ldp-ucb ucb lin-ucb lin-ts oful ucb-mnl "
    "ts-mnl ofu-mnl-plus cils-pricing mle-cycle-pricing fixed-price local-lin-ucb ppo dqn sac",
    "abstract": "information-weighted adac-oful-zcdp dgs-lin-ucb shuffle-lin-ucb local-glm-sgd "
    "local-pricing",
    "construct": "noisy-gram-ucb zcdp-episodic rarely-switching-zcdp coreset-elimination "
    "batched-aggregation local-lin-greedy local-reward-lin-ucb local-reward-lin-ts lin-greedy "
    "greedy-mnl greedy-pricing glm-ucb-pricing ts-pricing explore-commit-pricing "
    "private-single-action",
}
"""Names of the agents by how they relate to their source; see `AgentSpec.standing`.

The table is here, not in the agents' modules, because it is no part of their code and its digest.
"""

EVOLVES = {
    "assortment.choice_records:ChoiceMLE": "_theta _hessian _seen _norm _folded _curvature _slope",
    "assortment.choice_records:ChoiceRecords": "x+ offered+ chosen+ count _dropped",
    "pricing.demand_records:DemandRecords": "features+ price+ demand+ count _dropped",
    "pricing.private_demand_mle:PrivateMLE": "_theta _hessian _norm _linear _precision",
    "recommendation.fliphat:Peeling": "_gram _response kept",
    "recommendation.one_pass_sparse:SparseSums": "_sums _counts kept",
    "recommendation.rivals.linear_rival:RewardSums": "_cursor _normals releases",
}
"""What a run changes of releasers and their records; see `Releaser.evolves`.

The table is here for the same reason.
"""


def _register_all() -> None:
    for module in pkgutil.walk_packages(__path__, prefix=f"{__name__}."):
        if module.name.split(".")[1] != "kernels":
            importlib.import_module(module.name)
    for name, evolves in EVOLVES.items():
        module_name, _, class_name = name.partition(":")
        kind = getattr(importlib.import_module(f"{__name__}.{module_name}"), class_name)
        kind.evolves = tuple(evolves.split())


_register_all()
set_standings(STANDINGS)
