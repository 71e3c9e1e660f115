"""What `--out DIR` writes: tables, trace, pictures, report and `result.json`.

`frames` makes the tables, `trace` the Perfetto trace, `write` puts everything into the folder;
`allrail.report` draws.
"""

from __future__ import annotations

from allrail.results.write import write_results

__all__ = ["write_results"]
