"""Examples of a property may take as long as a busy machine needs."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

# Scripts that made the traces beside them; they need torch.
collect_ignore_glob = ["*/traces/ddp.py", "*/recorded/ddp.py"]
