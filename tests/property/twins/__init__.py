"""Twins of the kernel's modules: small, slow and obviously right.

Owns: what each module means, said a second time in Python. Never: used by the broker. Invariant:
property tests in `tests/property` hold each twin and its compiled module to the same answers.
"""
