"""Methods of sharing updates, one a file: its keys, its processes and how they start.

A file is found without being registered (`sim.jobs.sharing.plan.methods`).
"""
