"""How sure a predicted step time is, and what kinds of work that rests on."""
