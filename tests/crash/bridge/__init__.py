"""Kills of either end of a bridge under load, counted at both ends."""
