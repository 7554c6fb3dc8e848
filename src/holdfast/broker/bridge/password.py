"""The password that a bridge connects with, from its settings or from the file that they name.

Owns: what such a file may be. Never: keeps a password, or repeats one in what it says of it.
"""

from pathlib import Path
from typing import Final

from holdfast.broker.regular_file import open_regular
from holdfast.core.bridge import TEXT_BYTES_MAXIMUM, Bridge

_LINE_END: Final = b"\r\n"


def read_password(bridge: Bridge) -> bytes | None:
    """The password to connect with; `None` if it has none. Raises `OSError` with a sentence. Blocks
    for as long as the disk that the file is on."""
    if bridge.password_file is None:
        return None if bridge.password is None else bridge.password.encode()
    file = Path(bridge.password_file)
    try:
        with open_regular(file) as opened:
            # One byte more tells that it is too large.
            password = opened.read(TEXT_BYTES_MAXIMUM + len(_LINE_END) + 1).rstrip(_LINE_END)
    except OSError as error:
        reason = error.strerror or error
        raise OSError(f"password_file: {file} cannot be read: {reason}") from error
    if len(password) > TEXT_BYTES_MAXIMUM:
        most = f"more than {TEXT_BYTES_MAXIMUM} bytes, for which CONNECT has no room"
        raise OSError(f"password_file: {file} has {most}")
    return password
