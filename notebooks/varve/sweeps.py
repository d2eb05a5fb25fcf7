# SPDX-License-Identifier: Apache-2.0
"""Replays of many traces under many settings as Dask tasks: `varve compare`, `frontier` or `bound` with --json, a
run for each."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Sequence

from .command import find_command
from .datasets import _paths, connected
from .reading import TraceError, needs

if TYPE_CHECKING:
    import pandas

COMMANDS = ("compare", "frontier", "bound")
_OPTIONS: dict[str, dict[str, str]] = {
    "compare": {"policy": "--policies", "conf": "--conf", "memory_limit": "--memory-limit", "capacity": "--capacity"},
    "frontier": {"policy": "--policy", "conf": "--conf"}, "bound": {}}


def sweep(traces: Any, policies: Sequence[str] = ("pytorch",), confs: Sequence[str | None] = (None,),
          memory_limits: Sequence[int | str | None] = (None,), capacities: Sequence[int | str | None] = (None,), *,
          command: str = "compare",
          options: Sequence[str] = (), varve: str | os.PathLike[str] | None = None, scheduler: Any = None,
          timeout: float = 600.0) -> pandas.DataFrame:
    """A row for each trace and setting, with the keys of the command's JSON (peak_reserved, load_bytes, …; sizes in
    bytes, device_ns in ns). `traces`: databases or snapshots, as for varve.dataset(). policies, confs (in PyTorch's
    syntax), memory_limits and capacities (bytes, or as "16G") are combined; None: as the trace has it. `command`:
    compare, frontier (policies and confs alone) or bound (none of them); `options`: more of its options, for all runs,
    such as ["--served-only"]. One that fails is a row with its reason in `error`.

    `varve`: the command (default: VARVE, build/varve of this source tree, the wheel's, or the one in PATH); it and the
    traces must be there for every worker. `scheduler`: None: threads of this process; the address of a Dask scheduler,
    or a Client. `timeout`: seconds for each run."""
    pd, dask = needs("pandas", "data"), needs("dask", "dataset")
    if command not in COMMANDS:
        raise TraceError(f"unknown command '{command}': {', '.join(COMMANDS)}")
    choices = {"policy": policies, "conf": confs, "memory_limit": memory_limits, "capacity": capacities}
    for name, values in choices.items():
        if isinstance(values, str):
            raise TraceError(f"{name}: a list of settings, not '{values}' alone")
        if name not in _OPTIONS[command] and any(value is not None for value in values) and name != "policy":
            raise TraceError(f"varve {command} takes no {name}")
    used = [choices[name] if name in _OPTIONS[command] else (None,) for name in choices]
    program = os.fspath(varve) if varve is not None else find_command()
    program = os.path.abspath(program) if os.sep in program else program
    tasks = [dask.delayed(_run, pure=False)(program, [command, *options], path, dict(zip(choices, setting)), timeout)
             for path in _paths(traces) for setting in itertools.product(*used)]
    rows = [row for rows in _computed(dask, tasks, scheduler) for row in rows]
    names = list(dict.fromkeys(name for row in rows for name in row if name != "error"))
    return pd.DataFrame({name: _column(pd, [row.get(name) for row in rows]) for name in [*names, "error"]})


def _column(pd: Any, values: list[Any]) -> Any:
    """Integers stay integers where some are missing, and text stays text."""
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {int}:
        return pd.array(values, dtype="Int64")
    return pd.Series(values, dtype=float if kinds and kinds <= {int, float} else object)


def _computed(dask: Any, tasks: list[Any], scheduler: Any) -> list[list[dict]]:
    if scheduler is None:
        # The command uses all processors by itself where it has several settings; here it has one.
        return list(dask.compute(*tasks, scheduler="threads"))
    with connected(scheduler) as client:
        return list(client.gather(client.compute(tasks)))


def _run(program: str, words: list[str], path: str, setting: dict[str, Any], timeout: float) -> list[dict]:
    """A task: one run of the command; what went wrong is a row."""
    command = words[0]
    labels = {"trace": path, "command": command, **{name: value for name,
                                                    value in setting.items() if value is not None}}
    arguments = [program, *words, "--json"]
    for name, option in _OPTIONS[command].items():
        if setting[name] is not None:
            arguments += [option, str(setting[name])]
    try:
        done = subprocess.run([*arguments, path], capture_output=True, text=True, errors="replace", timeout=timeout,
                              env={**os.environ, "VARVE_CONFIG": ""})  # all options are said here
        if done.returncode != 0:
            return [{**labels, "error": (done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1]}]
        found = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return [{**labels, "error": f"no end after {timeout:g} s"}]
    except (OSError, ValueError) as error:
        return [{**labels, "error": f"{program}: {error}"}]
    return [{**labels, **{name: value for name, value in one.items() if not isinstance(value, (dict, list))},
             **{f"{name}.{key}": value for name, group in one.items() if isinstance(group, dict) for key,
                value in group.items()
                if not isinstance(value, (dict, list))}} for one in (found if isinstance(found, list) else [found])]
