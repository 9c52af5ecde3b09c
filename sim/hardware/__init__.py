"""What a program runs on: devices, the nodes and networks that join them, software stacks."""
