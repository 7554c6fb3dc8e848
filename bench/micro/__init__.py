"""Counts the instructions of the kernel's hot path, so that a change for the worse shows.

Instructions are counted, not time: the same sources give the same number on a busy machine. The
numbers on record are in `instructions.json`; a run prints both and says what has grown.
"""
