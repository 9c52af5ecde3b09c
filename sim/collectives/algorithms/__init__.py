"""Collective algorithms, each written once as rounds of sends."""
