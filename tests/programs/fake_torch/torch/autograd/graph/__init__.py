# SPDX-License-Identifier: Apache-2.0
def _engine_run_backward(function, *arguments):
    return function(*arguments)
