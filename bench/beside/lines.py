"""The lines: what a broker holds, and what somebody does to it while the prober looks.

Those of rows a to h were found with a broker that stood still for seconds; each says at `scale` 1
what was tried there.
"""

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bench.beside.figures import Bound
from bench.beside.filling import leave_sessions, publish
from bench.beside.served import stored_bytes, wait_until_shrunk
from bench.beside.stage import Flow, Stage
from bench.beside.wire import Peer

REST_S = 10.0
SHORT_REST_S = 4.0
RETENTION_BYTES = 128 << 20
MIB = 1 << 20
KIB = 1 << 10
HEAVY_FLOW = Flow(20_000, KIB)
"""20 MB/s."""
SEEKER = "seeker"
"""The one that comes back with filters that match nothing."""
SEEKER_FILTERS = 200
MANY_SESSIONS = {"limits.sessions_maximum": 10_000_000}
"""So that a scale of 5 or 10 fits."""
RETURNING = 50
RETURNED_WITHIN_S = 60.0
SMALL = bytes(64)
APPLICATION = "application-away"
RETURN_STEP_MS = 50.0
QUEUES_STEP_MS = 1_000.0
WAITED = "until PINGRESP"
LOWERED_WITHIN_S = 60.0
AFTER_S = 3.0


@dataclass(frozen=True)
class Line:
    """One of them."""

    name: str
    title: Callable[[int], str]
    """What is there, at a scale."""
    act: Callable[[Stage, int], None]
    fill: Callable[[int, int], None] | None = None
    """Makes over MQTT, on a port, what is there at a scale."""
    log: str = ""
    """Lines with the same word here find the same log."""
    settings: Mapping[str, object] = field(default_factory=dict)
    flow: Flow | None = None
    """What the pairs do, if not a tenth of their throughput."""
    peers: tuple[str, ...] = ()
    bounds: tuple[Bound, ...] = ()
    is_probed: bool = True
    """False where it is about its own figures only."""


def _rest(stage: Stage, _scale: int) -> None:
    stage.rest(REST_S)


def return_once(port: int, client_identifier: str) -> dict[str, float]:
    """A client comes back and asks for a sign of life; how long it waited, in milliseconds. One
    that gives up waited until then."""
    began = time.monotonic()
    waited = {}
    try:
        peer = Peer(port, client_identifier)
        waited["until CONNACK"] = (time.monotonic() - began) * 1e3
        peer.ping()
        waited[WAITED] = (time.monotonic() - began) * 1e3
        peer.leave()
    except OSError:
        given_up = (time.monotonic() - began) * 1e3
        waited = {"until CONNACK": given_up, WAITED: given_up, "gave up": 1.0, **waited}
    return waited


# --- a: many topics, many who are away ------------------------------------------------------------


def _fill_dashboards(port: int, scale: int) -> None:
    leave_sessions(port, "dashboard", 100 * scale, lambda _: ["zebra/fx/+/reads"])
    publish(port, (f"zebra/fx/{n}/reads" for n in range(20_000 * scale)), SMALL)


# --- b, c: many topics, filters that match none of them -------------------------------------------


def _fill_sites(port: int, topics: int, sessions: int) -> None:
    def filters(number: int) -> list[str]:
        return [f"site/{number % 100}/+/+/state", f"+/+/unit/{number}/state", f"alarm/{number}/#"]

    nothing = [f"site/+/unit/+/nothing-{n}" for n in range(SEEKER_FILTERS)]
    leave_sessions(port, SEEKER, 1, lambda _: nothing)
    leave_sessions(port, "watcher", sessions, filters)
    publish(port, (f"site/{n % 100}/unit/{n}/state" for n in range(topics)), SMALL)


def _return_twice(stage: Stage, _scale: int) -> None:
    stage.rest(SHORT_REST_S)
    for which in ("comes back", "comes back again"):
        with stage.window(f"one with 200 filters that match nothing {which}") as own:
            own |= return_once(stage.broker.port, f"{SEEKER}0")
        stage.rest(1.0, "after it")


def _ask_for_queues(stage: Stage, _scale: int) -> None:
    stage.rest(SHORT_REST_S)
    for path in ("/v1/queues", "/v1/queues?limit=1000", "/metrics"):
        with stage.window(f"GET {path}") as own:
            own[path] = stage.get(path)
        stage.rest(1.0, "after it")


# --- d: dashboards that return one after another --------------------------------------------------

KINDS = ("temperature", "status", "battery")


def _fill_fleet(port: int, scale: int) -> None:
    nothing = [f"+/+/nothing-{n}" for n in range(SEEKER_FILTERS)]
    leave_sessions(port, SEEKER, 1, lambda _: nothing)
    leave_sessions(port, "dashboard", 200 * scale, lambda _: [f"+/+/{kind}" for kind in KINDS])
    topics = 50_000 * scale
    numbers = itertools.islice(itertools.cycle(range(topics)), 70_000 * scale)
    publish(port, (f"fleet/{n}/{KINDS[n % 3]}" for n in numbers), SMALL)


def _return_in_turn(stage: Stage, _scale: int) -> None:
    stage.rest(REST_S)
    with stage.window("one with 200 filters that match nothing comes back") as own:
        own |= return_once(stage.broker.port, f"{SEEKER}0")
    with stage.window(f"{RETURNING} of those come back one after another") as own:
        began = time.monotonic()
        waited: list[dict[str, float]] = []
        while len(waited) < RETURNING and time.monotonic() - began < RETURNED_WITHIN_S:
            waited.append(return_once(stage.broker.port, f"dashboard{len(waited)}"))
        own["came back"] = len(waited)
        for what in ("until CONNACK", WAITED):
            own[f"longest {what}"] = max(one[what] for one in waited)
    with stage.window("GET /v1/topics?limit=1000") as own:
        own["/v1/topics"] = stage.get("/v1/topics?limit=1000")


# --- e, g, h: chores beside 20 MB/s ------------------------------------------------------------


def _fill_devices(port: int, scale: int) -> None:
    leave_sessions(port, "device", 200_000 * scale, lambda number: [f"device/{number}/down"])


def _fill_topics(port: int, scale: int) -> None:
    publish(port, (f"topic/{n % 1_000}/{n}" for n in range(1_000_000 * scale)), SMALL)


def _flood(stage: Stage, _scale: int) -> None:
    with stage.window("20 MB/s come in") as own:
        time.sleep(2 * REST_S)
        own["MiB of log in the end"] = stored_bytes(stage.broker.directory) / MIB


# --- f: retention is lowered -------------------------------------------------------------------


def _fill_long(*away: str) -> Callable[[int, int], None]:
    def fill(port: int, scale: int) -> None:
        for name in away:
            leave_sessions(port, name, 1, lambda _: ["fleet/#"])
        count = int(2_400_000 * scale)
        publish(port, (f"fleet/{n % 1_000}/reads" for n in range(count)), bytes(KIB))

    return fill


def _lower_retention(stage: Stage, _scale: int) -> None:
    stage.rest(SHORT_REST_S)
    before = stored_bytes(stage.broker.directory)
    with stage.window("log.retention_bytes lowered to 128 MiB") as own:
        began = time.monotonic()
        stage.broker.reload({"log.retention_bytes": RETENTION_BYTES})
        size = wait_until_shrunk(stage.broker.directory, before // 2, LOWERED_WITHIN_S)
        while (now := _after(stage)) < size:
            size = now
        own["until the log stays as it is"] = (time.monotonic() - began - AFTER_S) * 1e3
        own["MiB of log in the end"] = size / MIB


def _after(stage: Stage) -> int:
    time.sleep(AFTER_S)
    return stored_bytes(stage.broker.directory)


def _lowered(kind: str, who: str, settings: Mapping[str, object], *away: str) -> Line:
    return Line(
        f"f-{kind}",
        lambda scale: f"{2.6 * scale:g} GB of log, {who} away",
        _lower_retention,
        _fill_long(*away),
        f"long-{kind}",
        settings,
    )


APPLICATIONS = {"application.client_identifiers": [f"{APPLICATION}*"]}

TABLE = (
    Line("alone", lambda _: "nothing else", _rest, peers=("mosquitto", "nats")),
    Line(
        "a",
        lambda s: f"{20_000 * s} topics, {100 * s} sessions away with zebra/fx/+/reads",
        _rest, _fill_dashboards, "dashboards", peers=("mosquitto", "nats"),
    ),
    Line(
        "b",
        lambda s: f"{100_000 * s} topics",
        _return_twice,
        lambda port, scale: _fill_sites(port, 100_000 * scale, 300),
        "sites",
        bounds=(Bound(WAITED, RETURN_STEP_MS),),
    ),
    Line(
        "c",
        lambda s: f"{100_000 * s} topics, 300 sessions at rest with 3 filters each",
        _ask_for_queues,
        lambda port, scale: _fill_sites(port, 100_000 * scale, 300),
        "sites",
        bounds=(Bound("/v1/queues", QUEUES_STEP_MS),),
    ),
    Line(
        "c-many",
        lambda s: f"100000 topics, {10_000 * s} sessions at rest with 3 filters each",
        _ask_for_queues,
        lambda port, scale: _fill_sites(port, 100_000, 10_000 * scale),
        "sites-many",
        bounds=(Bound("/v1/queues", QUEUES_STEP_MS),),
    ),
    Line(
        "d",
        lambda s: f"{50_000 * s} topics, {200 * s} sessions away with 3 filters, {70_000 * s} wait",
        _return_in_turn, _fill_fleet, "fleet",
        bounds=(Bound(WAITED, RETURN_STEP_MS),),
    ),
    Line(
        "e",
        lambda s: f"{200_000 * s} sessions at rest, retention at 128 MiB",
        _flood, _fill_devices, "devices",
        {**MANY_SESSIONS, "log.retention_bytes": RETENTION_BYTES}, HEAVY_FLOW,
    ),
    _lowered("nobody", "nobody", {}),
    _lowered("device", "one DEVICE client", {}, "device-away"),
    _lowered("application", "one APPLICATION client", APPLICATIONS, APPLICATION),
    Line(
        "g",
        lambda s: f"{200_000 * s} sessions at rest, a checkpoint each 64 MiB",
        _flood, _fill_devices, "devices",
        {**MANY_SESSIONS, "log.checkpoint_bytes": 64 * MIB}, HEAVY_FLOW,
    ),
    Line(
        "h",
        lambda s: f"{1_000_000 * s} topics, retention at 128 MiB, a checkpoint each 64 MiB",
        _flood, _fill_topics, "topics",
        {"log.checkpoint_bytes": 64 * MIB, "log.retention_bytes": RETENTION_BYTES}, HEAVY_FLOW,
    ),
)  # fmt: skip
