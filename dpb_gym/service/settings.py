"""Configuration of a decision service: one YAML file."""

from __future__ import annotations

import functools
import os
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr

from dpb_gym import validation
from dpb_gym.errors import DataError, ParameterError, SuiteError, shown
from dpb_gym.problems.kinds import KINDS, kind_of
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.suites.schema import Spec, canonical, read_spec

TOKEN_VARIABLE = "DPB_SERVE_TOKEN"
SHORTEST_TOKEN = 16
LOCAL = ("127.0.0.1", "::1", "localhost")
Port = Annotated[int, Field(ge=0, le=65535)]
Count = Annotated[int, Field(ge=1, le=10**7)]


class AccountSettings(Spec):
    """Lifetime budgets of the customers; see `dpb_gym.privacy.Account`.

    Attributes:
        place: Path, relative to the configuration, or URL.
        lifetime: Budget of each person; it can be left out if the account exists.
        unit: ``"user"`` or ``"user-rewards"``.
        key_file: File with the secret of 16 to 64 bytes that hashes the ids; None: no hashes.
    """

    place: str
    lifetime: str | None = None
    unit: Literal["user", "user-rewards"] = "user"
    key_file: str | None = None


class ServiceSettings(Spec):
    """What a configuration says; paths are relative to its folder.

    Attributes:
        agent: Name of a registered agent.
        budget: Budget of the whole session as text, or None for no privacy.
        problem: Fields of `ProblemInfo`, and two more. ``actions`` names the candidates or items.
            ``features`` has the lowest and highest value of each named feature; then `dim` and the
            number of candidates follow.
        parameters: Parameters of the agent.
        noise: See `dpb_gym.serve`.
        seed: See `dpb_gym.serve`.
        list_price: See `dpb_gym.serve`.
        max_spread: See `dpb_gym.serve`.
        account: Lifetime budgets of the customers; requests then name their user.
        folder: Folder of the service's files; the configuration's name without suffix by default.
        state_dir: See `dpb_gym.serve`.
        host: Address to listen at.
        port: Port to listen at; 0: any free one.
        token_file: File with the token of the clients, instead of the environment's variable.
        most_pending: Decisions that wait for a response; the oldest of more are dropped.
    """

    agent: str
    budget: str | None
    problem: dict[str, Any]
    parameters: dict[str, Any] = Field(default_factory=dict)
    noise: Literal["system", "seeded"] = "system"
    seed: int | None = None
    list_price: float | None = None
    max_spread: float | None = None
    account: AccountSettings | None = None
    folder: str | None = None
    state_dir: str | None = None
    host: str = "127.0.0.1"
    port: Port = 8000
    token_file: str | None = None
    most_pending: Count = 10_000
    _source: Path = PrivateAttr(default=Path("service.yaml"))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> ServiceSettings:
        """Return the settings of a file.

        Raises:
            DataError: If it cannot be read.
            SuiteError: If it is no valid configuration.
        """
        source = Path(path)
        try:
            text = source.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{source}: cannot be read: {error}") from error
        settings = read_spec(cls, text, str(source))
        settings._source = source.absolute()
        return settings

    def over(self, changes: dict[str, Any]) -> ServiceSettings:
        """Return a copy with other values."""
        changed = self.model_copy(update=changes)
        changed._source = self._source
        return changed

    def place(self, path: str) -> Path:
        """Return a path of the configuration."""
        return self._source.parent / path

    @property
    def directory(self) -> Path:
        """Folder of the service's files."""
        default = self._source.with_suffix("") if self._source.suffix else None
        if self.folder is None:
            return default or self._source.with_name(f"{self._source.name}-service")
        return self.place(self.folder)

    def token(self) -> str | None:
        """Return the token that clients need, None without one.

        Raises:
            DataError: If its file cannot be read.
            SuiteError: If it is short, or there is none and the address is not local.
        """
        text = os.environ.get(TOKEN_VARIABLE)
        if self.token_file is not None:
            try:
                text = self.place(self.token_file).read_text("ascii")
            except (OSError, UnicodeDecodeError) as error:
                raise DataError(f"{self._source}: token_file cannot be read: {error}") from error
        token = (text or "").strip()
        if not token and self.host not in LOCAL:
            raise SuiteError(
                f"{self._source}: at host {self.host} others can connect: give token_file, or the "
                f"token in the variable {TOKEN_VARIABLE}"
            )
        if token and (len(token) < SHORTEST_TOKEN or not token.isascii() or " " in token):
            raise SuiteError(
                f"{self._source}: a token has at least {SHORTEST_TOKEN} ASCII characters and no "
                "space, such as what python -c 'import secrets; print(secrets.token_urlsafe())' "
                "prints"
            )
        return token or None

    def terms(self) -> str:
        """Return what a session cannot change while it lives, as text."""
        names = ("agent", "budget", "problem", "parameters", "noise", "list_price", "max_spread")
        terms = {name: getattr(self, name) for name in names}
        terms["account"] = self.account is not None
        return canonical(terms)

    def actions(self) -> tuple[str, ...] | None:
        """Return the names of the candidates or items, None if they have numbers.

        Raises:
            ParameterError: If they are no different texts.
        """
        given = self.problem.get("actions")
        if given is None:
            return None
        if not isinstance(given, list) or len(given) < 2:
            raise ParameterError(f"problem.actions: two names or more, got {shown(given)}")
        names = tuple(validation.text("problem.actions", name) for name in given)
        if len(set(names)) < len(names):
            raise ParameterError(f"problem.actions: a name appears twice in {shown(given)}")
        return names

    def features(self) -> dict[str, tuple[float, float]] | None:
        """Return the range of each named feature, None if they have no names.

        Raises:
            ParameterError: If a range is not two increasing numbers.
        """
        given = self.problem.get("features")
        if given is None:
            return None
        if not isinstance(given, dict) or not given:
            raise ParameterError(
                "problem.features: names with their lowest and highest value, such as "
                f"age: [0, 120]; got {shown(given)}"
            )
        return {
            validation.text("problem.features", name): validation.span(
                f"problem.features.{name}", range_
            )
            for name, range_ in given.items()
        }

    def info(self, *, fixed_arms: bool = False) -> ProblemInfo:
        """Return the problem.

        Args:
            fixed_arms: Whether the agent needs all arms in every round, so that a request can
                exclude none.

        Raises:
            ParameterError: If a field is unknown, missing or contradicts the names.
        """
        given = {k: v for k, v in self.problem.items() if k not in ("actions", "features")}
        actions = self.actions()
        features = self.features()
        name = given.get("kind")
        # from_dict says what is wrong with a name that no kind has
        kind = kind_of(name) if isinstance(name, str) and name in KINDS else None
        follows: dict[str, Any] = {}
        if actions is not None:
            if kind is None or kind.counts is None:
                raise ParameterError(f"problem.actions: problems of kind {shown(name)} have none")
            follows[kind.counts] = len(actions)
        if features is not None:
            count = None if actions is None else len(actions)
            dim = None if kind is None else kind.named_dim(count, len(features))
            if dim is None:
                raise ParameterError(
                    "problem.features: for pricing, and for recommendation with problem.actions; "
                    "otherwise give dim, and send arrays"
                )
            follows["dim"] = dim
        for name in ("dim", "n_candidates", "n_items", "capacity", "horizon"):
            if given.get(name) is not None:
                validation.integer(f"problem.{name}", given[name], 1)
        for name, value in follows.items():
            if given.setdefault(name, value) != value:
                raise ParameterError(
                    f"problem.{name}: {value} follows from the names, got {shown(given[name])}"
                )
        if kind is not None and kind.counts is not None and not fixed_arms:
            given.setdefault("masked", True)
        return ProblemInfo.from_dict(given)


@functools.cache
def version() -> str:
    """Return the version of this package."""
    return metadata.version("dpb-gym")
