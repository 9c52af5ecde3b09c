"""How long does training take with failures, and what does it cost?

Weeks of training are a renewal process of steps, checkpoints, failures and repairs. The folder can
be deleted when machines do not fail.
"""
