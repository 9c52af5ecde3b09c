"""What does a layer of experts compute, send and wait for?

Tokens are routed by a law; all ranks of a group wait for the fullest rank. This folder can be
deleted when nobody trains experts.
"""
