"""How long does one collective take by itself, by size, algorithm and protocol?"""
