"""What does a program run on?

Devices, nodes, networks and software stacks are files whose numbers have sources. This folder
cannot be deleted: predictions rest on it.
"""
