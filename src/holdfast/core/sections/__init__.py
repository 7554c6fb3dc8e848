"""The table of settings in sections, each a part of `core.config.Config`."""
