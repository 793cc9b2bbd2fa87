"""From operations to clusters: what ``fuse-tasks`` is made of."""
