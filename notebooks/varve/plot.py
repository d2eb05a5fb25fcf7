# SPDX-License-Identifier: Apache-2.0
"""Figures of traces, by plotly: each function returns one, shown by whoever asked for it (`.show()`, `.write_html()`).
Axes have units, hovering names the line and the size. trace.plot.NAME() is of one trace; policies() and budget_curve()
are of what `varve compare --json` and `varve dtr --sweep --json` print."""

from __future__ import annotations

import collections
import itertools
import json
import numbers
import os
from typing import TYPE_CHECKING, Any, Sequence

from .reading import TraceError, needs, short_names

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

    from .trace import Trace

# Distinct for people who see red and green alike (Okabe and Ito, "Color Universal Design"), and what is left over.
COLORS = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#332288", "#882255", "#44AA99"]
OTHERS, FAINT, STRONG = "#BBBBBB", "#DDDDDD", "#222222"
POINTS, BLOCKS, LEVELS = 4000, 20000, 32  # more of them than this are not told apart on a screen
RUNGS = {"live_requested": ("requested", "#0072B2"), "rounding": ("rounding", "#56B4E9"),
         "unsplit_remainder": ("unsplit remainder", "#44AA99"), "segment_quantum": ("never used yet", "#F0E442"),
         "pool_segregation": ("other pools and streams", "#E69F00"),
         "stream_pending": ("pending on streams", "#CC79A7"),
         "cached_segments": ("cached segments", "#BBBBBB"), "external_holes": ("holes", "#D55E00")}
METRICS = {"peak": ("peak_bytes", "live at the peak"), "allocated": ("bytes", "allocated"),
           "leaked": ("live_bytes", "live at the end"),
           "temporary": ("temporary", "freed before the thread allocated again")}
_RANK_FOLDED = 2  # symbol.user_rank up to which a frame is plumbing, unnamed or of a run-time library


# ---- words and units ----

def _scale(most: float) -> tuple[float, str]:
    """By what to divide bytes so that the largest is at least 1, and the unit's name."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if most >= 1024 ** power:
            return 1024.0 ** power, unit
    return 1.0, "B"


def bytes_text(count: float) -> str:
    """Bytes in words of three digits, such as 1.25 GiB."""
    by, unit = _scale(abs(count))
    return f"{count / by:.3g} {unit}" if unit != "B" and abs(count) / by < 1000 else f"{count / by:,.0f} {unit}"


def ns_text(ns: float) -> str:
    """A duration in words, such as 20.1 ms."""
    for by, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= by:
            return f"{ns / by:.3g} {unit}"
    return f"{ns:.0f} ns"


def line_text(function: Any, file: Any, line: Any) -> str:
    """A user's line in a few words: function and the end of its path. HTML in names stays text."""
    text = function[:120] if isinstance(function, str) else ""
    if isinstance(file, str):
        text += f"  {os.path.basename(file)[:80]}" + (f":{int(line)}" if isinstance(line, numbers.Integral) else "")
    text = text or "(unknown)"
    return text.strip().replace("&", "&amp;").replace("<", "&lt;")


def new_figure(title: str, x: str = "", y: str = "", note: str = "") -> Figure:
    """An empty figure in the style of all of these: title, titles of the axes with their units, and a smaller line
    below the title."""
    go = needs("plotly.graph_objects", "plot")
    if note:
        title += f"<br><sup>{note}</sup>"
    return go.Figure(layout=go.Layout(
        template="plotly_white", title={"text": title, "x": 0.02, "xanchor": "left"}, xaxis={"title": x},
        yaxis={"title": y},
        hoverlabel={"align": "left"}, margin={"l": 70, "r": 30, "t": 80, "b": 60}, colorway=COLORS, height=520,
        legend={"font": {"size": 11}}))


def _empty(figure: Figure, why: str) -> Figure:
    figure.add_annotation(text=why, x=0.5, y=0.5, xref="paper", yref="paper", showarrow=False,
                          font={"size": 15, "color": "#777777"})
    figure.update_xaxes(visible=False)
    figure.update_yaxes(visible=False)
    return figure


def _thin(frame: pandas.DataFrame, most: str, points: int = POINTS) -> pandas.DataFrame:
    """At most `points` rows: of each interval of time the one with the most of `most`, and the last."""
    if len(frame) <= points:
        return frame
    rows = frame.reset_index(drop=True)
    begin, end = rows.ts_ns.min(), rows.ts_ns.max()
    intervals = rows.groupby((rows.ts_ns - begin) // ((end - begin) // (points // 2) + 1))
    return rows.loc[sorted({*intervals[most].idxmax(), *intervals.tail(1).index})]


class Plots:
    """The figures of one trace: trace.plot."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def _title(self, what: str) -> tuple[str, str]:
        health = self._trace.health
        return f"{what} — {os.path.basename(self._trace.path)}", "" if health.nothing_lost else f"⚠ {health}"

    def timeline(self, domains: Sequence[str] | None = None, device: int | None = None) -> Figure:
        """Bytes live over time, a line for each domain and device; of caching allocators what they have reserved too.
        Phases of the program (marks) are shaded, the peak of each line is labelled."""
        rows = self._trace.timeline
        rows = rows[rows.domain.isin(domains)] if domains else rows
        rows = rows[rows.device == device] if device is not None else rows
        title, note = self._title("Memory over time")
        by, unit = _scale(max(rows.allocated.max(), rows.reserved.fillna(0).max()) if len(rows) else 0)
        figure = new_figure(title, "time since the trace began, s", f"live, {unit}", note)
        several = rows.device.nunique() > 1
        for number, ((domain, where), part) in enumerate(rows.groupby(["domain", "device"], sort=False, dropna=False)):
            name, color = f"{domain}{f' on GPU {where}' if several else ''}", COLORS[number % len(COLORS)]
            part = part.sort_values("seq")
            if part.reserved.notna().any() and (part.reserved > 0).any():
                thin = _thin(part, "reserved")
                figure.add_scatter(x=thin.ts_ns / 1e9, y=thin.reserved.astype(float) / by, name=f"{name}: reserved",
                                   mode="lines", line={"shape": "hv", "color": color, "width": 1, "dash": "dot"},
                                   hovertemplate=f"%{{y:.4g}} {unit} reserved at %{{x:.6g}} s<extra>{name}</extra>")
            thin = _thin(part, "allocated")
            figure.add_scatter(x=thin.ts_ns / 1e9, y=thin.allocated / by, name=f"{name}: allocated", mode="lines",
                               line={"shape": "hv", "color": color, "width": 1.5}, customdata=thin.live_allocations,
                               hovertemplate=f"%{{y:.4g}} {unit} in %{{customdata:,}} allocations at %{{x:.6g}} "
                               f"s<extra>{name}</extra>")
            top = thin.loc[thin.allocated.idxmax()]
            figure.add_annotation(x=top.ts_ns / 1e9, y=top.allocated / by,
                                  text=f"{domain} {bytes_text(top.allocated)}",
                                  ax=0, ay=-18 - 14 * (number % 3), font={"color": color, "size": 11}, arrowcolor=color,
                                  arrowwidth=1)
        for mark in self._trace.marks.dropna(subset=["begin_ns", "end_ns"]).head(200).itertuples():
            figure.add_vrect(x0=mark.begin_ns / 1e9, x1=mark.end_ns / 1e9, fillcolor=STRONG, opacity=0.06, line_width=0,
                             annotation={"text": str(mark.name)[:24].replace("<", "&lt;"), "font": {"size": 10}})
        figure.update_yaxes(rangemode="tozero")
        return figure if len(rows) else _empty(figure, "the trace has no timeline")

    def ladder(self, device: int | None = None, process_id: int | None = None) -> Figure:
        """Why reserved memory serves no request, over time: the rungs of the view `ladder` stacked up to what is
        reserved, of one caching allocator (default: the one that reserved most). At each shown moment the
        sum is exact."""
        peaks = self._trace.ladder_peak
        peaks = peaks[peaks.device == device] if device is not None else peaks
        peaks = peaks[peaks.process_id == process_id] if process_id is not None else peaks
        title, note = self._title("What reserved memory is used for")
        if not len(peaks):
            return _empty(new_figure(title, "", ""),
                          "no caching allocator was recorded: record --torch, or import a snapshot")
        peak = peaks.loc[peaks.reserved.idxmax()]
        rows = _thin(self._trace.query("SELECT * FROM ladder WHERE device IS ? AND process_id IS ? ORDER BY seq",
                                       (int(peak.device), int(peak.process_id))), "reserved", POINTS // 2)
        by, unit = _scale(float(peak.reserved))
        note = note or (f"most reserved: {bytes_text(peak.reserved)} at {ns_text(peak.ts_ns)}, of which requested "
                        f"{bytes_text(peak.live_requested)}; GPU {peak.device}, pid {peak.pid}")
        figure = new_figure(title, "time since the trace began, s", f"reserved, {unit}", note)
        for column, (name, color) in RUNGS.items():
            if len(rows) and (rows[column] != 0).any():
                figure.add_scatter(x=rows.ts_ns / 1e9, y=rows[column] / by, name=name, mode="lines",
                                   stackgroup="reserved",
                                   line={"width": 0, "shape": "hv", "color": color}, fillcolor=color,
                                   hovertemplate=f"%{{y:.4g}} {unit}")
        figure.update_layout(hovermode="x unified")
        return figure if len(rows) else _empty(figure, "the rows of events were not kept; ladder_peak has the peak")

    def lifetimes(self, domain: str | None = None) -> Figure:
        """How long allocations of which size lived: a cell is a power of two in size and half a power of ten in time,
        its colour the number of allocations; those never freed have the column at the right."""
        np = needs("numpy", "data")
        title, note = self._title("Sizes and lifetimes")
        domain = domain or _main_domain(self._trace)
        figure = new_figure(f"{title}: {domain}", "lived for", "size", note)
        counts: dict[tuple[int, float], list[int]] = {}
        for batch in self._trace.batches("SELECT size, lifetime_ns FROM allocations WHERE domain = ?", (domain,)):
            sizes = batch.column(0).to_numpy(zero_copy_only=False).astype(float)
            lived = batch.column(1).to_numpy(zero_copy_only=False).astype(float)
            rows = np.ceil(np.log2(np.maximum(sizes, 1)))
            columns = np.where(np.isnan(lived), np.inf, np.floor(2 * np.log10(np.maximum(lived, 1))))
            cells, inverse = np.unique(np.stack([rows, columns]), axis=1, return_inverse=True)
            number, total = np.bincount(inverse.ravel()), np.bincount(inverse.ravel(), sizes)
            for cell, blocks, size in zip(cells.T, number, total):
                have = counts.setdefault((int(cell[0]), float(cell[1])), [0, 0])
                have[0], have[1] = have[0] + int(blocks), have[1] + int(size)
        if not counts:
            return _empty(figure, f"the trace has no rows of allocations in domain {domain}")
        ended = [column for _, column in counts if column != float("inf")]
        times = list(range(int(min(ended, default=0)), int(max(ended, default=0)) + 1)) + [float("inf")]
        sizes = list(range(min(row for row, _ in counts), max(row for row, _ in counts) + 1))
        grid = [[counts.get((row, column), [None, 0])[0] for column in times] for row in sizes]
        figure.add_heatmap(
            z=[[None if cell is None else float(np.log10(cell)) for cell in row] for row in grid],
            x=["never freed" if column == float("inf") else ns_text(10 ** (column / 2)) for column in times],
            y=[f"≤ {bytes_text(2.0 ** row)}" for row in sizes], xgap=1, ygap=1, colorscale="Viridis_r",
            customdata=[[f"{counts[row, column][0]:,} allocations, {bytes_text(counts[row, column][1])}"
                         if (row, column) in counts else ""
                         for column in times] for row in sizes],
            hovertemplate="%{customdata}<br>%{y}, lived %{x} and more<extra></extra>",
            colorbar={"title": "allocations", "tickvals": list(range(9)),
                      "ticktext": ["1", "10", "100", "1 k", "10 k", "100 k", "1 M",
                                   "10 M", "100 M"]})
        figure.update_yaxes(type="category", showgrid=False)
        figure.update_xaxes(type="category", showgrid=False)
        return figure

    def flame_graph(self, metric: str = "peak", domain: str | None = None, *, inverted: bool = False,
                    min_share: float = 0.002) -> Figure:
        """Stacks with the bytes of a metric (peak, allocated, leaked; temporary: number), callers above what they call;
        inverted: the allocating lines above their callers; frames of allocators and interpreters are folded into
        their callers. What has less than `min_share` of all is put together. Click
        to go into a frame."""
        go = needs("plotly.graph_objects", "plot")
        if metric not in METRICS:
            raise TraceError(f"unknown metric '{metric}': {', '.join(METRICS)}")
        column, words = METRICS[metric]
        domain = domain or _main_domain(self._trace)
        title, note = self._title(f"{domain}: {words}, by stack")
        stacks = _stacks(self._trace, column, domain, inverted)
        figure = new_figure(title, "", "", note)
        if not stacks:
            return _empty(figure, f"domain {domain} has nothing {words}")
        nodes = _tree(stacks, inverted, min_share)
        text = (lambda value: f"{value:,}") if metric == "temporary" else bytes_text
        total = nodes[0][3]
        figure.add_trace(go.Icicle(
            ids=[str(node[0]) for node in nodes], parents=["" if node[1] is None else str(node[1]) for node in nodes],
            labels=[node[2] for node in nodes], values=[node[3] for node in nodes], branchvalues="total",
            customdata=[[text(node[3]), f"{node[3] / total:.1%}", node[4]] for node in nodes], sort=True,
            hovertemplate="<b>%{label}</b><br>%{customdata[0]}, %{customdata[1]} of "
                          "all<br>%{customdata[2]}<extra></extra>",
            texttemplate="%{label}  %{customdata[0]}", tiling={"orientation": "v"}, maxdepth=LEVELS, root_color=FAINT,
            marker={"colors": [_warm(node[2]) if node[1] is not None else FAINT for node in nodes]},
            pathbar={"thickness": 18}))
        # Rows high enough for their text; what is deeper is reached by a click.
        levels: dict[int | None, int] = {None: 0}
        for number, parent, *_ in nodes:
            levels[number] = levels[parent] + 1
        figure.update_layout(height=max(360, 120 + 24 * min(LEVELS, max(levels.values()))),
                             margin={"l": 10, "r": 10, "b": 10}, uniformtext={"minsize": 9, "mode": "hide"})
        return figure

    def block_map(self, device: int | None = None, *, start_ns: int | None = None, end_ns: int | None = None,
                  process_id: int | None = None, segment_id: int | None = None, color: str = "user") -> Figure:
        """Addresses over time: each block a rectangle from its allocation to its free, in its segment; colours are the
        user's lines with the most bytes × time, with color="inner" the innermost lines, of libraries too. Of up to
        20,000 blocks each is drawn and named; more of them become a picture, in which a smaller part (start_ns to
        end_ns, or one segment) has its blocks again."""
        from .block_map import draw
        return draw(self._trace, device, start_ns, end_ns, process_id, segment_id, color)


def _main_domain(trace: Trace) -> str:
    """The first that has anything: blocks of a caching allocator, GPU memory, the heap; of mmap much is
    only reserved."""
    peaks = trace.totals.groupby("domain").peak_bytes.sum()
    found = [domain for domain in ("block", "device", "managed", "pinned", "heap", "python") if peaks.get(domain, 0)
             > 0]
    return found[0] if found else str(peaks.idxmax()) if len(peaks) else "heap"


def _stacks(trace: Trace, column: str, domain: str, inverted: bool) -> list[tuple[int, list[tuple[str, str]]]]:
    """Of each call site that has any of a column: how much, and (label, place) of its frames, the outermost first, as
    the page of `varve report --html` has them: frames of allocators and interpreters and repetitions are folded into
    their callers; inverted, a stack begins with the user's line. Nodes are read once: deep stacks share most of
    theirs."""
    sites = trace._rows(f"SELECT c.node_id, coalesce(c.user_symbol_id, c.symbol_id), t.{column} FROM callsite_total t "
                        f"LEFT JOIN callsite c ON c.id = t.callsite_id WHERE t.domain = ? AND t.{column} > 0",
                        (domain,))[1]
    nodes = {row[0]: row[1:] for row in trace._rows("SELECT id, parent_id, symbol_id FROM stack_node")[1]}
    names, folded = {}, set()
    for number, function, file, line, module, rank in trace._rows("SELECT id, function, file, line, module, user_rank "
                                                                  "FROM symbol")[1]:
        where = os.path.basename(module) if isinstance(module, str) else None
        names[number] = (line_text(function if isinstance(function, str) else where, file, line),
                         line_text(file if isinstance(file, str) else module, None, None))
        if rank is None or rank <= _RANK_FOLDED:
            folded.add(number)
    made = []
    for node, line, value in sites:
        path = []
        while node in nodes:
            parent, symbol = nodes[node]
            path.append(symbol)
            node = parent if parent is not None and parent < node else None  # of a damaged file, too, a walk ends
        if inverted and line in path:
            path = path[path.index(line):]
        shown = [names.get(symbol, ("(unknown)", "")) for symbol in path if symbol not in folded] or \
            [names.get(line, ("(no stack)", ""))]
        made.append((value, [name for name, _ in itertools.groupby(reversed(shown))]))
    return made


def _tree(stacks: list[tuple[int, list[tuple[str, str]]]], inverted: bool,
          min_share: float) -> list[tuple[int, int | None, str, int, str]]:
    """Nodes (id, parent, label, value, place), parents first; small ones together."""
    numbers: dict[tuple[int, str], int] = {}
    nodes: list[tuple[int, int | None, str, str]] = [(0, None, "all", "")]
    totals = [0]
    for value, path in stacks:
        at = 0
        totals[0] += value
        for label, place in reversed(path) if inverted else path:
            child = numbers.setdefault((at, label), len(nodes))
            if child == len(nodes):
                nodes.append((child, at, label, place))
                totals.append(0)
            at = child
            totals[at] += value
    least, made = totals[0] * min_share, []
    rest: dict[int | None, int] = {}
    for number, parent, label, place in nodes:
        if totals[number] >= least:
            made.append((number, parent, label, totals[number], place))
        elif totals[parent or 0] >= least:
            rest[parent] = rest.get(parent, 0) + totals[number]
    # Only where much is left over is a node of its own worth its place; else the parent's own width says it.
    return made + [(len(nodes) + at, parent, "(smaller)", value, "") for at,
                   (parent, value) in enumerate(rest.items()) if value >= least]


def _warm(label: str) -> str:
    """A colour of a flame for a name, always the same."""
    number = sum(ord(letter) * (at + 1) for at, letter in enumerate(label[:40]))
    return f"hsl({number % 45 + 5}, {70 + number % 20}%, {62 + number // 7 % 16}%)"


# ---- of the command's JSON ----

def _loaded(source: Any) -> Any:
    """JSON: as text, a file of it, or loaded already."""
    if isinstance(source, (str, os.PathLike)):
        text = os.fspath(source)
        if text.lstrip()[:1] not in ("[", "{"):
            with open(text, encoding="utf-8") as file:
                text = file.read()
        try:
            return json.loads(text)
        except ValueError as error:
            raise TraceError(f"no JSON: {error}") from None
    return source


def policies(compare_json: Any) -> Figure:
    """What each policy or setting reserves at the peak, from `varve compare --json` (text, file or loaded) or
    varve.sweep(): bars above the requests' own peak (load), which none can go below; failed requests are named."""
    pd = needs("pandas", "data")
    rows = compare_json if isinstance(compare_json, pd.DataFrame) else pd.DataFrame(_loaded(compare_json))
    if "error" in rows:
        rows = rows[rows.error.isna()]
    figure = new_figure("Memory reserved at the peak, by policy", "", "")
    if "peak_reserved" not in rows or not len(rows):
        return _empty(figure, "no settings: varve compare --json makes them")
    rows = rows.sort_values("peak_reserved", ascending=False)
    by, unit = _scale(rows.peak_reserved.max())
    extra = [name for name in ("conf", "memory_limit", "capacity") if name in rows and rows[name].nunique(dropna=False)
             > 1]
    traces = short_names({str(trace) for trace in rows.trace}) if "trace" in rows and rows.trace.nunique() > 1 else {}
    seen: collections.Counter[str] = collections.Counter()
    names = []
    for _, row in rows.iterrows():
        name = " ".join([str(row["policy"])] + [str(row[name]) for name in extra if pd.notna(row[name])]
                        + ([traces[str(row["trace"])]] if traces else []))
        seen[name] += 1
        # bars of the same name would be put on each other
        names.append(f"{name} ({seen[name]})" if seen[name] > 1 else name)
    load = rows.load_bytes.fillna(0) if "load_bytes" in rows else rows.peak_reserved * 0
    ooms = rows.ooms.fillna(0) if "ooms" in rows else rows.peak_reserved * 0
    figure.add_bar(y=names, x=load / by, orientation="h", name="requests at their peak", marker_color=COLORS[0],
                   hovertemplate=f"%{{x:.4g}} {unit} requested<extra>%{{y}}</extra>")
    figure.add_bar(y=names, x=(rows.peak_reserved - load) / by, orientation="h", name="reserved beyond them",
                   marker_color=COLORS[1],
                   text=[f"{bytes_text(reserved)}{f', {reserved / own - 1:+.1%}' if own else ''}"
                         f"{f', {int(failed)} failed requests' if failed else ''}"
                         for reserved, own, failed in zip(rows.peak_reserved, load, ooms)],
                   textposition="outside", cliponaxis=False,
                   hovertemplate=f"%{{x:.4g}} {unit} more<extra>%{{y}}</extra>")
    figure.update_layout(barmode="stack", height=max(320, 120 + 28 * len(rows)), margin={"l": 160, "r": 140},
                         legend={"orientation": "h", "y": 1.02, "yanchor": "bottom", "x": 1, "xanchor": "right"})
    figure.update_xaxes(title=f"peak reserved, {unit}")
    return figure


def budget_curve(sweep_json: Any) -> Figure:
    """What a smaller memory costs in time under rematerialization, from `varve dtr --sweep --json` (text, file, loaded,
    or a list of them, a line each): the overhead by budget; budgets that do not work are marked below."""
    loaded = _loaded(sweep_json)
    sweeps = [_loaded(sweep) for sweep in loaded] if isinstance(loaded, list) else [loaded]
    if not sweeps or any(not isinstance(sweep, dict) or "points" not in sweep for sweep in sweeps):
        raise TraceError("no sweep: varve dtr LOG --sweep 0.1:1:0.01 --json prints one")
    by, unit = _scale(max(sweep["baseline_memory"] for sweep in sweeps))
    figure = new_figure("What a smaller memory costs", f"memory budget, {unit}",
                        "time with recomputation / time without",
                        f"{os.path.basename(str(sweeps[0]['log']))}; without a budget "
                        f"{bytes_text(sweeps[0]['baseline_memory'])}")
    most = max((point["overhead"] for sweep in sweeps for point in sweep["points"] if point["status"] == "ok"),
               default=2.0)
    for number, sweep in enumerate(sweeps):
        below = 1.0 - (most - 1.0) * 0.045 * (number + 1)  # budgets that do not work, a row for each sweep
        good = [point for point in sweep["points"] if point["status"] == "ok"]
        bad = [point for point in sweep["points"] if point["status"] != "ok"]
        color = COLORS[number % len(COLORS)]
        name = str(sweep["heuristic"]) + ("" if len({one["log"] for one in sweeps}) == 1
                                          else f", {os.path.basename(str(sweep['log']))}")
        figure.add_scatter(x=[point["budget"] / by for point in good], y=[point["overhead"] for point in good],
                           name=name, mode="lines+markers", line={"color": color}, marker={"size": 5},
                           customdata=[[point["evictions"], point["remats"], point["budget"] / sweep["baseline_memory"]]
                                       for point in good],
                           hovertemplate=f"%{{y:.3f}} × the time at %{{x:.4g}} {unit} (%{{customdata[2]:.0%}} of the "
                           "peak)"
                           "<br>%{customdata[0]:,} evictions, %{customdata[1]:,} "
                           "recomputed<extra></extra>")
        for status, symbol in (("thrash", "x"), ("oom", "x-thin-open")):
            part = [point for point in bad if point["status"] == status]
            if part:
                figure.add_scatter(x=[point["budget"] / by for point in part], y=[below] * len(part), mode="markers",
                                   name=f"{name}: {'does not fit' if status == 'oom' else 'computes without end'}",
                                   marker={"symbol": symbol, "color": color, "size": 8},
                                   hovertemplate=f"%{{x:.4g}} {unit}: {status}<extra></extra>")
    bound = max(sweep.get("lower_bound", 0) for sweep in sweeps)
    if len(sweeps) == 1 and bound > 0:
        figure.add_vline(x=bound / by, line={"color": STRONG, "dash": "dot", "width": 1},
                         annotation={"text": "least that one operator needs", "font": {"size": 11}})
    return figure
