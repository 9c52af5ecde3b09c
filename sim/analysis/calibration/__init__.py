"""What are the constants of this machine?

Times of kernels and collectives become profiles; a job's own step is measured beside its
prediction. It goes when vendors publish measured profiles of their devices.
"""
