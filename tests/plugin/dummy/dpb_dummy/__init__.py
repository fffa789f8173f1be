"""A third-party package with one agent, found through the entry point."""

import dpb_gym


@dpb_gym.register_agent("dummy-first", supports=["recommendation", "pricing"])
class First(dpb_gym.SingleAgent):
    """Always the first candidate, or half the highest price."""

    def act(self, context):
        return 0 if self.problem.kind == "recommendation" else 0.5


from dpb_dummy import ranking  # noqa: E402, F401
