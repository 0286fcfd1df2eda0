"""The structures of the papers, each in a folder or file of its own."""
