"""What are the answers of one scenario at many points?

Points are tasks of an executor. A store keeps their answers, which count while the files that were
read stay the same.
The folder can be deleted when an external executor has such a store.
"""
