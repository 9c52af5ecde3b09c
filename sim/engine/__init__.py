"""When does everything happen?

Ranks that cannot be told apart are one role; roles are played on a clock, or without one where that
is exact. It never goes: it is the simulator.
"""
