"""What Hugging Face's transformers decides by the content of tensors, decided without it.

Where tensors are fake, transformers takes itself to be traced and makes masks for sequences that
may be packed (masking_utils.py, `find_packed_sequence_indices`), with which attention is not the
fused causal one of a real run. Sequences are taken to be whole.
"""

from types import ModuleType

from sim.jobs.capturing.patches import Patches


def install(patches: Patches) -> None:
    """Patch the module if it is there, else when a script imports it."""

    def whole(module: ModuleType) -> None:
        if hasattr(module, "find_packed_sequence_indices"):
            patches.set(module, "find_packed_sequence_indices", lambda *_, **__: None)

    patches.when_imported("transformers.masking_utils", whole)
