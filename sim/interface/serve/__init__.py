"""How does a user design a cluster in a browser, with an immediate answer to every change?

A local server answers the states of a page: a scenario, and the settings that change it. It uses
the contract in `sim.kind`, and has no code for any kind of jobs. The folder can be deleted when
nobody designs clusters by hand.
"""
