"""Laws of what is not always equally fast: stragglers and jitter as distributions."""
