"""The same programs without a clock: a step in which no transfers share a link is maxima and sums.

Times are linear forms of (max, +) (Baccelli et al. 1992, Synchronization and Linearity): a pass
maps the moments at which its stage was ready to those at which it ends, a pipeline is such maps in
the order of its schedule.
"""
