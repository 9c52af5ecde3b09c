"""In which order do stages run their passes?

A schedule is an order of actions for each stage. Each family of schedules has a file, which can be
deleted when nobody runs its schedules.
"""
