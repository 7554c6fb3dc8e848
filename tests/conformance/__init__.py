"""Statements of the specifications, each as bytes and what must become of them."""
