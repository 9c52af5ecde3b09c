"""Methods of sharing updates. Each file defines a method's keys and processes, and starts them.

A file is found without being registered (`sim.jobs.sharing.plan.methods`).
"""
