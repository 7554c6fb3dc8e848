"""Whoever looks at all clients and groups now and then gives way in between."""

from types import SimpleNamespace
from typing import Any

from holdfast.broker.observe.environments import ROUND_EVERY_S, EnvironmentsSeen
from holdfast.broker.observe.thefts import MEMBERS_IN_A_PIECE, Thefts

CLIENTS = 2_000
GROUPS = 300
MEMBERS = 20
SECOND_US = 1_000_000


class Groups(SimpleNamespace):
    """All that are asked for are there."""

    def __contains__(self, _name: str) -> bool:
        return True


class Looked:
    """A broker with many clients and groups, and how much was looked at in one piece."""

    def __init__(self) -> None:
        self.pieces: list[int] = []
        self.seen = 0
        members = [
            SimpleNamespace(client_identifier=f"c{number}", delivered=1)
            for number in range(MEMBERS)
        ]
        self.broker: Any = SimpleNamespace(
            environments=SimpleNamespace(
                names=lambda: ("dev", "prod"),
                of_session=lambda _session: self._note("prod"),
                of_owner=lambda _client: self._note("dev"),
                of_group=lambda _group: "prod",
            ),
            sessions=SimpleNamespace(
                connected=lambda: [f"c{number}" for number in range(CLIENTS)],
                attached=lambda _client: SimpleNamespace(session=None),
            ),
            groups=Groups(
                names=list,
                queues=lambda: [(number, number, 0) for number in range(GROUPS)],
                open=lambda party: SimpleNamespace(name=f"g{party}", takers=range(MEMBERS)),
                shares=lambda _group: members,
            ),
            log=SimpleNamespace(inquire=lambda _effort: None),
            chores=SimpleNamespace(begin=self._begin),
            config=lambda: SimpleNamespace(environments_theft_window_s=60),
            now_us=lambda: 0,
        )

    def _note(self, environment: str) -> str:
        self.seen += 1
        return environment

    def _begin(self, pieces: Any, done: Any) -> None:
        for _ in pieces:
            self.pieces.append(self.seen)
            self.seen = 0
        self.pieces.append(self.seen)
        done(None)


def test_a_look_at_the_members_of_groups_is_done_in_pieces() -> None:
    looked = Looked()
    thefts = Thefts(looked.broker)
    thefts.look(0)
    assert sum(looked.pieces) == GROUPS * MEMBERS
    assert max(looked.pieces) <= MEMBERS_IN_A_PIECE + MEMBERS
    thefts.look(11 * SECOND_US)
    assert len(thefts.going_on()) == thefts.found == GROUPS
    assert thefts.taken == {("prod", "dev"): GROUPS * MEMBERS}, "what came once counts once"


def test_a_round_over_all_clients_is_done_in_pieces_and_not_every_second() -> None:
    looked = Looked()
    seen = EnvironmentsSeen(looked.broker, SimpleNamespace(look=lambda _now_us: None))  # type: ignore[arg-type]
    for second in range(ROUND_EVERY_S):
        seen.look(second * SECOND_US)
    assert sum(looked.pieces) == CLIENTS
    assert max(looked.pieces) <= 100
    seen.look(ROUND_EVERY_S * SECOND_US)
    assert sum(looked.pieces) == 2 * CLIENTS
