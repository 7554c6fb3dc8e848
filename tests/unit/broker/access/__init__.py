"""Tests of who may connect, and what each may do."""
