"""What are the constants of this machine?

Times of kernels and collectives become profiles. A job's own step is measured beside its
prediction. The folder can be deleted when vendors publish measured profiles of their devices.
"""
