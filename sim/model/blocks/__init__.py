"""Kinds of blocks, one file each: a module that gives the operators of its kind on one rank."""
