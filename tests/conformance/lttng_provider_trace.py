# SPDX-License-Identifier: Apache-2.0
"""A trace of the provider `varve` as plain Python values, by what babeltrace2 prints of it, and the lists of kinds and
causes that it must agree with."""

import ast
import os
import re

import recording

EVENT_LIST = os.path.join(recording.ROOT, "trace", "event_list.h")


def listed(name):
    """{code: the strings or words after it} of one of the lists in event_list.h, read without a compiler."""
    with open(EVENT_LIST, encoding="utf-8") as stream:
        text = stream.read().split(f"#define {name}(X)")[1].split("/* clang-format on */")[0]
    return {int(code): rest for code, rest in re.findall(r"X\(\s*(\d+), (.*)", text)}


KINDS = {code: rest.split(",")[1].strip() for code, rest in listed("VARVE_EVENT_LIST").items()}
CAUSES = {code: rest.split('"')[1] for code, rest in listed("VARVE_CAUSE_LIST").items()}


TOKEN = re.compile(r'("(?:[^"\\]|\\.)*")|\[\d+\] = |<unknown>|: \w+ = |(\w+) = ')


def as_literal(match):
    """What babeltrace2 prints, as Python writes it: structures are dicts, enumerations pairs of label and value."""
    if match[1]:
        return match[1]
    if match[2]:
        return f'"{match[2]}": '
    return {"<": "None", ":": ", ", "[": ""}[match[0][0]]


def read_trace(path):
    """[(name, [(field, value)])] of the events of the provider, in the order of the trace."""
    outcome = recording.run(["babeltrace2", "--no-delta", path])
    if outcome.returncode != 0 or outcome.err:
        raise AssertionError(f"babeltrace2: {outcome}")
    events = []
    for line in outcome.out.splitlines():
        match = re.search(r" varve:(\w+): \{ cpu_id = \d+ \}, (.*)$", line)
        if not match:
            raise AssertionError(f"not understood: {line}")
        events.append((match.group(1), list(ast.literal_eval(TOKEN.sub(as_literal, match.group(2))).items())))
    return events


def read_types(path):
    """{event: [(field, size in bits, is signed, base)]}, sequences by their elements, strings left out."""
    folder = next(folder for folder, _, files in os.walk(path) if "metadata" in files)
    outcome = recording.run(["babeltrace2", "--output-format=ctf-metadata", folder])
    types = {}
    for block in outcome.out.split("event {")[1:]:
        name = re.search(r'name = "varve:(\w+)"', block)
        fields = re.findall(r"integer \{ size = (\d+); align = \d+; signed = (\d); encoding = \w+; base = (\d+); \}"
                            r"(?: \{[^}]*\})? _(\w+)", block)
        if name:
            types[name.group(1)] = [(field, int(size), int(sign), int(base)) for size, sign, base, field in fields]
    return types
