"""Failures, checkpoints and cost of training that takes days."""
