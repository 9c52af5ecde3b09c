"""In which order do stages run their passes?

A schedule is an order of actions for each stage, one file for each family. A file goes when nobody
runs its schedules.
"""
