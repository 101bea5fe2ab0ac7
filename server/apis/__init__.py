"""What the node answers. Handlers take and return plain objects and know no transport: listeners wrap them."""
