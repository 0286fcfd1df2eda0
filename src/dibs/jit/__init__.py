"""What compiled functions share."""
