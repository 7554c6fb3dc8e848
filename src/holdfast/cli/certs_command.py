"""`holdfast certs`: certificates for a laptop, so that TLS can be tried at once."""

import argparse
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from holdfast import system
from holdfast.cli.options import Subparsers
from holdfast.core.errors import ConfigurationError
from holdfast.core.units import SECOND_US

DIRECTORY: Final = "certs"
KEY_MODE: Final = 0o600
CERTIFICATE_MODE: Final = 0o644
COMMON_NAME_CHARACTERS_MAXIMUM: Final = 64
"""What X.509 takes."""


def add_to(commands: Subparsers) -> None:
    """Make the command known."""
    parser = commands.add_parser(
        "certs",
        help="make certificates for a laptop",
        description="Make certificates for a laptop.",
        allow_abbrev=False,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    dev_parser = actions.add_parser(
        "dev",
        help="make an authority, a server's certificate and clients' certificates",
        description="Make an authority, a certificate of it for a server on this machine, and one"
        " for each client. They are for trying things out: nobody else trusts the authority.",
        allow_abbrev=False,
    )
    dev_parser.add_argument(
        "directory",
        metavar="DIRECTORY",
        nargs="?",
        type=Path,
        default=Path(DIRECTORY),
        help=f"where they are written (default: {DIRECTORY})",
    )
    dev_parser.add_argument(
        "--host",
        metavar="NAME",
        action="append",
        default=[],
        help="a further name or address of the server, besides localhost, 127.0.0.1, ::1 and this"
        " machine's name; may be given several times",
    )
    dev_parser.add_argument(
        "--client",
        metavar="NAME",
        action="append",
        default=[],
        help="the user that a client's certificate proves; may be given several times (default:"
        " client)",
    )
    dev_parser.set_defaults(run=dev)


def dev(options: argparse.Namespace) -> int:
    """Write them; whatever is there already stays."""
    clients = list(dict.fromkeys(options.client or ["client"]))
    for name in clients:
        if name in ("authority", "server") or not _can_be_a_file(name):
            raise ConfigurationError(f"--client: {name!a} cannot be the name of a client's files")
    from holdfast.certificates import HERE, Authority

    now = datetime.fromtimestamp(system.now_us() // SECOND_US, UTC)
    machine = system.machine_name()
    authority = Authority(f"holdfast authority of {machine}"[:COMMON_NAME_CHARACTERS_MAXIMUM], now)
    names = [*HERE, *filter(None, [machine.lower()]), *options.host]
    try:
        issued = {"authority": authority.issued, "server": authority.server(names)}
        issued |= {name: authority.client(name) for name in clients}
    except ValueError as error:
        raise ConfigurationError(f"no certificate can have this name: {error}") from error
    folder: Path = options.directory
    files = {folder / f"{name}.pem": (each.certificate, False) for name, each in issued.items()}
    files |= {folder / f"{name}.key": (each.key, True) for name, each in issued.items()}
    _write(folder, files)
    print(f"{folder} has certificates for {', '.join(dict.fromkeys(names))}:")
    print("  authority.pem              what clients trust (its key signs more: keep it here)")
    print("  server.pem, server.key     tls.certificate and tls.key of the broker")
    for name in clients:
        print(f"  {name + '.pem, ' + name + '.key':<25}  proves the user {name}")
    return 0


def _can_be_a_file(name: str) -> bool:
    return (
        name.isprintable()
        and not {"/", "\\", "\0"} & set(name)
        and not name.startswith(".")
        and 0 < len(name) <= COMMON_NAME_CHARACTERS_MAXIMUM
    )


def _write(folder: Path, files: Mapping[Path, tuple[bytes, bool]]) -> None:
    """All of them, or none where one is there already."""
    for file in files:
        if os.path.lexists(file):
            raise ConfigurationError(f"{file} is there already; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    for file, (content, is_secret) in files.items():
        mode = KEY_MODE if is_secret else CERTIFICATE_MODE
        # Made with its mode, so that nobody reads a key before it is set.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as new:
            new.write(content)
