"""What limits a step, and what would make it shorter?

One compiled replay evaluates all resources faster or slower, a column each. It goes when nobody
asks why.
"""
