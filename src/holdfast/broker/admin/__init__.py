"""What people and tools see of the broker over HTTP: health, metrics, and the read interface."""
