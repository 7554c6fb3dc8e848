"""The metrics of groups one by one, and of environments.

Invariant: at most GROUPS_SHOWN_MAXIMUM groups and ENVIRONMENTS_MAXIMUM environments are labels.
"""

from collections.abc import Callable
from typing import Final

from holdfast.broker.observe.environments import EnvironmentStanding, GroupStanding
from holdfast.broker.observe.metric import Labelled, Metric
from holdfast.broker.observe.snapshot import Snapshot


def _of_groups(read: Callable[[GroupStanding], float]) -> Callable[[Snapshot], Labelled]:
    def labelled(seen: Snapshot) -> Labelled:
        return [((row.group, row.environment or ""), read(row)) for row in seen.oldest_groups]

    return labelled


def _of_environments(
    read: Callable[[EnvironmentStanding], float],
) -> Callable[[Snapshot], Labelled]:
    return lambda seen: [((row.name,), read(row)) for row in seen.environments]


ENVIRONMENT_METRICS: Final = (
    Metric("holdfast_group_waiting_messages", "gauge",
           "Messages of a group that nobody has, as of the last round over all groups, as all of"
           " these; the oldest hundred groups are shown, each with its environment.",
           _of_groups(lambda row: row.waiting), ("group", "environment")),
    Metric("holdfast_group_in_flight_messages", "gauge",
           "Messages of a group that members have and have not acknowledged.",
           _of_groups(lambda row: row.in_flight), ("group", "environment")),
    Metric("holdfast_group_members", "gauge", "Clients that are attached to a group.",
           _of_groups(lambda row: row.members), ("group", "environment")),
    Metric("holdfast_environment_clients", "gauge",
           "Clients of an environment that are connected, as of the last round, as all of these.",
           _of_environments(lambda row: row.clients), ("environment",)),
    Metric("holdfast_environment_groups", "gauge", "Groups of an environment.",
           _of_environments(lambda row: len(row.groups)), ("environment",)),
    Metric("holdfast_environment_waiting_messages", "gauge",
           "Messages that nobody has, of all groups of an environment.",
           _of_environments(lambda row: row.waiting), ("environment",)),
    Metric("holdfast_environment_in_flight_messages", "gauge",
           "Messages that members have and have not acknowledged, of all of them.",
           _of_environments(lambda row: row.in_flight), ("environment",)),
    Metric("holdfast_environment_lost_messages", "counter",
           "Messages that will not be delivered to an environment's clients and groups, as far as"
           " their names tell it, by reason.",
           lambda seen: seen.losses_of_environments.items(), ("environment", "reason")),
    Metric("holdfast_environment_thefts", "gauge",
           "Groups that an environment shares with others now: its own that others take from, and"
           " those of others that it takes from.",
           _of_environments(lambda row: len(row.thefts)), ("environment",)),
    Metric("holdfast_environment_thefts_found", "counter",
           "Groups that another environment than their own was found to take from.",
           lambda seen: seen.thefts_found),
    Metric("holdfast_environment_taken_messages", "counter",
           "Messages of an environment's groups that clients of another one were given.",
           lambda seen: seen.taken_by_others.items(), ("environment", "by")),
)  # fmt: skip
