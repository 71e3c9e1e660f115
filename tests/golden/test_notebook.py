"""The notebook goes round the loop: its cells run in order, without a display."""

from __future__ import annotations

import ast
import builtins
import json
import shutil
import sys
from pathlib import Path

import pytest

import allrail

EXAMPLES = Path(__file__).parents[2] / "examples"
NAME = "18-the-loop-in-a-notebook"


class Shown:
    """Stands in for a notebook: shows what `display` is given, and what ends a cell."""

    def __init__(self):
        self.pages = []
        self.values = []

    def __call__(self, value):
        self.values.append(value)
        page = value._repr_html_() if hasattr(value, "_repr_html_") else None
        if page is not None:
            self.pages.append(page)


def run(notebook: Path, shown: Shown, *, until: str = "") -> dict:
    names = {"display": shown, "__name__": "__main__"}
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, str(notebook), "exec"), names)
        if until and until in "".join(cell["source"]):
            break
        if last is not None:
            value = eval(compile(ast.Expression(last.value), str(notebook), "eval"), names)
            if value is not None:
                shown(value)
    return names


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    for name in (NAME, "13-close-the-loop"):
        shutil.copytree(EXAMPLES / name, tmp_path / name)
    monkeypatch.chdir(tmp_path / NAME)
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "MPLBACKEND"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / NAME / "loop.ipynb"


def test_the_notebook_goes_round_the_loop(notebook, capsys):
    shown = Shown()
    names = run(notebook, shown)
    assert names["network"].fabric["dimensions"][0]["size"] == 8
    assert names["layouts"].rows[0]["step_s"] > 0
    assert names["step"].kind == "workload"
    assert [one["name"] for one in names["step"].to_dict()["what_ifs"]] == ["infinite_bandwidth"]
    assert (notebook.parent / "out" / "measured.yaml").exists()
    assert (notebook.parent / "out" / "as-measured.yaml").exists()
    assert any(one["files"] for one in names["job"].values())
    assert "predicted, as measured" in capsys.readouterr().out
    assert any(type(one).__name__ == "Figure" for one in shown.values)
    assert len(shown.pages) >= 5
    assert all("<table" in page for page in shown.pages)


def test_without_matplotlib_it_says_what_to_install(notebook, capsys, monkeypatch):
    known = builtins.__import__

    def without(name, *args, **kwargs):
        if name.partition(".")[0] == "matplotlib":
            raise ImportError(name)
        return known(name, *args, **kwargs)

    for name in [one for one in sys.modules if one.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", without)
    run(notebook, Shown(), until=".plot()")
    assert "matplotlib is not installed" in capsys.readouterr().out


def test_plots_are_drawn_on_axes_of_ones_own_and_as_wide_as_a_column():
    from matplotlib.figure import Figure

    rows = allrail.cost(["hx2mesh-1k", "fat-tree-1k"])
    axes = Figure().add_subplot()
    assert rows.plot(axes) is axes
    assert len(axes.patches) == 2
    assert [bar.get_height() for bar in axes.patches] == [one["cost_usd"] for one in rows.rows]
    width, height = rows.plot().figure.get_size_inches()
    assert (width, height) == (3.35, 2.3)


def test_tables_are_sorted_by_a_click_and_written_as_files(tmp_path):
    import polars as pl

    rows = allrail.cost(["hx2mesh-1k", "fat-tree-1k"])
    page = rows._repr_html_()
    assert page.count("<tr>") == 3
    assert "onclick=" in page
    rows.write(tmp_path / "cost.csv")
    assert pl.read_csv(tmp_path / "cost.csv")["name"].to_list() == ["hx2mesh-1k", "fat-tree-1k"]
    rows.write(tmp_path / "cost.json")
    assert json.loads((tmp_path / "cost.json").read_text()) == rows.to_dict()
    with pytest.raises(allrail.InputError, match="no folder of results"):
        rows.write(tmp_path / "cost")


def test_what_is_in_a_table_is_no_markup():
    from allrail.output.notebook import table

    page = table([{"<b>": "<script>"}], name="<i>")
    assert "<script>" not in page
    assert "<i>" not in page
    assert "<b>" not in page.removeprefix("<b>&lt;i&gt;</b>")
