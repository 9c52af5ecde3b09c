"""Through which operators does no gradient flow, and how many samples does a rank train on?"""

from collections.abc import Callable
from typing import Any

from sim.jobs.capturing.log import Log
from sim.jobs.capturing.patches import Patches

_LEARNS = "_part_has_a_gradient"


class Gradients:
    """Tells whether a script has switched gradients off, and on which line (`place` gives the
    present line).

    torch itself also switches gradients off within an autograd.Function, though gradients flow
    through it. So only the script's own switches are followed.
    """

    def __init__(self, torch: Any, place: Callable[[], str]) -> None:
        self.torch, self.place = torch, place
        self._since = ""

    def install(self, patches: Patches) -> None:
        """Follow `no_grad`, `inference_mode` and `set_grad_enabled`."""
        grads = self.torch.autograd.grad_mode
        switch, inference = grads.set_grad_enabled, grads.inference_mode
        init, enter = switch.__init__, inference.__enter__

        def switched(which: Any, mode: bool) -> None:
            self._turned(on=mode)
            init(which, mode)

        def entered(which: Any) -> None:
            self._turned(on=not which.mode)
            enter(which)

        patches.set(switch, "__init__", switched)
        patches.set(inference, "__enter__", entered)
        for kind in (switch, inference):
            patches.set(kind, "__exit__", self._left(kind.__exit__))

    def _turned(self, *, on: bool) -> None:
        if on:
            self._since = ""
        elif self.torch.is_grad_enabled():
            self._since = self.place()

    def _left(self, leave: Any) -> Any:
        def left(*args: Any) -> None:
            leave(*args)
            if self.torch.is_grad_enabled():
                self._since = ""

        return left

    @property
    def line(self) -> str:
        """The line on which the script has switched gradients off; "" while gradients are on."""
        return "" if self.torch.is_grad_enabled() else self._since

    def none_in(self, tensors: list[Any], made: list[Any]) -> bool:
        """Whether gradients are on, but none of the `tensors` requires a gradient. If a DTensor
        requires a gradient, its local part counts as requiring a gradient, too, and so does every
        tensor that is `made` from such a part."""
        if not self.torch.is_grad_enabled() or any(t.requires_grad for t in tensors):
            return False
        learns = any(getattr(tensor, _LEARNS, False) for tensor in tensors)
        if learns:
            self._mark(made)
        return not learns

    def unfolds(self, tensors: list[Any]) -> None:
        """Mark the local parts of DTensors that require gradients. DTensors compute with these
        parts below autograd."""
        if self.torch.is_grad_enabled():
            parted = (tensor for tensor in tensors if hasattr(tensor, "_local_tensor"))
            self._mark([tensor._local_tensor for tensor in parted if tensor.requires_grad])

    def _mark(self, tensors: list[Any]) -> None:
        for tensor in tensors:
            setattr(getattr(tensor, "elem", tensor), _LEARNS, True)


def install_loaders(torch: Any, patches: Patches, log: Log, gradients: Gradients) -> None:
    """Count the samples that torch's loaders hand out while gradients are on. Worker processes of
    loaders run without the capture's modes, on real tensors of the host."""
    from torch.utils._python_dispatch import _disable_current_modes
    from torch.utils.data._utils import worker
    from torch.utils.data.dataloader import _BaseDataLoaderIter as Batches

    following, init = Batches.__next__, Batches.__init__

    def initialised(batches: Any, loader: Any) -> None:
        init(batches, loader)
        batches.samples_each = loader.batch_size or getattr(loader.batch_sampler, "batch_size", 0)

    def handed(batches: Any) -> Any:
        found = following(batches)
        if not gradients.line:
            log.batches += 1
            log.samples += getattr(batches, "samples_each", None) or _first(torch, found)
        return found

    work = worker._worker_loop

    def work_on_the_host(*args: Any) -> None:
        with _disable_current_modes():
            work(*args)

    patches.set(worker, "_worker_loop", work_on_the_host)
    patches.set(Batches, "__init__", initialised)
    patches.set(Batches, "__next__", handed)


def _first(torch: Any, batch: Any) -> int:
    """The length of the first tensor in a batch; 0 if it has no tensor."""
    if isinstance(batch, torch.Tensor):
        return int(batch.shape[0]) if batch.dim() else 0
    inner = batch.values() if isinstance(batch, dict) else batch
    if not isinstance(inner, str) and hasattr(inner, "__iter__"):
        return next((size for size in (_first(torch, part) for part in inner) if size), 0)
    return 0
