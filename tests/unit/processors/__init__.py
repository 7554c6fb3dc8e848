"""Tests of `holdfast.processors`."""
