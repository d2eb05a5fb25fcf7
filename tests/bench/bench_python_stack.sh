#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Found by its name by the bench verb of ./dev; the figures are made in bench_python_stack.py.
exec python3 "$(dirname "$0")/bench_python_stack.py"
