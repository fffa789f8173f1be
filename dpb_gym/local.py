"""Local privacy in the harness: an agent behind a mechanism on the users' side.

The wrappers of `dpb_gym.feedback` do this for Gymnasium environments; here the same messages,
bit for bit, reach an agent in the lockstep runner.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym import validation
from dpb_gym.agent import Agent, agent_spec, check_supported
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams, BlockDraws

if TYPE_CHECKING:
    from dpb_gym.feedback import LocalMechanism, ResponseChannel
    from dpb_gym.feedback.channel import PrivateFeedback
    from dpb_gym.feedback.mechanisms import ResponseMechanism
    from dpb_gym.privacy import Budget, Ledger


def message_numbers(mechanism: LocalMechanism, seeds: tuple[int, ...]) -> BlockDraws:
    """The random numbers of one message per round and replicate.

    From the same streams as the wrappers', which an environment of its own never uses.
    """
    from dpb_gym.feedback.layers import noise_generator

    fill = _normals if mechanism.numbers == "normal" else _uniforms
    generators = [noise_generator(seed) for seed in seeds]
    return BlockDraws(generators, (mechanism.width,), fill)


def _normals(rng: np.random.Generator, out: Array) -> None:
    rng.standard_normal(out=out)


def _uniforms(rng: np.random.Generator, out: Array) -> None:
    rng.random(out=out)


def message_ledger(mechanism: LocalMechanism, budget: Budget | None) -> Ledger:
    """A ledger charged with one message per user.

    Every user-round sends one message, and they are about disjoint data: together they cost
    what one of them does.

    Raises:
        BudgetExceeded: If a message costs more than the budget.
    """
    from dpb_gym.privacy import Ledger

    ledger = Ledger(budget, notion="local", unit=mechanism.unit)
    ledger.charge(mechanism.event, what="message of a user", parallel="messages")
    return ledger


class Responses:
    """The users' side for responses: takes the truth, sends private messages.

    Args:
        channel: What a message is in this problem.
        seeds: Seeds of the replicates.
    """

    def __init__(self, channel: ResponseChannel, seeds: tuple[int, ...]) -> None:
        self.channel = channel
        self._numbers = message_numbers(channel.mechanism, seeds)

    def send(self, context: Context, action: Array, feedback: Feedback) -> PrivateFeedback:
        """The messages of one round; see `ResponseChannel.send`."""
        return self.channel.send(context.revenues, action, feedback, self._numbers.next())


class LocalPrivacy(Agent):
    """A non-private agent that learns from locally private responses.

    Every response passes through a mechanism before the agent behind sees it, so the agent has
    the mechanism's guarantee, whatever it does: local, for the response of one round, contexts
    and actions public. Contexts are **not** protected.

    Args:
        agent: Registered name of a non-private agent, or a function that makes one.
        mechanism: Name, see `dpb_gym.feedback.response_mechanism`; calibrated to the budget. Or
            a mechanism, whose cost must then fit in the budget if there is one.
        params: Parameters of the agent.
        debias: Hand on unbiased estimates of numeric responses (recommendation, pricing)
            instead of the messages themselves. Choices stay messages.

    Attributes:
        ledger: Charged with one message.
        inner: The agent behind, after `begin`.

    Raises:
        AgentError: If the agent behind is private itself or does not fit the problem.
        ParameterError: If the mechanism does not fit the problem.
    """

    def __init__(
        self,
        agent: str | Callable[[], Agent] = "lin-ucb",
        mechanism: str | ResponseMechanism = "randomized-response",
        params: Mapping[str, Any] | None = None,
        debias: bool = True,
    ) -> None:
        self.agent, self.mechanism = agent, mechanism
        self.params = dict(params or {})
        self.debias = validation.flag("debias", debias)
        if not isinstance(agent, str) and (self.params or not callable(agent)):
            raise ParameterError(
                "agent must be a registered name, or a function without parameters that makes "
                f"an agent; got {agent!r}"
            )
        if isinstance(agent, str):
            agent_spec(agent, **self.params).make()
        self.ledger: Ledger | None = None
        self.inner: Agent

    def begin(
        self, problem: ProblemInfo, streams: AgentStreams, budget: Budget | None = None
    ) -> None:
        from dpb_gym.feedback import ResponseChannel, response_mechanism

        if isinstance(self.mechanism, str):
            if budget is None:
                raise AgentError("a local mechanism given by name needs a budget")
            mechanism = response_mechanism(self.mechanism, budget, problem)
        else:
            mechanism = self.mechanism
        channel = ResponseChannel(mechanism, problem)
        self.inner = self._make(problem)
        self.ledger = message_ledger(mechanism, budget)
        self.guarantee = self.ledger.guarantee
        self.responses = Responses(channel, streams.seeds)
        shown = problem
        if problem.kind == "recommendation":
            # messages leave the range of the rewards; agents clip to what they are told
            shown = replace(problem, reward_range=mechanism.bounds)
        self.inner.begin(shown, streams, None)
        if self.inner.guarantee is not None:
            raise AgentError(f"{self.agent!r} is private itself; give a non-private agent")

    def _make(self, problem: ProblemInfo) -> Agent:
        if not isinstance(self.agent, str):
            return self.agent()
        spec = agent_spec(self.agent, **self.params)
        if spec.budget == "required":
            raise AgentError(f"{self.agent!r} is private itself; give a non-private agent")
        if spec.uses_oracle:
            raise AgentError(f"{self.agent!r} sees the truth; local privacy cannot hide it")
        check_supported(spec, problem, None)
        return spec.make()

    def act(self, context: Context) -> Array:
        return self.inner.act(context)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        sent, estimate = self.responses.send(context, action, feedback)
        if self.debias and context.revenues is None:
            sent = self._debiased(sent, estimate)
        self.inner.observe(context, action, sent)

    def _debiased(self, sent: Feedback, estimate: Array) -> Feedback:
        if sent.demand is None:
            return sent._replace(reward=estimate)
        demand = self.responses.channel.mechanism.scalar(sent.demand)
        return sent._replace(reward=estimate, demand=demand)
