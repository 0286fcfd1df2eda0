"""Our own index."""
