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


def a_record(rank=0, *, steps=6, offset=0, peers=(), crosses=True):
    """Two tensors; a step computes 10 ms outside, 4 + 6 forward, 8 + 2 backward, and waits 5."""
    seen = Recorder()
    now = 1000 * MS + offset
    for step in range(steps):
        now += 10 * MS
        start = now
        seen.mark("enter", 1, now, now + 5 * MS)
        seen.mark("wait", 1, now, now + 5 * MS)
        now += 5 * MS + 4 * MS
        seen.mark("enter", 0, now, now)
        now += 6 * MS
        seen.mark("forward", -1, start, now)
        for tensor, after in ((0, 8 * MS), (1, 2 * MS)):
            now += after
            seen.mark("submit", tensor, now, now)
            sent = [("reduce_scatter", 2_000_000, now, now + 2 * MS)]
            seen.exchange(tensor, step, 4000, sent)
        seen.mark("round", 2, now, now)
    dimension = {"size": 2, "bandwidth": "64 Gb/s", "latency": "20 us", "interface": "10.0.0.1"}
    settings = {"dimensions": [dimension]}
    return seen.record(size=4000, settings=settings, rank=rank, peers=peers, crosses=crosses)
