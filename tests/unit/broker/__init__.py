"""Tests of the broker's stages, each alone."""
