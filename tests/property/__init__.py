"""Whatever the input: what must hold for all of them, and agreement with the plain Python twins."""
