"""When does everything happen?

Ranks that behave alike are one role. Roles are played on a clock, or without a clock where that is
exact. This folder can never be deleted: it is the simulator.
"""
