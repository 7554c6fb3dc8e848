//! A disk in memory with seeded faults.
