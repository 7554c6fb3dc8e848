"""The HTTP server: one table of operations, who may ask, and the document that describes them."""
