"""The library under the measuring scripts.

Order of use: `layers` (shapes of real models) -> `shapes` (kernels that they launch) -> `runner`
(what to run, in which order, for how long) -> `timing` (one kernel's time) -> `tables` (CSV out and
in, checked). `device` hides whether the kernels run on a GPU or, in tests, on the CPU.
"""

KIT_VERSION = 1
