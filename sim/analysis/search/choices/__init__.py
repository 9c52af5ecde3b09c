"""Between which values can a plan choose?

A choice changes one part of the job: its mesh, passes or states. The folder can be deleted together
with `search`.
"""
