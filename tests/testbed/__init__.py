"""Predictions held against real software: gloo processes on shaped network namespaces."""
