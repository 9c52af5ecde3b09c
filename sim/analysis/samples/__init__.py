"""How do steps vary when every rank has a speed of its own?

Thousands of drawn steps are columns of one replay. The folder can be deleted when ranks do not
vary.
"""
