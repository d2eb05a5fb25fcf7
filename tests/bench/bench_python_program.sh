#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prepares what python_program.py measures, a virtual environment with a program's libraries and memray, and runs it.
# The environment is made once, in $VARVE_BENCH_VENV (default: below the user's cache folder), of what PyPI has then;
# VARVE_BENCH_PYTHON says with which interpreter. An environment that was made otherwise is taken as it is.
set -eu

here=$(dirname "$(readlink -f "$0")")
python=${VARVE_BENCH_PYTHON:-python3}
venv=${VARVE_BENCH_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/varve/bench-python}
packages="numpy pandas scipy scikit-learn matplotlib"

skip() {
    printf '{"bench": "python_program", "skipped": "%s"}\n' "$1"
    exit 0
}

# Does the environment have what the program needs? memray may be missing: that is a peer.
is_there() {
    "$venv/bin/python" -c "import numpy, pandas, scipy, sklearn, matplotlib" >/dev/null 2>&1
}

if ! is_there; then
    echo "bench_python_program: installing $packages and memray from PyPI into $venv" >&2
    "$python" -m venv "$venv" >&2 || skip "no virtual environment: $python -m venv failed"
    # shellcheck disable=SC2086
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check $packages >&2 ||
        skip "the program's libraries could not be installed from PyPI"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check memray >&2 ||
        echo "bench_python_program: memray could not be installed" >&2
    is_there || skip "the program's libraries were installed and cannot be imported"
fi

exec "$python" "$here/python_program.py" "$venv/bin/python"
