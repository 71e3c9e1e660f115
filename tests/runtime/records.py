"""Records that tests make up: two tensors, `a` and `b`, over one dimension of two ranks."""

from __future__ import annotations

from allrail.runtime.record import Mark

MS = 1_000_000


class Recorder:
    """What a rank sees; `record` is what it would have written."""

    def __init__(self):
        self.marks, self.stages, self.partitions = [], [], []

    def mark(self, kind, tensor, start, end):
        self.marks.append(Mark(kind, tensor, start, end))

    def exchange(self, tensor, step, size, stages, *, submitted=None):
        """An all-reduce of `size` bytes; a stage is (operation, bytes, start, end)."""
        for number, (operation, sent, start, end) in enumerate(stages):
            self.stages.append(
                {
                    "partition": len(self.partitions),
                    "chunk": 0,
                    "stage": number,
                    "operation": operation,
                    "dimension": 0,
                    "bytes": sent,
                    "start": start,
                    "end": end,
                }
            )
        self.partitions.append(
            {
                "name": tensor,
                "generation": step,
                "part": 0,
                "operation": "all_reduce",
                "bytes": size,
                "start": stages[0][2] if submitted is None else submitted,
                "end": stages[-1][3],
            }
        )

    def record(self, *, size, settings, rank=0, peers=(), crosses=True):
        tensors = [("b", size, 1), ("a", size, 0), ("which parameters are used", 8, 2)]
        return {
            "schema_version": 1,
            "rank": rank,
            "ranks": 2,
            "model": "schedule1",
            "transport": "Native",
            "crosses": crosses,
            "tensors": [{"name": n, "bytes": b, "place": p} for n, b, p in tensors],
            "marks": self.marks,
            "settings": settings,
            "timeline": {
                "names": ["b", "a"],
                "exchanges": [],
                "partitions": self.partitions,
                "stages": self.stages,
                "waits": [],
                "lost": 0,
            },
            "report": {"peers": list(peers)},
            "barriers": {},
        }
