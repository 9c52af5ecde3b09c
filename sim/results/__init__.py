"""What is the answer of a play?

An answer is its fields and what follows from them, with the inputs that it answers. It never goes.
"""
