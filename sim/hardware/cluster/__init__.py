"""Devices in nodes in a network: links, routes, capacities."""
