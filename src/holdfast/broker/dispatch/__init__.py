"""Sessions and their queues: who is attached, what an absent one keeps, what is lost and why."""
