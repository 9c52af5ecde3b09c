"""What are the answers of one scenario at many points?

Points are tasks of an executor. A store keeps their answers as long as their inputs stay the same.
The folder can be deleted when an external executor has such a store.
"""
