# SPDX-License-Identifier: Apache-2.0
"""The map of blocks: addresses over time. Segments are stacked without the gaps between them; blocks are
rectangles in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .plot import BLOCKS, COLORS, OTHERS, _empty, new_figure, _scale, bytes_text, line_text, ns_text
from .reading import TraceError, needs

if TYPE_CHECKING:
    import pandas
    from plotly.graph_objects import Figure

    from .trace import Trace

PIXELS_X, PIXELS_Y = 1600, 800
FREE = "#E9E9E9"


def _spans(trace: Trace, process_id: int, device: int, segment_id: int | None) -> pandas.DataFrame:
    """The segments in the order of their addresses, and where each begins on the axis; those that lay at the same
    place share it."""
    sql = "SELECT id, addr, size, alloc_ns, free_ns FROM segment WHERE process_id = ? AND device IS ? AND size > 0"
    segments = trace.query(sql + (" AND id = ?" if segment_id is not None else "") + " ORDER BY addr, size",
                           (process_id, device) + ((segment_id,) if segment_id is not None else ()))
    bases, end, top = [], None, 0
    for addr, size in zip(segments.addr, segments["size"]):
        if end is None or addr >= end:
            bases.append(top)
            start, base, end = addr, top, addr + size
        else:
            bases.append(base + addr - start)
            end = max(end, addr + size)
        top = max(top, bases[-1] + size)
    segments["base"] = bases
    return segments


def _blocks(trace: Trace, segments: pandas.DataFrame, process_id: int, device: int, begin: int, end: int,
            is_inner: bool) -> pandas.DataFrame:
    symbol = "c.symbol_id" if is_inner else "coalesce(c.user_symbol_id, c.symbol_id)"
    blocks = trace.query(
        "SELECT a.segment_id, a.addr, a.size, a.alloc_ns, a.free_ns, s.function, coalesce(s.file, s.module) AS file, "
        f"s.line FROM allocations a LEFT JOIN callsite c ON c.id = a.callsite_id LEFT JOIN symbol s ON s.id = {symbol} "
        "WHERE a.domain = 'block' AND a.process_id = ? AND a.device IS ? AND a.alloc_ns <= ? AND (a.free_ns IS NULL OR "
        "a.free_ns >= ?)",
        (process_id, device, end, begin))
    blocks = blocks.merge(segments[["id", "addr", "base"]], left_on="segment_id", right_on="id",
                          suffixes=("", "_segment"))
    blocks["low"] = blocks.base + blocks.addr - blocks.addr_segment
    blocks["end_ns"] = blocks.free_ns.fillna(end).astype("int64").clip(upper=end)
    blocks["begin_ns"] = blocks.alloc_ns.clip(lower=begin)
    keys = blocks[["function", "file", "line"]].astype(object).where(blocks[["function", "file", "line"]].notna(), None)
    names = {key: line_text(*key) for key in set(map(tuple, keys.itertuples(index=False)))}
    blocks["name"] = [names[key] for key in keys.itertuples(index=False, name=None)]
    return blocks


def _classes(blocks: pandas.DataFrame) -> list[tuple[str, str]]:
    """The lines with the most bytes × time, and their colours."""
    weight = (blocks["size"].astype(float)
              * (blocks.end_ns - blocks.begin_ns)).groupby(blocks.name).sum().sort_values(ascending=False)
    chosen = list(zip(weight.index[:len(COLORS)], COLORS))
    return chosen + ([("other lines", OTHERS)] if len(weight) > len(COLORS) else [])


def _corners(x0: Any, x1: Any, y0: Any, y1: Any) -> dict[str, Any]:
    """Rectangles as one line with gaps, which plotly fills."""
    np = needs("numpy", "data")
    gap = np.full(len(x0), np.nan)
    return {"x": np.stack([x0, x1, x1, x0, x0, gap], axis=1).ravel(),
            "y": np.stack([y0, y0, y1, y1, y0, gap], axis=1).ravel(),
            "fill": "toself", "mode": "lines", "hoverinfo": "skip"}


def _backgrounds(figure: Figure, segments: pandas.DataFrame, by: float, begin: int, end: int) -> None:
    """While they are reserved, segments are grey where no block is."""
    x0 = segments.alloc_ns.clip(lower=begin).to_numpy() / 1e9
    x1 = segments.free_ns.fillna(end).astype("int64").clip(upper=end).to_numpy() / 1e9
    y0 = segments.base.to_numpy() / by
    figure.add_scatter(**_corners(x0, x1, y0, y0 + segments["size"].to_numpy() / by),
                       line={"width": 0.5, "color": "#AAAAAA"}, fillcolor=FREE, name="reserved, free")


def _rectangles(figure: Figure, blocks: pandas.DataFrame, names: list[tuple[str, str]], by: float) -> None:
    for name, color in names:
        part = blocks[blocks["class"] == name]
        x0, x1, y0 = part.begin_ns.to_numpy() / 1e9, part.end_ns.to_numpy() / 1e9, part.low.to_numpy() / by
        y1 = y0 + part["size"].to_numpy() / by
        figure.add_scatter(**_corners(x0, x1, y0, y1), line={"width": 0.3, "color": "white"}, fillcolor=color,
                           name=name, legendgroup=name)
        text = [f"{where}<br>{bytes_text(size)} for {ns_text(end - begin)}" for where, size, begin, end
                in zip(part.name, part["size"], part.alloc_ns, part.end_ns)]
        figure.add_scattergl(x=(x0 + x1) / 2, y=(y0 + y1) / 2, mode="markers", marker={"opacity": 0, "size": 6},
                             text=text, name=name,
                             legendgroup=name, showlegend=False, hovertemplate="%{text}<extra></extra>")


def _cells(x0: Any, x1: Any, y0: Any, y1: Any, begin: int, end: int, top: int) -> tuple[Any, Any, Any, Any]:
    """Columns and rows of the picture that rectangles cover: one at least."""
    np = needs("numpy", "data")
    left = ((x0.astype(float) - begin) * PIXELS_X / max(1, end - begin)).astype(int).clip(0, PIXELS_X - 1)
    right = np.ceil((x1.astype(float) - begin) * PIXELS_X / max(1, end - begin)).astype(int).clip(left + 1, PIXELS_X)
    low = (y0.astype(float) * PIXELS_Y / top).astype(int).clip(0, PIXELS_Y - 1)
    return left, right, low, np.ceil(y1.astype(float) * PIXELS_Y / top).astype(int).clip(low + 1, PIXELS_Y)


def _picture(figure: Figure, segments: pandas.DataFrame, blocks: pandas.DataFrame, names: list[tuple[str, str]],
             by: float, begin: int, end: int, top: int) -> None:
    """Cells of time and address, each with the class of a block in it: small ones are drawn first, so that large
    ones are whole."""
    np = needs("numpy", "data")
    classes = [("reserved, free", FREE), *names]
    grid = np.full((PIXELS_Y, PIXELS_X), np.nan, dtype=np.float32)
    ends = segments.free_ns.fillna(end).astype("int64").clip(upper=end).to_numpy()
    base = segments.base.to_numpy()
    for left, right, low, high in zip(*_cells(segments.alloc_ns.to_numpy(), ends, base,
                                              base + segments["size"].to_numpy(), begin, end, top)):
        grid[low:high, left:right] = 0
    number = {name: at for at, (name, _) in enumerate(classes)}
    chosen = blocks["class"].map(number).to_numpy()
    low_bytes = blocks.low.to_numpy()
    left, right, low, high = _cells(blocks.begin_ns.to_numpy(), blocks.end_ns.to_numpy(), low_bytes,
                                    low_bytes + blocks["size"].to_numpy(), begin, end, top)
    for at in np.argsort((right - left) * (high - low), kind="stable"):
        grid[low[at]:high[at], left[at]:right[at]] = chosen[at]
    colors: list[Any] = []
    for at, (_, color) in enumerate(classes):
        colors += [[at / len(classes), color], [(at + 1) / len(classes), color]]
    figure.add_heatmap(z=grid, x0=begin / 1e9, dx=(end - begin) / 1e9 / PIXELS_X, y0=0, dy=top / by / PIXELS_Y,
                       zmin=-0.5, zmax=len(classes) - 0.5, colorscale=colors, showscale=False, hoverongaps=False,
                       hovertemplate="%{x:.6g} s, %{y:.4g}<extra></extra>")
    for name, color in classes:
        figure.add_scatter(x=[None], y=[None], mode="markers", marker={"symbol": "square", "size": 10, "color": color},
                           name=name)


def draw(trace: Trace, device: int | None, start_ns: int | None, end_ns: int | None, process_id: int | None,
         segment_id: int | None, color: str) -> Figure:
    """trace.plot.block_map, which says what the arguments are."""
    title, note = trace.plot._title("Blocks in segments over time")
    owners = trace.query("SELECT process_id, device, sum(size) AS bytes FROM segment WHERE size > 0 GROUP BY 1, 2 "
                         "ORDER BY 3 DESC")
    owners = owners[owners.device == device] if device is not None else owners
    owners = owners[owners.process_id == process_id] if process_id is not None else owners
    if not len(owners):
        return _empty(new_figure(title, "", "", note),
                      "no caching allocator was recorded: record --torch, or import a snapshot")
    process_id, device = int(owners.process_id.iloc[0]), int(owners.device.iloc[0])
    segments = _spans(trace, process_id, device, segment_id)
    if not len(segments):
        raise TraceError(f"{trace.path}: no segment {segment_id} on GPU {device}")
    whole = trace.recording.iloc[0]
    begin, end = int(whole.begin_ns if start_ns is None else start_ns), int(whole.end_ns if end_ns is None else end_ns)
    blocks = _blocks(trace, segments, process_id, device, begin, end, color == "inner")
    top = int((segments.base + segments["size"]).max())
    by, unit = _scale(top)
    figure = new_figure(title, "time since the trace began, s", f"address in {len(segments):,} segments, {unit}",
                        note or f"{len(blocks):,} blocks on GPU {device}, process {process_id}; "
                        "gaps between segments are left out")
    names = _classes(blocks)
    blocks["class"] = blocks.name.where(blocks.name.isin([name for name, _ in names]), "other lines")
    if len(blocks) > BLOCKS:
        _picture(figure, segments, blocks, names, by, begin, end, top)
    else:
        _backgrounds(figure, segments, by, begin, end)
        _rectangles(figure, blocks, names, by)
    figure.update_layout(height=720)
    figure.update_xaxes(range=[begin / 1e9, end / 1e9], showgrid=False)
    figure.update_yaxes(range=[0, top / by], showgrid=False)
    return figure
