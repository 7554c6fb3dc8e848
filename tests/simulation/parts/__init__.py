"""What goes on in a run beside the main load; each part is drawn or left out by the seed."""
