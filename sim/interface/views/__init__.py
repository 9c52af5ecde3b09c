"""What do people read of an answer?

Each answer has a module, which gives its text and its notebook page. A module can be deleted with
its answer.
"""
