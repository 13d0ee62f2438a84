"""A sweep in pieces on a Ray cluster.

A piece is the i-th of n shards and a pure function of job and values. A worker that dies takes its
piece with it; Ray runs that again elsewhere, as often as it must. Each piece's answer is taken once,
and the pieces are joined by the same code as ``orrery merge``, which refuses what is missing or
doubled. Files that the job names must be reachable from the workers.
"""

from __future__ import annotations

import json
import pathlib
import sys
from typing import Any

from orrery import Error, _answer, _core, _variants


def _piece(variants: Any, request: Any, threads: int, shard: int, shards: int) -> tuple[str, str]:
    return _core.sweep(_variants(*variants), *request, threads, shard, shards)


def sweep(variants: Any, request: Any, threads: int, shards: int | None) -> str:
    try:
        import ray
    except ImportError:
        raise Error("resource", "Ray is not installed; run: pip install ray") from None
    if not ray.is_initialized():
        ray.init(logging_level="error", log_to_driver=False)
    if shards is None:
        cores = int(ray.cluster_resources().get("CPU", 1))
        shards = max(1, 4 * cores // threads)
    piece = ray.remote(num_cpus=threads, max_retries=-1)(_piece)
    waiting = [piece.remote(variants, request, threads, i + 1, shards) for i in range(shards)]
    texts = [_answer(answer) for answer in ray.get(waiting)]
    return _answer(_core.merge(texts))


def main(request_path: str, answer_path: str) -> int:
    """The pieces of ``orrery sweep --on ray``: a request and its answer as JSON files."""
    request = json.loads(pathlib.Path(request_path).read_text(encoding="utf-8"))
    variants = (request["job"], request["set"], request["network"], request["calibration"])
    axes = [(keys, points) for keys, points in request["axes"]]
    pieces = (axes, "", True, request["replay"])
    try:
        answer = sweep(variants, pieces, request["threads"], request["shards"])
    except Error as error:
        print(f"orrery: {error}", file=sys.stderr)
        return {"invalid_input": 2, "infeasible": 1}.get(error.code, 3)
    pathlib.Path(answer_path).write_text(answer, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
