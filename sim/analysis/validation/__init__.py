"""How far are predictions from published measurements?

Each row of a table is a scenario; a cluster and a stack have one description for all rows. The
folder is never deleted, since it judges the predictions.
"""
