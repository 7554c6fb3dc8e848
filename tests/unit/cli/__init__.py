"""Tests of `holdfast.cli`."""
