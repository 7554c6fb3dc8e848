"""Jobs: a plan that can be printed, and a function that runs it."""
