"""One option for each setting, and the effective settings from file, environment and options.

Flow: command line -> here -> `holdfast.core.config` -> a command.
"""

import argparse
from contextlib import suppress
from pathlib import Path
from typing import Any

from holdfast import system
from holdfast.core import config
from holdfast.core.errors import ConfigurationError
from holdfast.core.limits import CONFIGURATION_BYTES_MAXIMUM
from holdfast.core.moment import parse_moment_us
from holdfast.core.sections import TABLES
from holdfast.core.settings import Setting, duration
from holdfast.core.units import CENTURY_S, SECOND_US

Subparsers = Any
"""What `add_subparsers` returns; `argparse` keeps the name of its class to itself."""


def add_settings(parser: argparse.ArgumentParser, *names: str) -> None:
    """Give `parser` the option `--config` and one for each setting, in a group for each table; or
    for the settings that are named."""
    common = parser.add_argument_group("settings")
    common.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        help="read settings from this TOML file; options and HOLDFAST_ variables win over it",
    )
    for name in names:
        _add_setting(common, config.SETTINGS[name])
    for table, about in () if names else TABLES.items():
        group = parser.add_argument_group(f"[{table}]", about)
        for row in config.SETTINGS.values():
            if row.table == table:
                _add_setting(group, row)


def effective(options: argparse.Namespace) -> config.Effective:
    """The settings that file, environment and `options` make. Raises `ConfigurationError`."""
    given = {
        row.name: value
        for row in config.SETTINGS.values()
        if (value := getattr(options, row.attribute, None)) is not None
    }
    return config.load(
        file=None if options.config is None else _read(options.config),
        environment=system.environment(),
        options=given,
        disk_bytes=system.disk_bytes,
    )


def name_given(text: str) -> str:
    """A name of something that is there; `argparse` says so if it is empty, as nothing's is."""
    if not text:
        raise argparse.ArgumentTypeError("it is empty")
    return text


def row_count(text: str) -> int:
    """How many rows are asked for; `argparse` says so if it is no such number."""
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 on")
    return int(text)


def time_us(written: str) -> int:
    """A time, or how long ago; without a time zone it is UTC. Raises `ConfigurationError`."""
    with suppress(ValueError):
        return parse_moment_us(written)
    try:
        age_s: int = duration(0, CENTURY_S).parse(written)
    except ValueError:
        raise ConfigurationError(
            f'"{written}" is neither a time such as 2026-01-31T12:00 nor an age such as 10m'
        ) from None
    return max(0, system.now_us() - age_s * SECOND_US)


def _add_setting(group: Any, row: Setting) -> None:
    is_flag = isinstance(row.default, bool)
    shown = "" if row.default in ("", False) else f" (default: {row.default})"
    group.add_argument(
        row.option,
        dest=row.attribute,
        metavar="BOOLEAN" if is_flag else "VALUE",
        nargs="?" if is_flag else None,
        const="true" if is_flag else None,
        help=(row.reason + shown).replace("%", "%%"),
    )


def _read(file: Path) -> tuple[str, str]:
    try:
        with file.open("rb") as source:
            content = source.read(CONFIGURATION_BYTES_MAXIMUM + 1)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigurationError(f"{file} cannot be read: {reason}") from error
    if len(content) > CONFIGURATION_BYTES_MAXIMUM:
        raise ConfigurationError(f"{file} is too large to be a configuration file")
    try:
        # Editors of other systems put a mark in front that says it is UTF-8.
        return str(file), content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{file} is not text in UTF-8") from error
