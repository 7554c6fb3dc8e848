"""Kill processors, their broker and their database at random, and count what is in the tables."""
