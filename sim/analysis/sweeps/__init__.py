"""What are the answers of one scenario at many points?

Points are tasks of an executor. A store keeps their answers. A stored answer is used again as long
as its input files are unchanged.
The folder can be deleted when an external executor has such a store.
"""
