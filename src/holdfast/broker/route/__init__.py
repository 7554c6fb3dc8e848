"""Which attached queues get a message: the kernel's routes, as sessions change them."""
