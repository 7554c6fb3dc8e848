"""Measurements. `macro` compares whole brokers, `load` (Rust) is what loads them."""
