"""Sizes and times that settings are given in."""

from typing import Final

KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
MB: Final = 10**6
GB: Final = 10**9
CENTURY_S: Final = 100 * 365 * 86_400
SECOND_US: Final = 1_000_000
MILLISECOND_US: Final = 1_000
