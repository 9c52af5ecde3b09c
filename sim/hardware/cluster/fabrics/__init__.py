"""What joins the devices of a node?

One file for each fabric: its keys, checks and cables. It goes with `cluster`.
"""
