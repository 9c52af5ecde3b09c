"""One non-blocking switch."""

from dataclasses import dataclass
from typing import Literal

from sim.hardware.cluster.switched import SwitchedNetwork


@dataclass(frozen=True, kw_only=True)
class Switch(SwitchedNetwork):
    """Only the NICs limit anything."""

    shape: Literal["switch"] = "switch"
