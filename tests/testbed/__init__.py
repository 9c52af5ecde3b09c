"""Predictions compared with real software: gloo processes on shaped network namespaces."""
