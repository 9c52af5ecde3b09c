"""Which links does a message use, and what do they carry?

A cluster is nodes of a fabric in a network of a shape; routes follow from both. It goes when
networks describe themselves.
"""
