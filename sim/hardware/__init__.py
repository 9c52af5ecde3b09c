"""What does a program run on?

Devices, nodes, networks and software stacks are files whose numbers have sources. It never goes:
predictions rest on it.
"""
