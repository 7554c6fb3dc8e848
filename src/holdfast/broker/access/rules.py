"""Rules as grants for the kernel, and which subscriptions a grant allows.

Owns: what a rule means. Never: knows whose rules they are.

A grant is a list of topic filters, each with "allowed" or not. The first filter that matches a
topic decides about it; where none does, it is denied. `None` is the grant that allows everything.

What rules say about an action:
- publish: the rules for publish and all.
- receive: the rules for receive, subscribe and all. Whoever may subscribe may receive, unless a
  rule for receive says otherwise before.
- subscribe: the rules for subscribe and all, looked at in order. A rule that denies and has a topic
  in common with the subscription's filter refuses it; one that allows and covers the filter grants
  it; where none does either, it is refused. So a subscription that is granted cannot match a topic
  that these rules deny.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast.broker.access.credential import Rule
from holdfast.broker.access.filters import covers, overlap
from holdfast.kernel import topic_matches

Grant = Sequence[tuple[bytes, bool]]

PUBLISH: Final = frozenset({"publish", "all"})
SUBSCRIBE: Final = frozenset({"subscribe", "all"})
RECEIVE: Final = frozenset({"receive", "subscribe", "all"})

_PLACEHOLDER: Final = re.compile("%[cu]")
_UNSAFE: Final = re.compile(r"[+#/\0]")


def compile_grant(
    rules: Iterable[Rule], actions: frozenset[str], *, client_identifier: str, user_name: str | None
) -> list[tuple[bytes, bool]]:
    """The rules for some actions as a grant, for one client.

    A name that cannot stand in one level of a topic must not change what a rule means: with such a
    name a rule that allows matches nothing, and one that denies whatever it could have meant.
    """
    names = {"%c": client_identifier, "%u": user_name or ""}
    grant = []
    for rule in rules:
        if rule.action in actions:
            topic_filter = _substitute(rule, names)
            if topic_filter is not None:
                grant.append((topic_filter.encode(), rule.allowed))
    return grant


def allows_topic(grant: Grant | None, topic_name: str) -> bool:
    """True if a grant allows this topic."""
    if grant is None:
        return True
    name = topic_name.encode()
    return next((allowed for item, allowed in grant if topic_matches(item, name)), False)


def allows_filter(grant: Grant | None, topic_filter: str) -> bool:
    """True if a grant allows every topic that this filter matches."""
    if grant is None:
        return True
    for item, allowed in grant:
        rule_filter = item.decode()
        if allowed and covers(rule_filter, topic_filter):
            return True
        if not allowed and overlap(rule_filter, topic_filter):
            return False
    return False


def _substitute(rule: Rule, names: dict[str, str]) -> str | None:
    if "%" not in rule.topic_filter:
        return rule.topic_filter
    used = _PLACEHOLDER.findall(rule.topic_filter)
    if all(_is_level(names[placeholder], rule.allowed) for placeholder in used):
        # In one pass: a client identifier may well contain "%u".
        return _PLACEHOLDER.sub(lambda found: names[found[0]], rule.topic_filter)
    if rule.allowed:
        return None
    levels = rule.topic_filter.split("/")
    first = next(at for at, level in enumerate(levels) if _PLACEHOLDER.search(level))
    return "/".join([*levels[:first], "#"])


def _is_level(name: str, allowed: bool) -> bool:
    if not name or _UNSAFE.search(name):
        return False
    # At the start of a filter it would reach topics that wildcards do not [MQTT-4.7.2-1].
    return not (allowed and name.startswith("$"))
