"""What limits a step, and what would make it shorter?

One compiled replay evaluates faster and slower resources, each as a column. The folder can be
deleted when nobody asks why.
"""
