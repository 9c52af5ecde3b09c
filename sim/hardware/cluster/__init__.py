"""Which links does a message use, and what do they carry?

A cluster consists of nodes with a fabric inside and a network between them; routes follow from
both. This folder can be deleted when networks describe themselves.
"""
