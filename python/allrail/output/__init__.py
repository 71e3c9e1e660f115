"""What `--out DIR` writes: tables, trace, pictures, report and `result.json`.

`frames` makes the tables, `trace` the Perfetto trace, `write` puts everything into the folder;
`allrail.output.report` draws.
"""

from __future__ import annotations

from allrail.output.write import write_results

__all__ = ["write_results"]
