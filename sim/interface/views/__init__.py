"""What do people read of an answer?

One module for each answer gives its text and its notebook page. A module goes when its answer does.
"""
