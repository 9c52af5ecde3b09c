"""Parallel plans: who holds what and in which order; pure functions that know no clock."""
