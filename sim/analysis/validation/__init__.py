"""How far are predictions from published measurements?

Each row of a table is a scenario; a cluster and a stack have one description for all rows. It never
goes: it is the judge.
"""
