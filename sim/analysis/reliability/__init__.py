"""How long does training take with failures, and what does it cost?

Weeks are a renewal process of steps, checkpoints, failures and repairs. It goes when machines do
not fail.
"""
