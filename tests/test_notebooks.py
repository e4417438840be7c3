"""The notebooks run from the first cell to the last, and what they end with shows itself."""

from __future__ import annotations

import ast
import json
import sys
import types
from pathlib import Path

import pytest

import fedax
from fedax import notebook

NOTEBOOKS = sorted((Path(__file__).parent.parent / "examples/notebooks").glob("*.ipynb"))
SHORTER = {"rounds=60": "rounds=2", "seeds=(0, 1, 2)": "seeds=(0, 1)", '"lr": [0.03, 0.1, 0.3]': '"lr": [0.03, 0.1]'}


def cells(path):
    """The code of a notebook's cells, on fewer rounds."""
    for cell in json.loads(path.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert not cell["outputs"], "notebooks are kept without their outputs"
            text = "".join(cell["source"])
            for long, short in SHORTER.items():
                text = text.replace(long, short)
            yield text


def run_cell(text, names):
    """Run a cell and give its last expression's value, as a notebook does."""
    body = ast.parse(text).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path):
    module = types.ModuleType("__main__")  # a method's class must say where it is from
    shown = [value for text in cells(path) if (value := run_cell(text, vars(module))) is not None]
    assert len(shown) >= 4
    for value in shown:
        if isinstance(value, bool):
            assert value, "the check of the method fails"
        else:
            page = value._repr_html_()
            assert "<" in page


def test_objects_show_themselves_and_escape_what_they_are_given():
    federation = fedax.Federation.from_clients([{"x<y": [[1.0]], "y": [0]}, {"x<y": [[2.0]], "y": [1]}])
    assert "x&lt;y" in federation._repr_html_()
    assert "<td>clients</td><td>2</td>" in federation._repr_html_()
    assert "<td>lr</td><td>0.1</td>" in fedax.SCAFFOLD(lr=0.1)._repr_html_()


def test_a_run_in_a_notebook_has_a_bar(monkeypatch):
    """With IPython's shell and display replaced by what records them."""
    told = []

    class Handle:
        def update(self, bar):
            told.append(bar)

    def display(bar, display_id):
        told.append(bar)
        return Handle()

    fake = types.SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython.display", fake)
    monkeypatch.setattr(notebook, "shell", lambda: object())
    problem = fedax.Problem(
        loss=lambda w, b: ((b["x"] - w) ** 2).mean(), init=lambda key: __import__("jax").numpy.zeros(())
    )
    clients = fedax.Federation.from_clients([{"x": [1.0, 3.0]}])
    fedax.simulate(problem, clients, fedax.FedAvg(lr=0.1), rounds=4)
    assert "max='4'" in told[0]
    assert "4 of 4 rounds, FedAvg, seed 0" in told[-1]


def test_plots_refuse_what_they_cannot_draw():
    with pytest.raises(fedax.FedaxError, match=r"plot\.compare takes results"):
        fedax.plot.compare({})
    with pytest.raises(fedax.FedaxError, match=r"plot\.compare takes results"):
        fedax.plot.compare(3)
