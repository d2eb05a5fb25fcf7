#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Costs: 1 s
"""`varve doctor` on a machine with a GPU: the driver starts in the doctor's child, its devices have names and sizes,
varve's allocator gets the first one, and nothing of it stays behind. Hidden devices are reported as such."""

import json
import os
import subprocess
import sys

VARVE = os.environ.get("VARVE", "build/varve")


def doctor(**variables):
    answer = subprocess.run([VARVE, "doctor", "--json"], env={**os.environ, **variables}, stdout=subprocess.PIPE,
                            check=True)
    lines = {}
    for check in json.loads(answer.stdout)["checks"]:
        lines.setdefault(check["key"], []).append(check)
    return lines


def main():
    if not os.path.exists("/dev/nvidiactl"):
        print("skipped: no NVIDIA driver here (/dev/nvidiactl is missing)")
        return 1 if os.environ.get("VARVE_TESTS_STRICT") == "1" else 77
    lines = doctor()
    for key in ("gpu", "cuda", "cuda_device"):
        for line in lines[key]:
            print(f"{line['state']:8} {key:12} {line['found']}")
            assert line["state"] == "ok", line
    assert lines["cuda"][0]["found"].startswith("driver for CUDA "), lines["cuda"]
    assert all(" GiB" in line["found"] for line in lines["cuda_device"] if not line["found"].startswith("and ")), lines
    assert "cuda_memory" not in lines, lines["cuda_memory"]
    for key in ("cupti", "pytorch", "cuda_toolkit"):
        for line in lines.get(key, []):
            print(f"{line['state']:8} {key:12} {line['found']}")
    hidden = doctor(CUDA_VISIBLE_DEVICES="")["cuda"][0]
    print(f"{hidden['state']:8} {'hidden':12} {hidden['found']}")
    assert hidden["state"] == "missing" and "CUDA_ERROR_NO_DEVICE" in hidden["found"], hidden
    assert "CUDA_VISIBLE_DEVICES" in hidden["remedy"], hidden
    return 0


if __name__ == "__main__":
    sys.exit(main())
