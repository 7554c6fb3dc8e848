"""Measurements. `macro` compares brokers; `load` (Rust) and `official` are what loads them."""
