"""How is an answer told in words and tables?

Each answer has a module, which gives its text and its notebook page. A module can be deleted with
its answer.
"""
