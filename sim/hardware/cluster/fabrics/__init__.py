"""What joins the devices of a node?

Each fabric has a file with its keys, checks and cables. This folder can be deleted with `cluster`.
"""
