"""`holdfast top`: a running broker in the terminal, a new frame every second.

Owns: the terminal. Never: draws (`frame` does) or counts.
"""

import argparse
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.cli.asking import add_broker, broker_of
from holdfast.cli.options import Subparsers

if TYPE_CHECKING:
    from rich.console import RenderableType

INTERVAL_S = 1.0
PLAIN_WIDTH = 100
"""Of a frame that goes to a file or a pipe."""


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
    from holdfast.cli.frame import Sample, frame

    broker = broker_of(options)
    about, before = broker.get("/v1/broker"), Sample(broker)

    def following() -> "RenderableType":
        nonlocal before
        now = Sample(broker)
        shown, before = frame(about, before, now), now
        return shown

    return show_frames(following, once=options.once)


def show_frames(frame: Callable[[], "RenderableType"], *, once: bool) -> int:
    """Show a frame every second until q is pressed; one alone where there is no terminal."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if once or not console.is_terminal:
        _wait_key(INTERVAL_S, keys=False)
        Console(width=None if console.is_terminal else PLAIN_WIDTH).print(frame())
        return 0
    with _keys(), Live(console=console, screen=True, auto_refresh=False) as live:
        while _wait_key(INTERVAL_S, keys=True) != "q":
            live.update(frame(), refresh=True)
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
