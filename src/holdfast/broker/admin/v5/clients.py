"""Clients as EMQX's tools ask for them: a page of them, and one."""

from datetime import UTC, datetime
from typing import Annotated, Final

from msgspec import UNSET, Meta, Struct, UnsetType

from holdfast.broker.admin.http.operation import (
    Answered,
    Asked,
    Operation,
    ProblemError,
    choice,
    text,
)
from holdfast.broker.admin.v5.paging import (
    NODE,
    PAGING,
    Paged,
    digit,
    first_of,
    flag,
    moment,
    texts,
    told,
)
from holdfast.broker.observe.clients import (
    ClientSeen,
    ClientsSeen,
    ConnectionsWanted,
    host_and_port,
)
from holdfast.broker.state.wanted import ClientsWanted
from holdfast.core.limits import SUBSCRIPTIONS_PER_SESSION_MAXIMUM

MISSING: Final = Answered("No client has this identifier.")
FOR_EVER_S: Final = 2**32 - 1
"""What MQTT calls an expiry interval without an end."""
PROTOCOL_VERSIONS: Final = (3, 4, 5)
PARAMETERS: Final = (
    *PAGING,
    texts("clientid", "Only clients with this identifier; given several times, with one of them."),
    texts("username", "Only clients of this user; given several times, of one of them."),
    text("like_clientid", "Only clients whose identifier contains this."),
    text("like_username", "Only clients whose user name contains this."),
    text("ip_address", "Only clients that are connected from this address."),
    choice(
        "conn_state",
        ("any", "connected", "idle", "disconnected"),
        "Only clients that are connected, or that are away; none is idle.",
    ),
    flag("clean_start", "Only clients that asked for a new session, or only the others."),
    digit("proto_ver", PROTOCOL_VERSIONS, "Only clients of this version: 3 is 3.1, 4 is 3.1.1."),
    moment("gte_created_at", "Only sessions that were opened then or later."),
    moment("lte_created_at", "Only sessions that were opened then or earlier."),
    moment("gte_connected_at", "Only clients that connected then or later."),
    moment("lte_connected_at", "Only clients that connected then or earlier."),
)


class Client(Struct, kw_only=True):
    """A client, connected or away with its session kept."""

    clientid: str
    username: str | None
    node: str
    connected: bool
    connected_at: str | UnsetType = UNSET
    disconnected_at: Annotated[
        str | UnsetType, Meta(description="Left out where a session is kept for ever.")
    ] = UNSET
    created_at: str | UnsetType = UNSET
    ip_address: str | UnsetType = UNSET
    port: int | UnsetType = UNSET
    listener: str | UnsetType = UNSET
    keepalive: int | UnsetType = UNSET
    clean_start: bool
    expiry_interval: int
    session_expiry_interval: Annotated[
        int, Meta(description="The same: how many seconds the session is kept.")
    ]
    is_persistent: bool
    durable: bool
    is_expired: bool
    is_bridge: bool
    proto_name: str
    proto_ver: int
    environment: Annotated[
        str | None, Meta(description="Whose the client is; null where nothing tells it.")
    ]
    subscriptions_cnt: int
    subscriptions_max: int
    inflight_cnt: int
    inflight_max: int | UnsetType = UNSET
    mqueue_len: Annotated[
        int,
        Meta(
            description="Messages that wait and are not in flight; in a page at least so many,"
            " where counting would take long. What a group has is the group's."
        ),
    ]


class ClientPage(Struct, kw_only=True):
    """A page of clients."""

    data: list[Client]
    meta: Paged


class ClientsView:
    """What can be asked about clients."""

    def __init__(self, clients: ClientsSeen) -> None:
        self._clients = clients

    def operations(self) -> list[Operation]:
        """What can be asked for."""
        return [
            Operation(
                method="GET",
                path="/api/v5/clients",
                name="listClients",
                summary="Clients that are connected, or whose sessions are kept; as EMQX 5 has it.",
                run=self.page,
                parameters=PARAMETERS,
                answers={200: Answered("A page of clients.", ClientPage)},
            ),
            Operation(
                method="GET",
                path="/api/v5/clients/{clientid}",
                name="showClient",
                summary="One client; as EMQX 5 has it.",
                run=self.show,
                answers={200: Answered("The client.", Client), 404: MISSING},
            ),
        ]

    async def page(self, asked: Asked) -> ClientPage:
        """A page of clients."""
        query = asked.query
        over = ConnectionsWanted(
            address=query["ip_address"],
            from_us=query["gte_connected_at"],
            until_us=query["lte_connected_at"],
        )
        if query["conn_state"] == "idle":
            meta = Paged(page=query["page"], limit=query["limit"], hasnext=False, count=0)
            return ClientPage(data=[], meta=meta)
        page = await self._clients.page(_wanted(asked), over, first_of(asked), query["limit"])
        return ClientPage(data=[_row(each) for each in page.rows], meta=told(asked, page))

    async def show(self, asked: Asked) -> Client:
        """One client."""
        found = await self._clients.show(asked.path["clientid"])
        if found is None:
            raise missing(asked.path["clientid"])
        return _row(found)


def missing(client_identifier: str) -> ProblemError:
    """There is no such client."""
    sentence = f"Client ID not found: no session has the client identifier {client_identifier!r}"
    return ProblemError(404, "clientid_not_found", sentence)


def _wanted(asked: Asked) -> ClientsWanted:
    query = asked.query
    states = {"connected": True, "disconnected": False}
    return ClientsWanted(
        names=query["clientid"],
        name_part=query["like_clientid"],
        user_names=query["username"],
        user_name_part=query["like_username"],
        connected=states.get(query["conn_state"]),
        clean_start=query["clean_start"],
        protocol_version=query["proto_ver"],
        created_from_us=query["gte_created_at"],
        created_until_us=query["lte_created_at"],
    )


def _row(seen: ClientSeen) -> Client:
    session, connection = seen.session, seen.connection
    address, port = ("", None) if connection is None else host_and_port(connection.peer)
    expiry_s = FOR_EVER_S if session.expiry_s is None else session.expiry_s
    left_us = None
    if session.expires_at_us is not None and session.expiry_s is not None:
        left_us = session.expires_at_us - session.expiry_s * 1_000_000
    return Client(
        clientid=session.client_identifier,
        username=session.user_name,
        node=NODE,
        connected=connection is not None,
        connected_at=UNSET if connection is None else _shown(connection.opened_at_us),
        disconnected_at=UNSET if left_us is None else _shown(left_us),
        created_at=UNSET if session.created_at_us is None else _shown(session.created_at_us),
        ip_address=UNSET if connection is None else address,
        port=UNSET if port is None else port,
        listener=UNSET if connection is None else f"{connection.transport}:default",
        keepalive=UNSET if seen.keep_alive_s is None else seen.keep_alive_s,
        clean_start=session.clean_start,
        expiry_interval=expiry_s,
        session_expiry_interval=expiry_s,
        is_persistent=session.persistent,
        durable=session.persistent,
        is_expired=seen.is_expired,
        is_bridge=False,
        proto_name="MQIsdp" if session.protocol_version == PROTOCOL_VERSIONS[0] else "MQTT",
        proto_ver=session.protocol_version,
        environment=seen.environment,
        subscriptions_cnt=seen.subscriptions,
        subscriptions_max=SUBSCRIPTIONS_PER_SESSION_MAXIMUM,
        inflight_cnt=seen.length.in_flight,
        inflight_max=UNSET if seen.receive_maximum is None else seen.receive_maximum,
        mqueue_len=max(seen.length.messages - seen.length.in_flight, 0),
    )


def _shown(time_us: int) -> str:
    moment = datetime.fromtimestamp(time_us // 1_000 / 1_000, tz=UTC)
    return moment.isoformat(timespec="milliseconds")
