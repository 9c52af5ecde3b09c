"""Why can a script not be recorded, and which of its lines is to blame?"""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.config.errors import InputError

# What an error says, and what to do about it.
_HINTS = {
    "data-dependent": "make its shape independent of the data (masks as products, not as indices)",
    "DataDependentOutput": "make its shape independent of the data",
    "DynamicOutputShape": "make its shape independent of the data (masks as products)",
    "inductorerror": "leave torch.compile out: TORCH_COMPILE_DISABLE=1 sim capture ...",
    "used torch.compile": "torch does not compile stages of a schedule that splits backward passes",
    "flex_attention": "torch.compile it, with Triton installed (no kernel of it is run)",
    "No module named 'triton": "pip install triton: scripts import it, none of its kernels is run",
    "triton": "leave custom Triton kernels out: use torch's own operators",
    "flash_attn": "use torch's scaled_dot_product_attention",
    "'_scatter'": "use DistributedDataParallel in place of DataParallel",
    "No module named": "install what the script imports",
    "numpy": "do not read values of GPU tensors: their content is not computed",
    "data pointer": "do not read or save values of GPU tensors: their content is not computed",
    "pickle": "do not save with it: nothing is computed (torch.save is left out by itself)",
    "pin": "set pin_memory = False",
    "nvtx": "leave profiler marks out",
}


_OURS = str(Path(__file__).parents[1])


def of_script(file: str, folder: str) -> bool:
    """Whether a source file is the user's; the script may be part of a package."""
    folder = folder.rstrip("/") + "/"
    others = "site-packages" in file.removeprefix(folder)
    return file.startswith(folder) and not others and not file.startswith(_OURS)


@contextmanager
def refused(script: str, folder: str) -> Iterator[None]:
    """Turn an exception into an `InputError` that names the script's last line in its traceback."""
    try:
        yield
    except InputError:
        raise
    except SystemExit as end:
        fault = f"ended by itself ({end.code}) before its second optimizer step"
        raise InputError(script, fault, "check its arguments") from end
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        in_script = [f for f in frames if of_script(f.filename, folder)]
        where = script
        if in_script:
            where = (
                f"{in_script[-1].filename.removeprefix(folder).lstrip('/')}:{in_script[-1].lineno}"
            )
        said = f"{type(error).__name__}: {error}".splitlines()[0][:160]
        lower = said.lower()
        hint = next((do for word, do in _HINTS.items() if word.lower() in lower), "")
        hint = hint or "see docs/capture.md for what can be recorded"
        raise InputError(where, f"cannot be recorded ({said})", hint) from error
