"""Environments that share the broker: which there are, and what is held against mixing them."""

from dataclasses import dataclass

from holdfast.core.environment import is_environment_name, is_environment_rule
from holdfast.core.limits import USER_NAME_BYTES_MAXIMUM
from holdfast.core.settings import Kind, choice, duration, setting, text, texts

_RULE = "a pattern, in which * stands for anything, then = and an environment"


def _rules() -> Kind:
    return texts(
        lambda item: is_environment_rule(item) and len(item.encode()) <= USER_NAME_BYTES_MAXIMUM,
        _RULE,
    )


@dataclass(frozen=True, kw_only=True)
class EnvironmentsSection:
    """The table `environments`."""

    environments_names: tuple[str, ...] = setting(
        "environments.names",
        texts(is_environment_name, "a name of at most 64 characters without / + # * = and blanks"),
        "",
        """Environments that are known from the start, such as azure-prod. A group whose share name
        ends with a hyphen and such a name is that environment's, and so is a client in whose
        identifier it stands between hyphens. What clients say of themselves is known as soon as
        they say it.""",
        reloadable=True,
    )
    environments_clients: tuple[str, ...] = setting(
        "environments.clients",
        _rules(),
        "",
        """Whose clients are whose by their identifiers, where the names do not tell it, such as
        probe-*=azure-prod; the first that fits decides. What a client says of itself comes
        first.""",
        reloadable=True,
    )
    environments_groups: tuple[str, ...] = setting(
        "environments.groups",
        _rules(),
        "",
        """The same for groups of shared subscriptions by their share names, such as
        nightly-*=azure-qa.""",
        reloadable=True,
    )
    environments_user_property: str = setting(
        "environments.user_property",
        text(),
        "holdfast-environment",
        """The user property of CONNECT in which a client says which environment it is of.""",
        reloadable=True,
    )
    environments_groups_without_environment: str = setting(
        "environments.groups_without_environment",
        choice("warn", "allow", "refuse"),
        "warn",
        """What becomes of a subscription to a group whose share name tells no environment, which
        several environments could share and so take one another's messages: it is told in the log,
        as soon as any environment is known (warn), or nothing is said (allow), or it is refused
        with reason code 0x83 (refuse).""",
        reloadable=True,
    )
    environments_theft_window_s: int = setting(
        "environments.theft_window_s",
        duration(20, 3_600),
        "60s",
        """How long it is remembered who took what from a group: a group is told of while within so
        long another environment than its own has taken of it.""",
        reloadable=True,
    )
