"""Collectives: written once as rounds of sends, read as data, bytes, time and pictures."""
