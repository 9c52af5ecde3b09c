"""How sure is a step time?

Errors of measured runs are nested random effects of software, hardware and kind of work. It goes
when predictions are exact.
"""
