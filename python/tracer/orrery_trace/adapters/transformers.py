"""Hugging Face transformers: the mask of packed sequences. Tried on 5.24.0.

Without a mask of the user's, transformers asks the device whether position ids start anew within a
row (packed sequences). On fake tensors it does not ask and passes a mask, which attention reads and
which keeps it from flash.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from orrery_trace.errors import user_line
from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder
from orrery_trace.substrate import guard

MODULE = "transformers.masking_utils"
REASON = "transformers keeps a mask on fake tensors that it drops after reading a value on a GPU"


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Sequences are not packed; the question is a wait of the host, as on a GPU."""

    find = module.find_packed_sequence_indices

    def not_packed(position_ids: Any) -> None:
        find(position_ids)  # its ops run on a GPU, too
        recorder.assume("sequences are not packed")
        recorder.add(
            "sync",
            of=guard.current_stream(),
            why="transformers find_packed_sequence_indices",
            at=user_line(),
            **recorder.place(),
        )

    patches.replace(module, "find_packed_sequence_indices", not_packed)
