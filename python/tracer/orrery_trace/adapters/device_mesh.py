"""Device meshes keep their ranks in a tensor, which must keep its values."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

from orrery_trace.groups import Patches
from orrery_trace.recorder import Recorder

MODULE = "torch.distributed.device_mesh"
REASON = "DeviceMesh computes with the values of a tensor of ranks, which a fake tensor has not"
METHODS = (
    "__init__", "__getitem__", "__eq__", "from_group", "_create_sub_mesh", "_create_flatten_mesh",
    "_create_unflatten_mesh", "_flatten", "_unflatten", "_concatenate", "_get_all_submeshes",
)  # fmt: skip


def install(module: ModuleType, recorder: Recorder, patches: Patches) -> None:
    """Runs what makes and cuts meshes on real tensors."""
    from torch.utils._python_dispatch import _disable_current_modes

    def real(function: Any) -> Any:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with _disable_current_modes():
                return function(*args, **kwargs)

        return call

    kind = module.DeviceMesh
    for name in METHODS:
        own = vars(kind).get(name)
        if isinstance(own, staticmethod):
            patches.replace(kind, name, staticmethod(real(own.__func__)))
        elif own is not None:
            patches.replace(kind, name, real(own))
    make = real(module.init_device_mesh)

    @functools.wraps(make)
    def named(*args: Any, **kwargs: Any) -> Any:
        mesh = make(*args, **kwargs)
        for name in mesh.mesh_dim_names or ():
            group = mesh.get_group(name)
            if group.group_desc in ("", "undefined"):  # before 2.6
                group._set_group_desc(f"mesh_{name}")
        return mesh

    patches.everywhere(module.init_device_mesh, named)
