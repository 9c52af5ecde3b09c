"""How does a user explore an answer without a server?

A page has sections of text, tables and charts. Its sliders look up answers in columns that are
computed beforehand. The folder can be deleted when notebooks are as easy to pass on as pages.
"""

SUFFIXES = (".html", ".md", ".tex", ".csv", ".json", ".txt")  # endings of report files
