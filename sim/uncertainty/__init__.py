"""How sure is a step time?

Errors of measured runs are nested random effects of software, hardware and kind of work. This
folder can be deleted when predictions are exact.
"""
