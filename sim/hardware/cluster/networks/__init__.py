"""What joins the nodes of a cluster?

Each shape has a file with its keys, checks, routes and links. Delete this folder with `cluster`.
"""
