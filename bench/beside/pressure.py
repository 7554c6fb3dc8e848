"""Lines in which clients ask for more than their part: heavy things that are allowed, and filters,
topics and sessions that nobody would have in earnest.

Each that presses is a process of its own, so that none waits for another's interpreter.
"""

import itertools
import multiprocessing
import random
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from bench.beside.filling import leave_sessions, publish
from bench.beside.lines import APPLICATION, APPLICATIONS, REST_S, SHORT_REST_S, SMALL, Line
from bench.beside.stage import Stage, read_http, timed
from bench.beside.wire import Peer

RETAINED_TOPICS = 100_000
BACKLOG_MESSAGES = 1_000_000
BACKLOG_TOPICS = 1_000
FILTERS_AT_ONCE = 1_000
SESSIONS = 300
PRESSES_WITHIN_S = 60.0
"""Whoever has not ended by then is ended."""
LEVELS = 12
FILTERS_OF_BAD_INPUT = 500
LEVEL_NAMES = 6
TOPICS_A_BATCH = 200
BATCH_EVERY_S = 0.05
"""4 000 new topics a second."""
CHURNERS = 3
SEED = 11

QUESTIONS = (
    "/v1/queues?limit=1000",
    "/v1/topics?limit=1000",
    "/v1/sessions?limit=1000",
    "/v1/backlog",
    "/v1/backlog/longest",
    "/v1/statistics",
    "/metrics",
)

Question = TypeVar("Question")
Press = Callable[[Stage], float]
"""Does its worst; how many milliseconds it took, or each question took."""


def _fill(port: int, scale: int) -> None:
    leave_sessions(port, APPLICATION, 1, lambda _: ["backlog/#"])
    leave_sessions(port, "watcher", SESSIONS, lambda n: [f"site/{n}/+/state", f"+/+/{n}/state"])
    publish(
        port,
        (f"site/{n % 1_000}/{n}/state" for n in range(RETAINED_TOPICS * scale)),
        SMALL,
        retain=True,
    )
    publish(port, (f"backlog/{n % BACKLOG_TOPICS}" for n in range(BACKLOG_MESSAGES * scale)), SMALL)


def _come_back(stage: Stage) -> float:
    def take() -> None:
        peer = Peer(stage.broker.port, f"{APPLICATION}0")
        peer.take(BACKLOG_MESSAGES)
        peer.drop()

    return timed(take)


def _subscribe_to_much(stage: Stage) -> float:
    peer = Peer(stage.broker.port, "subscribes-to-much", clean=True)
    filters = [f"site/+/+/+/nothing-{n}/#" for n in range(FILTERS_AT_ONCE)]
    took = timed(lambda: peer.subscribe(filters))
    peer.leave()
    return took


def _ask_for_retained(stage: Stage) -> float:
    peer = Peer(stage.broker.port, "asks-for-retained", clean=True)

    def ask() -> None:
        peer.subscribe(["site/#"])
        peer.take(RETAINED_TOPICS)

    took = timed(ask)
    peer.drop()
    return took


def _ask_everything(stage: Stage) -> float:
    """The longest answer of an administrator who asks for everything in a loop."""
    return max(_until(lambda path: stage.get(path), itertools.cycle(QUESTIONS)))


def _read_everything(stage: Stage) -> float:
    """The longest answer of a reader at full speed, as Spark's tasks are."""
    end = BACKLOG_MESSAGES + RETAINED_TOPICS
    parts = itertools.cycle(range(0, end, 50_000))
    port = stage.broker.http_port

    def ask(offset: int) -> float:
        path = f"/v1/log/records?from={offset}&to={offset + 50_000}"
        return timed(lambda: read_http(port, path))

    return max(_until(ask, parts))


def _until(ask: Callable[[Question], float], questions: Iterator[Question]) -> Iterator[float]:
    began = time.monotonic()
    while time.monotonic() - began < REST_S:
        yield ask(next(questions))


PRESSES: dict[str, Press] = {
    "one comes back to a million messages": _come_back,
    "one subscribes to 1000 wildcard filters in one packet": _subscribe_to_much,
    "one asks for the retained messages of 100000 topics": _ask_for_retained,
    "an administrator asks for everything in a loop": _ask_everything,
    "a reader reads everything at full speed": _read_everything,
}


def press(stage: Stage, presses: dict[str, Press]) -> dict[str, float]:
    """All of them at the same time; how long each took or waited."""
    queue: multiprocessing.Queue[tuple[str, float]] = multiprocessing.Queue()

    def run(name: str, one: Press) -> None:
        queue.put((name, one(stage)))

    processes = [
        multiprocessing.Process(target=run, args=(name, one)) for name, one in presses.items()
    ]
    ends_at = time.monotonic() + PRESSES_WITHIN_S
    for process in processes:
        process.start()
    for process in processes:
        process.join(max(0.0, ends_at - time.monotonic()))
    took = dict.fromkeys(presses, PRESSES_WITHIN_S * 1e3)
    while not queue.empty():
        name, milliseconds = queue.get()
        took[name] = milliseconds
    for name, process in zip(presses, processes, strict=True):
        if process.exitcode:
            took[f"{name}: failed with"] = process.exitcode
        process.kill()
        process.join()
    return took


def _pressing(presses: dict[str, Press]) -> Callable[[Stage, int], None]:
    def act(stage: Stage, _scale: int) -> None:
        stage.rest(SHORT_REST_S)
        title = "all of that" if len(presses) > 1 else next(iter(presses))
        with stage.window(title) as own:
            own |= press(stage, presses)

    return act


def _line(name: str, presses: dict[str, Press]) -> Line:
    def title(scale: int) -> str:
        return (
            f"{RETAINED_TOPICS * scale} topics with retained messages, {SESSIONS} sessions at rest,"
            f" {BACKLOG_MESSAGES * scale} messages for one APPLICATION client"
        )

    return Line(name, title, _pressing(presses), _fill, "pressure", APPLICATIONS)


# --- j: bad input -------------------------------------------------------------------------------


def _deep_topics(seed: int) -> Iterator[str]:
    """Topics of twelve levels, each level one of a few names."""
    chosen = random.Random(seed)
    while True:
        yield "/".join(f"l{chosen.randrange(LEVEL_NAMES)}" for _ in range(LEVELS))


def _deep_filters(seed: int) -> list[str]:
    """Filters for them that keep a matcher busy: mostly `+`, with a name that is not there last."""
    chosen = random.Random(seed)

    def level() -> str:
        return "+" if chosen.random() < 0.8 else f"l{chosen.randrange(LEVEL_NAMES)}"

    return [
        "/".join([*(level() for _ in range(LEVELS - 1)), f"x{n}"])
        for n in range(FILTERS_OF_BAD_INPUT)
    ]


def _fill_deep(port: int, scale: int) -> None:
    leave_sessions(port, "deep", 20 * scale, lambda number: _deep_filters(SEED + number))
    publish(port, itertools.islice(_deep_topics(SEED), 50_000 * scale), SMALL)


def _deep_again(stage: Stage) -> float:
    """A client subscribes to costly filters by the hundred, and leaves, again and again."""

    def ask(number: int) -> float:
        peer = Peer(stage.broker.port, "deep-asker", clean=True)
        took = timed(lambda: peer.subscribe(_deep_filters(number)))
        peer.drop()
        return took

    return max(_until(ask, itertools.count(1)))


def _publish_deep(stage: Stage) -> float:
    topics = _deep_topics(SEED + 1)
    return _batches(stage, lambda: list(itertools.islice(topics, TOPICS_A_BATCH)))


def _publish_new(stage: Stage) -> float:
    numbers = itertools.count()
    return _batches(stage, lambda: [f"once/{next(numbers)}" for _ in range(TOPICS_A_BATCH)])


def _batches(stage: Stage, batch: Callable[[], list[str]]) -> float:
    def ask(topics: list[str]) -> float:
        took = timed(lambda: publish(stage.broker.port, topics, SMALL))
        time.sleep(BATCH_EVERY_S)
        return took

    return max(_until(ask, (batch() for _ in itertools.count())))


def _churn(stage: Stage) -> float:
    """Sessions come and go as fast as they can; the longest stay of one."""
    prefix = f"churn-{multiprocessing.current_process().pid}-"

    def ask(number: int) -> float:
        def stay() -> None:
            peer = Peer(stage.broker.port, f"{prefix}{number}")
            peer.subscribe([f"churn/{number}/+", "churn/+/all"])
            peer.leave()

        return timed(stay)

    return max(_until(ask, itertools.count()))


BAD_INPUT = (
    Line(
        "j-filters",
        lambda s: (
            f"{50_000 * s} topics of twelve levels, {20 * s} sessions away with"
            f" {FILTERS_OF_BAD_INPUT} filters of mostly +"
        ),
        _pressing(
            {"one subscribes to such filters": _deep_again, "more such topics": _publish_deep}
        ),
        _fill_deep,
        "deep",
    ),
    Line(
        "j-topics",
        lambda _: "nothing else",
        _pressing({"topics that are never used twice": _publish_new}),
    ),
    Line(
        "j-sessions",
        lambda _: "nothing else",
        _pressing({f"sessions come and go ({n})": _churn for n in range(1, CHURNERS + 1)}),
    ),
)

PRESSURE = (
    _line("i-return", dict(itertools.islice(PRESSES.items(), 0, 1))),
    _line("i-filters", dict(itertools.islice(PRESSES.items(), 1, 2))),
    _line("i-retained", dict(itertools.islice(PRESSES.items(), 2, 3))),
    _line("i-administrator", dict(itertools.islice(PRESSES.items(), 3, 4))),
    _line("i-reader", dict(itertools.islice(PRESSES.items(), 4, 5))),
    _line("i-all", PRESSES),
    *BAD_INPUT,
)
