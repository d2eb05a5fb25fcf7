#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""The form of the notebooks, without executing them, which `./dev notebooks` does: seven, without outputs, importing
only what the extras of the package name, and with a sentence below each figure, whose numbers come from what was
computed."""

import ast
import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import recording  # noqa: E402

FOLDER = os.path.join(recording.ROOT, "notebooks")
OWN = {"data", "varve"}  # beside the notebooks
MODULES = {"ipykernel": ["IPython"]}  # of a package, where they are not called like it
NUMBER = re.compile(r"\d[\d.,]*\s*(%|[KMGT]?i?B\b|[mnµ]?s\b|times\b)")
COLUMNS = 116


def names():
    return sorted(name for name in os.listdir(FOLDER) if name.endswith(".ipynb"))


def load(name):
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return json.load(file)


def allowed_modules():
    """Of the standard library, of the folder, and of the packages in pyproject.toml's extras."""
    with open(os.path.join(FOLDER, "..", "pyproject.toml"), encoding="utf-8") as file:
        extras = re.search(r"\[project.optional-dependencies\]\n(.*?)\n\[", file.read(), re.S).group(1)
    packages = re.findall(r'"([A-Za-z0-9_-]+)', extras)
    return OWN | set(sys.stdlib_module_names) | {module for package in packages
                                                 for module in MODULES.get(package, [package])}


def source_of(cell):
    return "".join(cell["source"])


def imported(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module.split(".")[0]


def is_call(node, name):
    return isinstance(node, ast.Call) and name == getattr(node.func, "attr", getattr(node.func, "id", None))


def typed_text(node):
    """The text of a sentence outside of its braces."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.FormattedValue):
        return "{}"
    return "".join(typed_text(child) for child in ast.iter_child_nodes(node))


def problems_of_code(source):
    tree = ast.parse(source)
    for module in sorted(set(imported(tree)) - allowed_modules()):
        yield f"imports {module}, which no extra names"
    if any(len(line) > COLUMNS for line in source.splitlines()):
        yield "a line is too long for a page"
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if any(is_call(call, "show") for call in calls):
        last = tree.body[-1].value if isinstance(tree.body[-1], ast.Expr) else None
        if not is_call(last, "Markdown") or not any(isinstance(node, ast.FormattedValue) for node in ast.walk(last)):
            yield "a figure without a sentence that says what is seen"
    for call in calls:
        if is_call(call, "Markdown") and any(NUMBER.search(typed_text(argument)) for argument in call.args):
            yield "a number in a sentence is typed, not computed"


def problems(notebook):
    """What is wrong with the form of a notebook, in words."""
    found = []
    cells = notebook["cells"]
    if notebook["nbformat"] != 4 or notebook["metadata"].get("kernelspec", {}).get("name") != "python3":
        found.append("not of format 4 for the kernel python3")
    if len({cell.get("id") for cell in cells} - {None}) != len(cells):
        found.append("cells without ids of their own")
    if not source_of(cells[0]).startswith("# ") or cells[0]["cell_type"] != "markdown":
        found.append("does not begin with a heading")
    if sum(source_of(cell).startswith("## ") for cell in cells if cell["cell_type"] == "markdown") < 3:
        found.append("fewer than three sections")
    if not any(".show()" in source_of(cell) for cell in cells):
        found.append("no figure")
    for number, cell in enumerate(cells, 1):
        if cell["metadata"]:
            found.append(f"cell {number}: metadata of a run")
        if cell["cell_type"] == "code":
            if cell["outputs"] or cell["execution_count"] is not None:
                found.append(f"cell {number}: outputs are kept out of the tree")
            found += [f"cell {number}: {problem}" for problem in problems_of_code(source_of(cell))]
    return found


class Notebooks(unittest.TestCase):
    def test_names(self):
        self.assertEqual([name[:2] for name in names()], [f"{number}_" for number in range(1, 8)])

    def test_form(self):
        for name in names():
            with self.subTest(name):
                self.assertEqual(problems(load(name)), [])
                self.assertTrue(source_of(load(name)["cells"][0]).startswith(f"# {name[0]} "),
                                "its number is in the heading")


if __name__ == "__main__":
    recording.main()
