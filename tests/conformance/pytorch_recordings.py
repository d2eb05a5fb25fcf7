# SPDX-License-Identifier: Apache-2.0
"""The recorded histories of PyTorch's allocator in pytorch/, what PyTorch said of each, and commands that answer in
JSON."""

import json
import lzma
import os
import pathlib
import pickle
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import recording  # noqa: E402

FOLDER = pathlib.Path(__file__).parent / "pytorch"
RECORDINGS = sorted(FOLDER.glob("*.pickle.xz"))
NAMES = [path.name.removesuffix(".pickle.xz") for path in RECORDINGS]
SMALL = ("cudagraph_private_pool", "multistream_record", "pools_free")
assert len(RECORDINGS) >= 9


def name_of(path):
    return path.name.removesuffix(".pickle.xz")


def path_of(name):
    return FOLDER / f"{name}.pickle.xz"


def expected_of(name):
    """None for recordings with Python stacks."""
    path = FOLDER / f"{name}.expected.json"
    return json.loads(path.read_text()) if path.exists() else None


def options_of(expected):
    """Settings and limits as they were when it was recorded."""
    options = []
    if expected:
        options += ["--capacity", expected["total_memory"], "--conf", expected["alloc_conf"] or ""]
        if expected["memory_limit"]:
            options += ["--memory-limit", expected["memory_limit"]]
    return options


def load(path):
    with (lzma.open if str(path).endswith(".xz") else open)(path, "rb") as file:
        return pickle.load(file)


class Case(recording.Case):
    def answer(self, *arguments, status=0):
        """A command's JSON."""
        return json.loads(self.varve(arguments[0], "--json", *arguments[1:], status=status).out)

    def rows(self, path, query):
        self.open(path)
        return self.sql(query)
