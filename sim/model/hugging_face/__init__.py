"""Which model does a config.json of Hugging Face describe?

A function for each type of config gives the keys of a model; unknown facts are refused. This folder
can be deleted when such models are captured instead.
"""
