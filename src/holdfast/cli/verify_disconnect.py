"""`holdfast verify disconnect`: the decision record's controlled disconnect test, played.

Owns: the processor's process while it is played, and what is printed. Never: judges.
"""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from holdfast import system
from holdfast.cli.options import Subparsers
from holdfast.cli.processors_command import add_configuration, configuration
from holdfast.core.errors import ConfigurationError, OperatingError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from holdfast.processors.arrivals import Marked
    from holdfast.processors.disconnect import Reads
    from holdfast.processors.settings import ProcessorSettings

READS_DEFAULT: Final = 20
AWAY_DEFAULT_S: Final = 90.0
"""The record has one waits one to two minutes."""
WITHIN_DEFAULT_S: Final = 60.0
LOOK_EVERY_S: Final = 0.2
STOPPED_WITHIN_S: Final = 60.0
PROBED_EVERY_S: Final = 1.0
TAKEN_WITHIN_S: Final = 60.0
"""What was published last is the broker's by then, or the test cannot be played."""
BROKER_GONE: Final = "the broker was gone before it had taken every read"
MARK_BYTES: Final = 4
TABLE: Final = "bbu.tag_read_processings"


class DisconnectUntriedError(OperatingError):
    """The test could not be played."""

    retriable = False


def add_to(actions: Subparsers) -> None:
    """Make the action known."""
    parser = actions.add_parser(
        "disconnect",
        help="stop a processor, publish reads, start it again, and look for them in its table",
        description="The controlled disconnect test: starts the processor of a configuration, stops"
        " it, publishes reads while it is away, starts it again, and says whether each is in its"
        " table, once, and whether they came close together. Exit code 0: it is so.",
        allow_abbrev=False,
    )
    add_configuration(parser)
    parser.add_argument("name", metavar="NAME", help="the processor, as in its configuration")
    parser.add_argument("--reads", metavar="COUNT", type=int, default=READS_DEFAULT)
    parser.add_argument("--away", metavar="SECONDS", type=float, default=AWAY_DEFAULT_S)
    parser.add_argument(
        "--within",
        metavar="SECONDS",
        type=float,
        default=WITHIN_DEFAULT_S,
        help=f"how long each wait for rows may take (default: {WITHIN_DEFAULT_S:.0f})",
    )
    parser.add_argument("--kill", action="store_true", help="end the processor with SIGKILL")
    parser.add_argument("--table", default=TABLE, help=f"its table (default: {TABLE})")
    own = parser.add_argument_group("a processor other than the built-in one")
    own.add_argument("--topic", help="where reads are published, with {mark} and {number}")
    own.add_argument("--payload", help="a read, with {mark}, {number} and {time} (ISO 8601)")
    own.add_argument("--mark-column", metavar="COLUMN", default="reader", help="has {mark}")
    own.add_argument("--number-column", metavar="COLUMN", default="event_number")
    own.add_argument("--event-column", metavar="COLUMN", default="event_timestamp_utc")
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Play it."""
    from holdfast.processors.disconnect import judge

    if options.reads < 1 or options.away < 0:
        raise ConfigurationError("--reads is at least 1, and --away no less than 0")
    (chosen,) = configuration(options).chosen([options.name])
    settings, reads = chosen.settings, _reads(options)
    mark = f"holdfast-verify-{system.entropy(MARK_BYTES).hex()}"

    def rows() -> "Sequence[Marked]":
        return _marked(options, settings, mark)

    with _processor(options) as process:
        _say(f"{settings.name} runs; a first read shows that it works")

        def is_seen() -> bool:
            # Before it has subscribed for the first time nobody keeps a read for it.
            asyncio.run(_publish(settings, reads, mark, range(1), PROBED_EVERY_S))
            return bool(rows()) or process.poll() is not None

        _wait(is_seen, options.within)
        if not rows():
            raise DisconnectUntriedError(
                f"{settings.name} has not taken the first read within {options.within:.0f} s"
            )
        process.send_signal(signal.SIGKILL if options.kill else signal.SIGTERM)
        process.wait(STOPPED_WITHIN_S)
    _say(f"it is stopped; {options.reads} reads are published over {options.away:.0f} s")
    asyncio.run(_publish(settings, reads, mark, range(1, options.reads + 1), options.away))
    with _processor(options) as process:
        _say("it is started again")
        _wait(
            lambda: not judge(rows(), options.reads).missing or process.poll() is not None,
            options.within,
        )
    verdict = judge(rows(), options.reads)
    if options.json:
        print(json.dumps({**asdict(verdict), "mark": mark, "is_good": verdict.is_good}))
    else:
        print(f"{'PASSED' if verdict.is_good else 'FAILED'}: {verdict.text()} ({mark})")
    return 0 if verdict.is_good else 1


def _reads(options: argparse.Namespace) -> "Reads":
    from holdfast.processors.disconnect import Reads

    if (options.topic is None) != (options.payload is None):
        raise ConfigurationError("--topic and --payload go together")
    return Reads() if options.topic is None else Reads(options.topic, options.payload)


def _marked(
    options: argparse.Namespace, settings: "ProcessorSettings", mark: str
) -> "Sequence[Marked]":
    """Its rows; none while the table is not there."""
    from holdfast.processors.arrivals import ArrivalsUnreadError, marked

    try:
        return marked(
            settings.sink,
            table=options.table,
            column=options.mark_column,
            mark=mark,
            number_column=options.number_column,
            event_column=options.event_column,
        )
    except ArrivalsUnreadError:
        return ()


@contextmanager
def _processor(options: argparse.Namespace) -> "Iterator[subprocess.Popen[bytes]]":
    """It runs meanwhile, in a process of its own."""
    command = [sys.executable, "-m", "holdfast", "processors", "run"]
    command += [str(Path(options.file)), options.name, *(["--dev"] if options.dev else [])]
    if options.deployment is not None:
        command += ["--deployment", options.deployment]
    # This program itself, with what it was told.
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # noqa: S603
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(STOPPED_WITHIN_S)


async def _publish(
    settings: "ProcessorSettings",
    reads: "Reads",
    mark: str,
    numbers: range,
    over_s: float = 0.0,
) -> None:
    """Publishes reads, evenly over a time, and waits until the broker has all."""
    from holdfast.client.mqtt import Client
    from holdfast.processors.session import options_of

    options = replace(options_of(settings), clean_start=True, session_expiry_interval_s=0)
    client = Client(mark, options)
    await client.connect(settings.broker_host, settings.broker_port)
    for number in numbers:
        client.publish(reads.publication(mark, number, system.now_us()))
        await asyncio.sleep(over_s / len(numbers))
        # A lost connection never becomes idle: this client does not connect again.
        if client.lost.is_set() and not client.idle.is_set():
            raise DisconnectUntriedError(BROKER_GONE)
    try:
        async with asyncio.timeout(TAKEN_WITHIN_S):
            await client.idle.wait()
    except TimeoutError:
        raise DisconnectUntriedError(BROKER_GONE) from None
    client.disconnect()
    await client.lost.wait()


def _wait(is_so: Callable[[], bool], within_s: float) -> None:
    """Until it is so, or the time is over."""
    end_s = system.monotonic_s() + within_s
    while not is_so() and system.monotonic_s() < end_s:
        asyncio.run(asyncio.sleep(LOOK_EVERY_S))


def _say(what: Any) -> None:
    print(what, file=sys.stderr)
