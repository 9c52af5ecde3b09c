"""What does a PyTorch training script do on a GPU? The script is recorded on a fake device.

Only `sim capture` and `sim.capture` need this folder. It needs torch.
"""
