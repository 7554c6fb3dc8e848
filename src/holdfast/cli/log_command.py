"""`holdfast log`: look at the stored messages, beside a running broker too.

Never: locks the data directory or writes into it; what is not durable is not shown.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from holdfast.cli.options import Subparsers, add_settings, effective, row_count, time_us
from holdfast.cli.record_text import as_json, as_line, printable, time_text
from holdfast.core.errors import ConfigurationError, DirectoryError
from holdfast.core.layout import LOG_DIRECTORY
from holdfast.core.settings import show_size
from holdfast.kernel import LogReader, is_valid_topic_filter

TOPICS_PAGE = 10_000
"""Topics that are counted at once, so that a log of millions shows the first ones soon."""


def add_to(commands: Subparsers) -> None:
    """Make the command and its actions known."""
    parser = commands.add_parser(
        "log",
        help="look at the stored messages, beside a running broker too",
        description="Look at the stored messages. A running broker is not disturbed.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    _add_action(actions, "ranges", ranges, "the log's first and last offset and time, and its size")
    _add_action(actions, "segments", segments, "each file with its offsets, times and size")
    topics_parser = _add_action(actions, "topics", topics, "topics with their number of messages")
    topics_parser.add_argument("--filter", metavar="FILTER", help="only topics that match")
    _add_action(
        actions, "verify", verify, "read every checksum; exit code 1 if anything is damaged"
    )
    _add_selection(_add_action(actions, "records", records, "messages, a line each"))


def ranges(options: argparse.Namespace) -> int:
    """Print the log's extent."""
    reader = _reader(options)
    files = reader.segments()
    times = [(file["first_time_us"], file["last_time_us"]) for file in files if file.get("records")]
    found = {
        "directory": str(_directory(options)),
        "epoch": reader.epoch(),
        "begin_offset": reader.begin_offset(),
        "end_offset": reader.end_offset(),
        "first_time": time_text(min(first for first, _ in times)) if times else None,
        "last_time": time_text(max(last for _, last in times)) if times else None,
        "files": len(files),
        "bytes": sum(file["bytes"] for file in files),
    }
    if options.json:
        print(json.dumps(found, indent=2))
        return 0
    for name, value in found.items():
        print(f"{name:<13} {'-' if value is None else value}")
    return 0


def segments(options: argparse.Namespace) -> int:
    """Print a line for each file of the log."""
    files = _reader(options).segments()
    if options.json:
        print(json.dumps(files, indent=2))
        return 0
    for file in files:
        state = "sealed" if file["sealed"] else "open"
        print(
            f"{Path(file['file']).name}  {file['kind']:<5}  {state:<6}"
            f"  offsets {file['begin_offset']} to {file['end_offset']}"
            f"  {file['records']} records  {show_size(file['bytes'])}"
            f"  {_span(file)}"
        )
    return 0


def _span(file: dict[str, Any]) -> str:
    """From when to when its records are; one without any has no times."""
    if not file["records"]:
        return "-"
    return f"{time_text(file['first_time_us'])} to {time_text(file['last_time_us'])}"


def topics(options: argparse.Namespace) -> int:
    """Print topics with their number of stored messages."""
    topic_filter = None if options.filter is None else _valid_filter(options.filter).encode()
    found = _topics(_reader(options), topic_filter)
    if options.json:
        print(json.dumps(dict(found), indent=2))
        return 0
    for topic, count in found:
        print(f"{count:>10}  {printable(topic)}")
    return 0


def _topics(reader: LogReader, topic_filter: bytes | None) -> Iterator[tuple[str, int]]:
    after = b""
    while page := reader.topics(topic_filter, after, TOPICS_PAGE):
        yield from page
        after = page[-1][0].encode()


def verify(options: argparse.Namespace) -> int:
    """Read every checksum and say what is damaged."""
    damaged = _reader(options).verify()
    if options.json:
        print(json.dumps(damaged, indent=2))
    for part in [] if options.json else damaged:
        extent = f"bytes {part['first_position']} to {part['end_position']}"
        print(f"{part['file']}: {extent}: {part['reason']}")
    print(f"{len(damaged)} damaged" if damaged else "nothing is damaged", file=sys.stderr)
    return 1 if damaged else 0


def records(options: argparse.Namespace) -> int:
    """Print the selected messages."""
    show = as_json if options.json else as_line
    left = options.limit
    for row in _selected(options):
        if left == 0:
            print(f"stopped after {options.limit}; --limit shows more", file=sys.stderr)
            break
        print(show(row))
        left -= 1
    return 0


def _selected(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    # Imported here, since Arrow takes as long to load as everything else together.
    from holdfast.reading.criteria import Criteria
    from holdfast.reading.directory import LogDirectory
    from holdfast.reading.log import RecordsGoneError, UnreadableLogError, chunks, damage_text

    filters = (_valid_filter(each) for each in (*options.filter, *options.topic))
    criteria = Criteria(filters=tuple(filters))
    log = LogDirectory(str(_directory(options)))
    extent = log.extent()
    begin, end = extent.begin, extent.end
    if options.since is not None:
        begin = max(begin, log.offset_at(time_us(options.since)))
    if options.until is not None:
        end = min(end, log.offset_at(time_us(options.until)))
    begin = max(begin, options.from_offset or 0)
    end = end if options.to_offset is None else min(end, options.to_offset)
    try:
        for chunk in chunks(log, criteria, begin, end):
            yield from chunk.batch.to_pylist()
            if chunk.missing:
                print(damage_text(begin, chunk.next_offset, chunk.missing), file=sys.stderr)
            begin = chunk.next_offset
    except (RecordsGoneError, UnreadableLogError) as error:
        raise DirectoryError(str(error)) from error


def _reader(options: argparse.Namespace) -> LogReader:
    directory = _directory(options)
    return LogReader.open(str(directory))


def _directory(options: argparse.Namespace) -> Path:
    data_dir = effective(options).config.data_dir
    directory = data_dir / LOG_DIRECTORY
    if not directory.is_dir():
        raise DirectoryError(f"there is no log in {data_dir}; --data-dir names another directory")
    return directory


def _valid_filter(written: str) -> str:
    if not is_valid_topic_filter(written.encode()):
        raise ConfigurationError(f'"{written}" is not a topic filter')
    return written


def _add_action(actions: Subparsers, name: str, run: Any, about: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(
        name, help=about, description=f"Print {about}.", allow_abbrev=False
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_settings(parser, "data.dir")
    parser.set_defaults(run=run)
    return parser


def _add_selection(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--topic", metavar="NAME", action="append", default=[], help="messages of this topic")
    add(
        "--filter",
        metavar="FILTER",
        action="append",
        default=[],
        help="messages whose topic matches, such as 'zebra/+/reads'; may be given several times",
    )
    add("--from", dest="from_offset", metavar="OFFSET", type=row_count, help="from this offset on")
    add("--to", dest="to_offset", metavar="OFFSET", type=row_count, help="up to before this offset")
    add("--since", metavar="TIME", help="from this time on: 2026-01-31T12:00 (UTC), or an age: 10m")
    add("--until", metavar="TIME", help="up to this time")
    add(
        "--limit",
        metavar="COUNT",
        type=row_count,
        default=1_000,
        help="at most so many (default: 1000)",
    )
