"""What does a PyTorch training script do on a GPU? It is recorded on a device that is not there.

Only `sim capture` and `sim.capture` need this folder. It needs torch.
"""
