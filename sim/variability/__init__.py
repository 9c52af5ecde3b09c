"""What is not always equally fast: laws of slowdown, and the jitter of ranks."""
