"""How is an answer looked around in, without a server?

Sections of text, tables and charts in one page; sliders look up columns made beforehand. It goes
when notebooks travel as well as pages.
"""

SUFFIXES = (".html", ".md", ".tex", ".csv", ".json", ".txt")  # of reports
