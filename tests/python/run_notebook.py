#!/usr/bin/env python3
"""Runs a notebook from top to bottom, as a person would, and reports the result.

    run_notebook.py NOTEBOOK [--images DIR]

Prints one JSON object: the size of each plot in bytes, and the figures that the last cell printed. Exit status 1, with the cell and its error, when a
cell fails, warns, or the last one prints no figures. `--images DIR` keeps the plots as DIR/NOTEBOOK-N.png.
"""

import argparse
import base64
import json
import os
import pathlib
import re
import sys
import tempfile

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

CELL_TIMEOUT_S = 300


def execute(path: pathlib.Path) -> nbformat.NotebookNode:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    with tempfile.TemporaryDirectory() as scratch:
        # The Jupyter kernel is this interpreter, whatever kernels and settings the user has.
        os.environ |= {"JUPYTER_PREFER_ENV_PATH": "1", "JUPYTER_RUNTIME_DIR": scratch, "IPYTHONDIR": scratch}
        client = NotebookClient(
            notebook,
            timeout=CELL_TIMEOUT_S,
            kernel_name="python3",
            resources={"metadata": {"path": str(path.parent)}},
            # Communicates through files of this user, not through ports of the machine.
            config=Config({"KernelManager": {"transport": "ipc", "ip": f"{scratch}/ipc"}}),
        )
        client.execute()
    return notebook


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=pathlib.Path)
    parser.add_argument("--images", type=pathlib.Path, help="directory to keep the plots in")
    arguments = parser.parse_args()
    try:
        notebook = execute(arguments.notebook)
    except CellExecutionError as error:
        plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))
        print(f"{arguments.notebook.name}: {plain}", file=sys.stderr)
        return 1
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    outputs = [output for cell in code for output in cell.outputs]
    warnings = [o.text for o in outputs if o.output_type == "stream" and o.name == "stderr" and "Warning" in o.text]
    if warnings:
        print(f"{arguments.notebook.name} warns: {warnings[0]}", file=sys.stderr)
        return 1
    images = [o.data["image/png"] for o in outputs if o.output_type == "display_data" and "image/png" in o.data]
    if arguments.images:
        arguments.images.mkdir(parents=True, exist_ok=True)
        for number, image in enumerate(images, 1):
            (arguments.images / f"{arguments.notebook.stem}-{number}.png").write_bytes(base64.b64decode(image))
    try:
        figures = json.loads(code[-1].outputs[0].text)
    except (IndexError, AttributeError, ValueError) as error:
        print(f"{arguments.notebook.name}: the last cell prints no figures as JSON: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"plots": [len(base64.b64decode(image)) for image in images], "figures": figures}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
