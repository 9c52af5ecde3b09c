"""Methods of sharing updates. Each file has a method's keys, its processes and how they start.

A file is found without being registered (`sim.jobs.sharing.plan.methods`).
"""
