"""Unit tests, laid out like `src/holdfast`."""
