"""`holdfast top`: a running broker in the terminal, a new frame every second.

Owns: the terminal. Never: draws (`frame` does) or counts.
"""

import argparse
import select
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

from holdfast.cli.asking import add_broker, broker_of
from holdfast.cli.options import Subparsers

INTERVAL_S = 1.0


def add_to(commands: Subparsers) -> None:
    """Make the command known."""
    parser = commands.add_parser(
        "top",
        help="watch a running broker in the terminal",
        description="Show rates, clients, backlog, disk, and what is refused, every second."
        " q ends it.",
        allow_abbrev=False,
    )
    parser.add_argument("--once", action="store_true", help="print one frame and end")
    add_broker(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show frames until q is pressed."""
    # Imported here, since the other commands draw nothing, and `serve` is waited for.
    from rich.console import Console
    from rich.live import Live

    from holdfast.cli.frame import PLAIN_WIDTH, Sample, frame

    broker = broker_of(options)
    about = broker.get("/v1/broker")
    before = Sample(broker)
    console = Console()
    if options.once or not console.is_terminal:
        _wait_key(INTERVAL_S, keys=False)
        width = None if console.is_terminal else PLAIN_WIDTH
        Console(width=width).print(frame(about, before, Sample(broker)))
        return 0
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        while _wait_key(INTERVAL_S, keys=True) != "q":
            now = Sample(broker)
            live.update(frame(about, before, now), refresh=True)
            before = now
    return 0


def _wait_key(seconds: float, *, keys: bool) -> str:
    """The key that is pressed within so many seconds; empty if none is."""
    ready, _, _ = select.select([sys.stdin] if keys else [], [], [], seconds)
    return sys.stdin.read(1) if ready else ""


@contextmanager
def _keys() -> Iterator[None]:
    """Keys come as they are pressed, not as lines."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
