"""Tests of what reads stored messages."""
