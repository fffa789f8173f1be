"""Local privacy in the harness: agents that learn from locally privatised feedback.

The wrappers of `dpb_gym.feedback` do the same for Gymnasium environments, with the same messages
bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym import validation
from dpb_gym.agent import Agent, plays_stretches
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.portable import fill_normals
from dpb_gym.privacy.releasers.releaser import Releaser
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.kinds import kind_of
from dpb_gym.problems.stretch import Stretch
from dpb_gym.registry import agent_spec, check_supported
from dpb_gym.streams import AgentStreams, BlockDraws, fill_uniforms

if TYPE_CHECKING:
    from dpb_gym.feedback import LocalMechanism, ResponseChannel
    from dpb_gym.feedback.channel import Sent
    from dpb_gym.feedback.local_mechanisms import ResponseMechanism
    from dpb_gym.privacy import Curator, Event, NoiseSource


class Messages(Releaser):
    """Releaser of local messages, one per round and replicate.

    Messages of different user-rounds are about disjoint data, so their total cost is that of one
    message. Their random numbers come from the streams of local privacy, keyed by mechanism and
    agent, so that two budgets never share noise.

    Args:
        curator: Charged with one message.
        mechanism: Mechanism of the messages.
        streams: Random streams of the replicates.
    """

    def __init__(self, curator: Curator, mechanism: LocalMechanism, streams: AgentStreams) -> None:
        from dpb_gym.feedback.layers import noise_generator
        from dpb_gym.feedback.local_mechanisms import LocalMechanism

        mechanism = LocalMechanism.of(mechanism)
        fill = fill_normals if mechanism.numbers == "normal" else fill_uniforms
        key = streams.configuration
        generators = [noise_generator(seed, mechanism, key=key) for seed in streams.seeds]
        self.mechanism = mechanism
        self.numbers = BlockDraws(generators, (mechanism.width,), fill)
        super().__init__(curator, share=1.0, what="message of a user")
        if curator.system_noise:
            raise ParameterError("messages of users are simulated: noise='seeded'")

    def cost(self, rho: float) -> Event:
        return self.mechanism.event

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        pass

    @property
    def parts(self) -> tuple[object, ...]:
        """The mechanism, whose event is charged."""
        return (self.mechanism,)


class Responses(Messages):
    """Releaser of privatised responses.

    Args:
        curator: See `Messages`.
        channel: Privatisation of this problem's responses.
        streams: See `Messages`.
    """

    def __init__(self, curator: Curator, channel: ResponseChannel, streams: AgentStreams) -> None:
        self.channel = channel
        super().__init__(curator, channel.mechanism, streams)

    def send(self, context: Context, action: Array, feedback: Feedback) -> Sent:
        """Return the messages of one round; see `ResponseChannel.send`."""
        self.ready()
        return self.channel.send(context.revenues, action, feedback, self.numbers.next())

    def send_rounds(self, rewards: Array, observed: Array | None = None) -> Sent:
        """Return the message that each candidate's reward would cause, flat, in place of `send`.

        A user sends that of the chosen candidate. All of a round share its random numbers.

        Args:
            rewards: Reward of every candidate ``(n, B, m)``.
            observed: Whether feedback is returned for a candidate, ``(n, B, m)``; None: always.
        """
        self.ready()
        n, B, m = rewards.shape
        numbers = np.repeat(self.numbers.take(n).reshape(n * B, -1), m, axis=0)
        seen = None if observed is None else observed.ravel()
        feedback = Feedback(rewards.ravel(), observed=seen)
        return self.channel.send(None, np.arange(n * B * m), feedback, numbers)


class LocalPrivacy(Agent):
    """A non-private agent that learns from locally private responses.

    Every response is privatised by a mechanism before the inner agent observes it. So the
    mechanism's guarantee holds for any inner agent: local, for the response of one round, with
    public contexts and actions. Contexts are **not** protected.

    Args:
        agent: Registered name of a non-private agent, or a function that returns one.
        mechanism: Name, see `dpb_gym.feedback.response_mechanism`; calibrated to the budget. Or
            a mechanism, whose cost must not exceed the budget.
        params: Parameters of the agent.
        debias: Whether to pass on unbiased estimates of numeric responses (recommendation,
            pricing) instead of the messages. Choices are always passed on as messages.

    Attributes:
        inner: The inner agent, after `begin`.

    Raises:
        AgentError: If the inner agent is private itself or does not fit the problem.
        ParameterError: If the mechanism does not fit the problem.
    """

    protects = ("local", "reward")

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
        self.inner: Agent

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        from dpb_gym.feedback import ResponseChannel, response_mechanism

        if curator.budget is None:
            raise AgentError("local privacy needs a budget; without one, take the agent itself")
        mechanism = self.mechanism
        if isinstance(mechanism, str):
            mechanism = response_mechanism(mechanism, curator.budget, problem)
        self.inner = self._make(problem)
        self.responses = Responses(curator, ResponseChannel(mechanism, problem), streams)
        shown = problem
        if kind_of(problem.kind).response is None:
            # messages exceed the range of the rewards, to which agents clip
            shown = replace(problem, reward_range=mechanism.bounds, binary=None)
        self.inner.set_up(shown, streams)
        self.stretches = plays_stretches(self.inner) and kind_of(problem.kind).response is None

    def _make(self, problem: ProblemInfo) -> Agent:
        if not isinstance(self.agent, str):
            return self.agent()
        spec = agent_spec(self.agent, **self.params)
        if spec.budget != "never":
            raise AgentError(f"{self.agent!r} is private itself; give a non-private agent")
        if spec.uses_oracle:
            raise AgentError(f"{self.agent!r} sees the truth; local privacy cannot hide it")
        check_supported(spec, problem, budget=False)
        return spec.make()

    def act(self, context: Context) -> Array:
        return self.inner.act(context)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        sent, estimate = self.responses.send(context, action, feedback)
        if self.debias and context.revenues is None:
            sent = sent._replace(reward=estimate)
            if sent.demand is not None:
                scalar = self.responses.channel.mechanism.scalar
                sent = sent._replace(demand=scalar(sent.demand))
        self.inner.observe(context, action, sent)

    def play(self, rounds: Stretch) -> Array:
        sent, estimate = self.responses.send_rounds(rounds.reward, rounds.partly)
        reward = (estimate if self.debias else sent.reward).reshape(rounds.reward.shape)
        return self.inner.play(Stretch(rounds.context, reward, rounds.partly))

    def probabilities(self, context: Context) -> Array | None:
        return self.inner.probabilities(context)
