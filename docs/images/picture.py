#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The picture of the page of `varve report --html` in the documents: of a recorded training of ResNet-50, replayed.

usage: picture.py FILE.png      VARVE names the command (default build/varve)
"""

import base64
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/conformance"))
import browser  # noqa: E402

VARVE = os.path.abspath(os.environ.get("VARVE", ROOT / "build/varve"))
TRACE = ROOT / "tests/conformance/pytorch/resnet50_train_stacks.pickle.xz"
BYTES_MAX = 200_000
FLAME_PIXELS = 290  # of the flame graph: its outer frames, whose names can be read


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    browser.skip_without()
    with tempfile.TemporaryDirectory() as folder:
        for command in (["replay", TRACE, "-o", "resnet50.db"], ["report", "--html", "report.html", "resnet50.db"]):
            subprocess.run([VARVE, *command], cwd=folder, stdout=subprocess.DEVNULL, check=True)
        page = browser.Browser()
        try:
            page.open(os.path.join(folder, "report.html"))
            page.press("#live", "peak")
            top = page.run("return document.querySelector('#flame canvas').getBoundingClientRect().top + scrollY")
            picture = page.driver.execute_cdp_cmd("Page.captureScreenshot", {
                "captureBeyondViewport": True,
                "clip": {"x": 0, "y": 0, "width": browser.WIDTH, "height": top + FLAME_PIXELS, "scale": 1}})
        finally:
            page.close()
    data = base64.b64decode(picture["data"])
    if len(data) > BYTES_MAX:
        sys.exit(f"the picture has {len(data)} bytes, more than {BYTES_MAX}")
    pathlib.Path(sys.argv[1]).write_bytes(data)


if __name__ == "__main__":
    main()
