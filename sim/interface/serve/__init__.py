"""How is a cluster designed in a browser, every change answered at once?

A local server answers the states of one page: a scenario, and the settings that change it. It
knows the contract of `sim.kind` and no kind. It goes when nobody designs by hand.
"""
