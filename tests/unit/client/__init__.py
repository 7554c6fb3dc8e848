"""Tests of `holdfast.client`."""
