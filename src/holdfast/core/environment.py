"""Environments that share a broker: how they are called, and which clients and groups are whose.

Owns: the name of an environment, and the rules by which an identifier or a share name tells it.
Never: knows who is connected.

Invariant: the name of an environment can be the end of a share name, so it has no `/`, `+`, `#` and
no blank.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

NAME_CHARACTERS_MAXIMUM: Final = 64
"""The longest name of an environment: it stands in share names, identifiers and labels of
metrics."""
_NAME: Final = re.compile(r"[^\s/+#*=,\x00-\x20\x7f]+")

Rule = tuple[re.Pattern[str], str]
"""What fits the pattern is of this environment."""


def is_environment_name(text: str) -> bool:
    """True if an environment may be called so."""
    return len(text) <= NAME_CHARACTERS_MAXIMUM and _NAME.fullmatch(text) is not None


def is_environment_rule(text: str) -> bool:
    """True for a pattern, in which `*` stands for anything, an equals sign and an environment."""
    pattern, _, name = text.rpartition("=")
    return bool(pattern) and is_environment_name(name)


@dataclass(frozen=True, slots=True)
class Naming:
    """By what names clients and groups tell their environment."""

    names: tuple[str, ...]
    """Those that are known, the longest first: `eu-prod` before `prod`."""
    client_rules: tuple[Rule, ...]
    group_rules: tuple[Rule, ...]

    @classmethod
    def of(cls, names: Iterable[str], clients: Iterable[str], groups: Iterable[str]) -> Self:
        """The rules as they are written in the settings; whatever they name is known."""
        client_rules, group_rules = tuple(map(_rule, clients)), tuple(map(_rule, groups))
        ruled = (name for _, name in (*client_rules, *group_rules))
        known = dict.fromkeys((*names, *ruled))
        return cls(_longest_first(known), client_rules, group_rules)

    @property
    def is_in_use(self) -> bool:
        """True if any environment is known."""
        return bool(self.names)

    def knowing(self, name: str) -> "Naming":
        """The same, with one more name."""
        return Naming(_longest_first((*self.names, name)), self.client_rules, self.group_rules)

    def of_client(self, client_identifier: str) -> str:
        """The environment of a client that has not said it: by a rule, or by a name that stands
        in its identifier as a part of its own, between hyphens; empty if nothing tells it."""
        ruled = _by_rule(self.client_rules, client_identifier)
        if ruled:
            return ruled
        ended = f"{client_identifier}-"
        return next((name for name in self.names if f"-{name}-" in ended), "")

    def of_group(self, share_name: str) -> str:
        """The environment of a group: by a rule, or by the name that its share name ends with;
        empty if nothing tells it."""
        ruled = _by_rule(self.group_rules, share_name)
        if ruled:
            return ruled
        return next((name for name in self.names if share_name.endswith(f"-{name}")), "")


def _rule(text: str) -> Rule:
    pattern, _, name = text.rpartition("=")
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL), name


def _by_rule(rules: Iterable[Rule], text: str) -> str:
    return next((name for pattern, name in rules if pattern.fullmatch(text)), "")


def _longest_first(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(dict.fromkeys(names), key=lambda name: (-len(name), name)))
