"""Recording what a PyTorch training script does, on a device that is not there.

Importing this costs nothing; torch is imported when something is captured.
"""
