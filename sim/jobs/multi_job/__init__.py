"""How long do steps take when several jobs share one cluster?

Every job keeps its own kind and program. Each program is folded: ranks that behave alike are
simulated once. The jobs meet on the links of one network (`folding`, `repeated`). Nothing else
needs this folder: without it, scenarios with `[[job]]` tables are unknown.
"""

KEYS = ("job",)
