"""Play programs without a clock: if no transfers share a link, a step is maxima and sums.

Times are linear forms of (max, +) (Baccelli et al. 1992, Synchronization and Linearity). A pass is
a map from the moments at which its stage is ready to the moments at which it ends. A pipeline is
the product of these maps in the order of its schedule.
"""
