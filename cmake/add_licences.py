#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The licences of what a wheel has of this Debian system, put into it: of the libraries that auditwheel has copied, and
of those that are linked statically.

usage: add_licences.py WHEEL FOLDER"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

STATIC = ("libarchive.a", "libiberty.a")


def owner(file):
    """The Debian package that has a file of this name."""
    listed = subprocess.run(["dpkg", "-S", f"*/{file}"], stdout=subprocess.PIPE, text=True, check=False).stdout
    packages = sorted({line.split(":")[0] for line in listed.splitlines()})
    if not packages:
        sys.exit(f"add_licences: no package has {file}")
    return packages[0]


def main(wheel, folder):
    with tempfile.TemporaryDirectory() as work:
        subprocess.run([sys.executable, "-m", "wheel", "unpack", "-d", work, wheel], check=True)
        tree, = glob.glob(os.path.join(work, "*"))
        licences, = glob.glob(os.path.join(tree, "*.dist-info", "licenses"))
        copied = [re.sub(r"-[0-9a-f]{8}(?=\.)", "", os.path.basename(path))
                  for path in glob.glob(os.path.join(tree, "*.libs", "*"))]
        packages = {owner(file) for file in [*copied, *STATIC]}
        for package in packages:
            shutil.copy(f"/usr/share/doc/{package}/copyright", os.path.join(licences, f"{package}.txt"))
        os.makedirs(folder, exist_ok=True)
        subprocess.run([sys.executable, "-m", "wheel", "pack", "-d", folder, tree], check=True)
    print(f"add_licences: {len(packages)} packages: {' '.join(sorted(packages))}")


if __name__ == "__main__":
    main(*sys.argv[1:])
