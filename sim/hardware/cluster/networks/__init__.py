"""The shapes of networks, one a file: its keys, checks, routes, links and their capacities."""
