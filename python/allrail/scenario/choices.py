"""What some keys choose from, where people write it otherwise than the core reads it.

Written by `make docs` from the Rust core's own types (docs/scenario_keys.py); do not edit.
"""

from __future__ import annotations

OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "all_to_all", "broadcast")
PLACEMENTS = ("in_order", "scattered", "shuffled")
FORMS = {
    "layers": "Layers by shape or by number.",
    "transformer": "A transformer by its sizes.",
    "dlrm": "Embedding tables and two MLPs.",
    "hugging_face": "A Hugging Face `config.json`: its content, its path or that of its folder.",
    "trace": "A Chakra trace, `DIR/NAME`; read elsewhere.",
    "astra_sim": "An ASTRA-sim layer file; read elsewhere.",
    "steps": "Nodes written out; read elsewhere.",
}
"""How a model may be given in place."""
