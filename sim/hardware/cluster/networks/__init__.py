"""What joins the nodes of a cluster?

One file for each shape: its keys, checks, routes and links. It goes with `cluster`.
"""
