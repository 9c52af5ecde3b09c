"""Between which values can a plan choose?

A choice says which of the job's facts it changes: mesh, passes or states. It goes with `search`.
"""
