from collections.abc import Sequence

version: str

def simulate(
    job: str,
    is_path: bool,
    set: Sequence[str],
    network: str | None,
    fold: bool,
    threads: int,
    seed: int | None,
    measured: str,
    calibration: str,
    timeline: str,
    timeline_ranks: str,
    heat_map: str,
) -> tuple[str, str]: ...
