"""Where a microsecond goes: the broker under load, sampled, its time divided by stage."""
