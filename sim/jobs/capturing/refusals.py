"""Why can a script not be recorded, and which of its lines is to blame?"""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from sim.config.errors import InputError

# Words in an error, and a remedy.
_HINTS = {
    "_pack_padded_sequence": "give recurrent layers padded sequences, not packed sequences",
    "SparseTensorImpl": "give embeddings dense gradients (sparse=False), not sparse gradients",
    "data-dependent": "make shapes independent of the data (multiply by masks, do not index)",
    "DataDependentOutputException": "make shapes independent of the data",
    "DynamicOutputShapeException": "make shapes independent of the data (multiply by masks)",
    "inductorerror": "leave torch.compile out: TORCH_COMPILE_DISABLE=1 sim capture ...",
    "used torch.compile": "torch does not compile stages of a schedule that splits backward passes",
    "flex_attention": "torch.compile it, with Triton installed (Triton's kernels are not run)",
    "No module named 'triton": "pip install triton: scripts import it, none of its kernels is run",
    "triton": "use torch's own operators in place of Triton kernels that multiply",
    "'_scatter'": "use DistributedDataParallel in place of DataParallel",
    "CUDAGraph": "leave the script's own CUDA graphs out, or torch.compile(mode='reduce-overhead')",
    "No module named 'transformer_engine": "choose layers of torch: Transformer Engine's are not "
    "recorded",
    "No module named 'torch": "change that import, which needs another version of torch",
    "numpy": "do not read values of GPU tensors: their content is not computed",
    "data pointer": "do not read or save values of GPU tensors: their content is not computed",
    "pickle": "do not pickle GPU tensors: their content is not computed (torch.save can stay)",
    "pin": "set pin_memory = False",
}


_SIM = str(Path(__file__).parents[2])
_OURS = str(Path(__file__).parents[1])


def of_script(file: str, folder: str) -> bool:
    """Whether a source file is the user's: it lies in `folder`, and in no installed package unless
    the folder itself does."""
    folder = folder.rstrip("/") + "/"
    if not file.startswith(folder) or file.startswith(_OURS):
        return False
    inside = Path(file.removeprefix(folder)).parents
    return "site-packages" not in str(inside[0]) and not any(
        _installed(folder + str(part)) for part in inside[:-1]
    )


@cache
def _installed(folder: str) -> bool:
    """Whether packages are installed in a folder: it then holds metadata of packages."""
    return any(Path(folder).glob("*.dist-info"))


# Files of torch that call operators, and that check shapes, dtypes and devices of operators.
_CHECKS = tuple(
    f"/torch/{part}"
    for part in ("__init__.py", "_meta_registrations.py", "_refs/", "_prims/", "_prims_common/",
                 "_decomp/", "_subclasses/fake_impls.py", "_ops.py")
)  # fmt: skip
_REFUSED = {"RuntimeError", "ValueError", "IndexError", "TypeError"}  # errors of these checks
_OF_DEVICES = "FakeTensorDeviceMismatchError"  # the error of a check of devices


def shown(error: Exception, folder: str) -> str:
    """Return an exception of a script in a folder as Python prints it. Left out are the frames of
    `sim` that run the script, and torch's frames inside an operator."""
    others = ("_subclasses/", "_compile.py", "_dynamo/eval_frame.py", "utils/_")
    inner = (*_CHECKS, *(f"/torch/{part}" for part in others), "/click/")
    told = traceback.TracebackException.from_exception(error)
    told.stack = traceback.StackSummary.from_list(
        [
            frame
            for frame in told.stack
            if of_script(frame.filename, folder)
            or not (
                frame.filename.startswith((_SIM, "<frozen runpy>"))
                or any(part in frame.filename for part in inner)
            )
        ]
    )
    return "".join(told.format())


def _own(error: Exception, folder: str) -> bool:
    """Whether an exception is the script's own: the script, a library or an operator's checks have
    raised it in Python, and not the code that stands in for the device."""
    *_, last = traceback.extract_tb(error.__traceback__)
    kind = type(error).__name__
    if of_script(last.filename, folder):
        return not isinstance(error, NotImplementedError)
    if kind == _OF_DEVICES or (kind in _REFUSED and any(at in last.filename for at in _CHECKS)):
        return True
    return not isinstance(error, NotImplementedError) and not any(
        part in last.filename for part in (_SIM, "/torch/_", "/torch/fx/", "/torch/distributed/")
    )


@contextmanager
def refused(script: str, folder: str) -> Iterator[None]:
    """Turn an exception that shows that a script cannot be recorded into an `InputError`, which
    names the script's last line in the traceback. The script's own exceptions pass unchanged. So do
    errors of its files (`OSError`), although the overlay of files raises them."""
    try:
        yield
    except InputError:
        raise
    except SystemExit as end:
        if end.code:
            raise
        fault = "ended by itself before its second optimizer step"
        raise InputError(script, fault, "check its arguments") from end
    except Exception as error:
        said = f"{type(error).__name__}: {error}".splitlines()[0][:160]
        missing = isinstance(error, ModuleNotFoundError)
        hints = (do for words, do in _HINTS.items()
                 if words.startswith("No module") == missing and _names(words, said))  # fmt: skip
        hint = next(hints, "")
        if isinstance(error, OSError) or (not hint and _own(error, folder)):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        in_script = [f for f in frames if of_script(f.filename, folder)]
        where = script
        if in_script:
            where = (
                f"{in_script[-1].filename.removeprefix(folder).lstrip('/')}:{in_script[-1].lineno}"
            )
        hint = hint or "see docs/capture.md, and --traceback"
        raise InputError(where, f"cannot be recorded ({said})", hint) from error


def _names(words: str, text: str) -> bool:
    """Whether a text holds whole words.

    >>> _names("pin", "mapping"), _names("pin", "cannot pin memory")
    (False, True)
    """
    return bool(re.search(rf"(?<![a-z]){re.escape(words)}(?![a-z])", text, re.IGNORECASE))
