"""Which of some jobs is best, and why?

Seconds are subtracted by cause, and differences that matter are printed. The folder can be deleted
when sweeps explain their rows.
"""
