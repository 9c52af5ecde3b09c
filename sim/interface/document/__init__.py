"""What does an answer look like, whatever shows it?

A view is a tree of a few kinds of nodes (`nodes.py`); a renderer prints such a tree as terminal
text, notebook HTML, Markdown or LaTeX. It goes when answers are pictures alone.
"""
