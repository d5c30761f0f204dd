"""The code of the notebooks runs, and what it asserts holds."""

import json
import pathlib

import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook(path):
    cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
    code = "\n\n".join("".join(cell["source"]) for cell in cells)
    if "import torch" in code:
        pytest.importorskip("torch", reason="PyTorch is not installed")
    exec(compile(code, str(path), "exec"), {"__name__": "notebook"})


def test_there_are_three():
    assert len(NOTEBOOKS) == 3
