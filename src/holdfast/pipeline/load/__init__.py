"""Write tables so that writing the same rows again changes nothing."""
