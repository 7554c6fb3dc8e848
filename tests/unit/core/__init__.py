"""Tests of `holdfast.core`."""
