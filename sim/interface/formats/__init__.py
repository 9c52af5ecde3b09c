"""Formats that others read and write: one file each."""
