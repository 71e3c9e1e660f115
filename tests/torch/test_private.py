"""A private name that this torch lacks is told at import, with the versions that have it."""

from __future__ import annotations

import importlib
import sys

import pytest

torch = pytest.importorskip("torch")

from allrail.torch import private  # noqa: E402


@pytest.mark.parametrize(
    "name", ["torch._C._nowhere", "torch._nowhere.deep", "torch.Tensor._nowhere"]
)
def test_a_name_that_is_gone(name):
    with pytest.raises(ImportError) as told:
        private.need(name)
    text = str(told.value)
    assert f"`{name}`" in text
    assert torch.__version__ in text
    assert f"tested with torch {private.TESTED}" in text


def test_an_attribute_that_is_gone():
    with pytest.raises(ImportError, match=r"`torch\.nn\.modules\.module\.Module\._nowhere`"):
        private.reader(torch.nn.Module(), "_nowhere")


@pytest.mark.parametrize("name", ["_current_graph_task_id", "_len_torch_function_stack"])
def test_it_is_looked_up_at_import(name, monkeypatch):
    """So nothing of allrail.torch is imported half."""
    monkeypatch.delattr(torch._C, name)
    monkeypatch.delitem(sys.modules, "allrail.torch.private")
    with pytest.raises(ImportError, match=name):
        importlib.import_module("allrail.torch.private")


def test_the_names_are_those_of_torch():
    module = torch.nn.Linear(2, 1)
    assert private.parameters_of(module)["weight"] is module.weight
    assert private.compiled_call(module) is None
    tensor = torch.zeros(1)
    before = private.version(tensor)
    tensor.add_(1)
    assert private.version(tensor) == before + 1
    assert private.current_graph_task() == -1
