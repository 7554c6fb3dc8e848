"""A data directory that a former version wrote, and the story that it was written by."""
