"""What does a collective send, round by round?

A collective is written once as rounds of sends, and read as data, bytes, time and pictures. This
folder can be deleted when libraries report their own rounds.
"""
