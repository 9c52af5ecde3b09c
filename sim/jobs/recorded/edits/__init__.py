"""What would a change of the script do to its recorded step?

Each module knows one kind of change: `edits(setup)` yields the edits that apply to the recordings
of a setup. An edit is a pure function on recordings, so edits can be made one after the other. The
changed recording is played like any other.
"""
