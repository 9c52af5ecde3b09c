"""What does an answer look like, independent of the program that shows it?

A view is a tree of a few kinds of nodes (`nodes.py`). Renderers print the tree as terminal text,
notebook HTML, Markdown or LaTeX. The folder can be deleted when answers are only pictures.
"""
