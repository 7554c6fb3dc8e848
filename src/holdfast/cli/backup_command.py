"""`holdfast backup` and `holdfast restore`: a copy of everything, beside a running broker too."""

import argparse
from pathlib import Path

from holdfast import system
from holdfast.cli.options import Subparsers, add_settings, effective
from holdfast.reading import backup


def add_to(commands: Subparsers) -> None:
    """Make both commands known."""
    parser = commands.add_parser(
        "backup",
        help="copy everything that is durable, beside a running broker too",
        description="Copy messages, retained messages, sessions and whatever else the log holds"
        " into a new directory, and read every checksum of the copy. A running broker is not"
        " disturbed. The copy is a data directory: a broker can be started on it.",
        allow_abbrev=False,
    )
    parser.add_argument("target", metavar="TARGET", type=Path, help="the directory to make")
    add_settings(parser, "data.dir")
    parser.set_defaults(run=run_backup)
    parser = commands.add_parser(
        "restore",
        help="make a data directory from a backup",
        description="Copy a backup into a new data directory, and read every checksum. The data"
        " directory must not exist, or be empty: nothing is ever overwritten.",
        allow_abbrev=False,
    )
    parser.add_argument("source", metavar="BACKUP", type=Path, help="what `backup` has made")
    add_settings(parser, "data.dir")
    parser.set_defaults(run=run_restore)


def run_backup(options: argparse.Namespace) -> int:
    """Copy the data directory to the target."""
    return _copy(effective(options).config.data_dir, options.target)


def run_restore(options: argparse.Namespace) -> int:
    """Copy the backup to the data directory."""
    return _copy(options.source, effective(options).config.data_dir)


def _copy(source: Path, target: Path) -> int:
    # Each segment is held open twice while it is copied.
    system.raise_open_files_limit()
    copied = backup.copy(source, target)
    print(f"{target}: {copied.files} files, {copied.bytes} bytes, every checksum is right")
    print(f"messages from offset {copied.begin_offset} up to {copied.end_offset}")
    return 0
