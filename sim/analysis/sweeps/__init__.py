"""What are the answers of one scenario at many points?

Points are tasks of an executor; answers are kept in a store while their inputs stay the same. It
goes when somebody else's executor has such a store.
"""
