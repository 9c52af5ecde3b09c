"""Between which values can a plan choose?

A choice says which facts of the job it changes: mesh, passes or states. It goes with `search`.
"""
