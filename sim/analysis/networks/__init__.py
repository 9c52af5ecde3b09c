"""Which network serves a mix of jobs best, what does it cost, and what does a failure do to it?

Nothing else needs this folder: without it, `sim network` is missing.
"""
