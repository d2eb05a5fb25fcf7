// SPDX-License-Identifier: Apache-2.0
// Memory over time: live bytes of a domain, what its allocator reserved, resident memory, named phases and failures; an
// overview below with the part of time that is shown. A click chooses a moment.
"use strict";
varve.timeline = (() => {
    const {make, section, absent, controls, select, toggle} = varve.dom;
    const {bytes, duration, count, share} = varve.format;
    const {color, view} = varve.figure;
    const BOTTOM = 26, LEFT = 74, RIGHT = 14, OVERVIEW = 46;

    let curves, all, shown, chart, overview, readout;
    let hasReserved = true, hasRss = true, hasBefore = true, cursor = null, moment = null;
    const watchers = [];

    function unpack(series) {
        if (!series.times) {
            series.times = varve.data.sums(series.t);
            for (const key of ["bytes", "count", "reserved", "requested"])
                series[`${key}At`] = series[key] ? varve.data.sums(series[key]) : null;
        }
        return series;
    }

    // The same of the recording before, whose processes are others; null: there is none.
    function beforeOf(series) {
        const before = varve.data.part("before");
        const found = before && series.process === 0 ? before.curves.series.find(other => other.process === 0
            && other.domain === series.domain && other.device === series.device) : null;
        return found ? unpack(found) : null;
    }

    // The last point that is not after a time; -1: it is before all.
    const before = (times, time) => d3.bisectRight(times, time) - 1;

    // Pixels up to the end of a recording: two that are compared need not be equally long.
    const widthUntil = (end, x, area) => Math.min(area.width, Math.max(0, Math.ceil(x(end) - area.left)));

    // For each column of pixels the least and the most of a step curve in it: as true at ten million events as at ten.
    function columns(times, values, x, area, recordingEnd = varve.data.part("meta").end) {
        const from = Math.max(0, before(times, view.from)), lows = [], highs = [];
        const width = widthUntil(recordingEnd, x, area);
        let i = from;
        for (let pixel = 0; pixel < width; pixel++) {
            const end = x.invert(area.left + pixel + 1);
            let low = times[i] <= end ? values[i] : 0, high = low;
            while (i + 1 < times.length && times[i + 1] <= end) {
                i++;
                low = Math.min(low, values[i]);
                high = Math.max(high, values[i]);
            }
            lows.push(low);
            highs.push(high);
        }
        return {lows, highs};
    }

    function fillColumns(context, values, y, area, style) {
        context.fillStyle = style;
        context.beginPath();
        context.moveTo(area.left, y(0));
        values.forEach((value, i) => { context.lineTo(area.left + i, y(value));
            context.lineTo(area.left + i + 1, y(value)); });
        context.lineTo(area.left + values.length, y(0));
        context.fill();
    }

    function strokeColumns(context, values, y, area, style, dash) {
        context.strokeStyle = style;
        context.setLineDash(dash || []);
        context.lineWidth = 1.4;
        context.beginPath();
        values.forEach((value, i) => context.lineTo(area.left + i + 0.5, y(value)));
        context.stroke();
        context.setLineDash([]);
    }

    // Above the plot: two lanes of phases, or the marks of failures.
    const top = () => curves.marks.length > 0 ? 28 : 14;
    const area = () => ({left: LEFT, top: top(), width: Math.max(10, chart.width - LEFT - RIGHT),
        height: chart.height - top() - BOTTOM});
    const xScale = box => d3.scaleLinear([view.from, view.to], [box.left, box.left + box.width]);

    function drawPhases(context, box, x) {
        const lanes = [-Infinity, -Infinity];
        context.textBaseline = "middle";
        context.textAlign = "left";
        for (const mark of [...curves.marks].sort((a, b) => a.begin - b.begin)) {
            const from = Math.max(box.left, x(mark.begin)),
                to = Math.min(box.left + box.width, x(mark.end === undefined ? view.end : mark.end));
            const lane = lanes.findIndex(end => end <= from);
            if (to < box.left || from > box.left + box.width || lane < 0)
                continue;
            lanes[lane] = to;
            context.fillStyle = color("accent-soft");
            context.fillRect(from, 2 + lane * 11, Math.max(1, to - from), 10);
            context.fillStyle = color("accent");
            context.fillRect(from, 2 + lane * 11, 1, box.top + box.height - 2 - lane * 11);
            context.save();
            context.beginPath();
            context.rect(from, 0, Math.max(0, to - from), 26);
            context.clip();
            context.fillStyle = color("ink");
            context.font = context.font.replace(/^\d+px/, "10px");
            context.fillText(mark.name, from + 4, 7.5 + lane * 11);
            context.restore();
        }
    }

    function drawFailures(context, box, x) {
        for (const failure of curves.failures) {
            const at = x(failure.t);
            if (at < box.left || at > box.left + box.width)
                continue;
            context.strokeStyle = context.fillStyle = color("bad");
            context.lineWidth = 1;
            context.setLineDash([3, 3]);
            context.beginPath();
            context.moveTo(at, box.top);
            context.lineTo(at, box.top + box.height);
            context.stroke();
            context.setLineDash([]);
            context.beginPath();
            context.moveTo(at - 5, box.top - 9);
            context.lineTo(at + 5, box.top - 9);
            context.lineTo(at, box.top);
            context.fill();
        }
    }

    function drawLine(context, box, at, style, dash) {
        if (at >= box.left && at <= box.left + box.width) {
            context.strokeStyle = style;
            context.lineWidth = dash ? 1 : 2;
            context.setLineDash(dash || []);
            context.beginPath();
            context.moveTo(at, box.top);
            context.lineTo(at, box.top + box.height);
            context.stroke();
            context.setLineDash([]);
        }
    }

    function draw(context) {
        const box = area(), x = xScale(box), series = unpack(shown);
        const live = columns(series.times, series.bytesAt, x, box);
        const reserved = hasReserved && series.reservedAt ? columns(series.times, series.reservedAt, x, box).highs
            : null;
        const rss = hasRss && curves.rss.times.length > 0 ? columns(curves.rss.times, curves.rss.bytesAt, x, box).highs
            : null;
        const other = hasBefore ? beforeOf(series) : null;
        const was = other ? columns(other.times, other.bytesAt, x, box, varve.data.part("before").end).highs
            : null;
        const highest = Math.max(1, ...[live.highs, reserved, rss, was].filter(values => values)
            .map(values => d3.max(values) || 0));
        const y = d3.scaleLinear([0, highest * 1.04], [box.top + box.height, box.top]);
        varve.figure.axes(context, box, x, y);
        if (reserved) {
            fillColumns(context, reserved, y, box, color("reserved"));
            strokeColumns(context, reserved, y, box, color("reserved-line"));
        }
        fillColumns(context, live.highs, y, box, color("live-soft"));
        fillColumns(context, live.lows, y, box, color("live"));
        strokeColumns(context, live.highs, y, box, color("live"));
        if (series.requestedAt)
            strokeColumns(context, columns(series.times, series.requestedAt, x, box).highs, y, box, color("ink"),
                [1, 3]);
        if (rss)
            strokeColumns(context, rss, y, box, color("rss"), [7, 4]);
        if (was)
            strokeColumns(context, was, y, box, color("before"), [4, 2]);
        drawPhases(context, box, x);
        drawFailures(context, box, x);
        if (moment !== null)
            drawLine(context, box, x(moment), color("mark"));
        if (cursor !== null)
            drawLine(context, box, x(cursor), color("ink"), [2, 2]);
    }

    function drawOverview(context, width, height) {
        const box = {left: LEFT, top: 4, width: Math.max(10, width - LEFT - RIGHT), height: height - 8},
            series = unpack(shown);
        const x = d3.scaleLinear([view.begin, view.end], [box.left, box.left + box.width]);
        const highs = new Float64Array(Math.max(1, widthUntil(varve.data.part("meta").end, x,
            {left: box.left, width: Math.ceil(box.width)})));
        series.times.forEach((time, i) => {
            const pixel = Math.min(highs.length - 1, Math.max(0, Math.floor(x(time) - box.left)));
            highs[pixel] = Math.max(highs[pixel], series.bytesAt[i]);
        });
        for (let i = 1, k = 0; i < highs.length; i++) {
            while (k + 1 < series.times.length && x(series.times[k + 1]) - box.left < i + 1)
                k++;
            highs[i] = Math.max(highs[i], x(series.times[k]) - box.left <= i + 1 ? series.bytesAt[k] : 0);
        }
        const y = d3.scaleLinear([0, Math.max(1, d3.max(highs))], [box.top + box.height, box.top]);
        fillColumns(context, highs, y, box, color("live-soft"));
        const from = x(view.from), to = x(view.to);
        context.fillStyle = color("accent");
        context.globalAlpha = 0.14;
        context.fillRect(from, 0, to - from, height);
        context.globalAlpha = 1;
        context.fillRect(from - 1, 0, 3, height);
        context.fillRect(to - 2, 0, 3, height);
    }

    // Dragging over the overview chooses the part of time; dragging its middle moves it, its ends change it.
    function brush() {
        const canvas = overview.canvas;
        let drag = null;
        const timeAt = event => {
            const width = overview.width - LEFT - RIGHT;
            return view.begin + (event.clientX - canvas.getBoundingClientRect().left - LEFT) / width
                * (view.end - view.begin);
        };
        canvas.addEventListener("pointerdown", event => {
            const time = timeAt(event), near = 7 * (view.end - view.begin) / overview.width,
                isWhole = view.to - view.from > 0.999 * (view.end - view.begin);
            canvas.setPointerCapture(event.pointerId);
            if (Math.abs(time - view.from) < near)
                drag = {fixed: view.to};
            else if (Math.abs(time - view.to) < near)
                drag = {fixed: view.from};
            else if (time > view.from && time < view.to && !isWhole)
                drag = {offset: time - view.from, span: view.to - view.from};
            else
                drag = {fixed: time};
        });
        canvas.addEventListener("pointermove", event => {
            const time = timeAt(event);
            if (drag && drag.span)
                varve.figure.setView(time - drag.offset, time - drag.offset + drag.span);
            else if (drag && Math.abs(time - drag.fixed) > (view.end - view.begin) * 0.002)
                varve.figure.setView(Math.min(time, drag.fixed), Math.max(time, drag.fixed));
        });
        canvas.addEventListener("pointerup", () => { drag = null; });
        canvas.addEventListener("dblclick", varve.figure.resetTime);
    }

    function describe(time) {
        const series = unpack(shown), i = before(series.times, time), parts = [];
        parts.push(["at ", duration(Math.max(0, time))]);
        if (i >= 0) {
            parts.push([" · live ", bytes(series.bytesAt[i])], [" in ", `${count(series.countAt[i])} allocations`]);
            if (series.requestedAt && series.requestedAt[i] > 0)
                parts.push([" · requested ", bytes(series.requestedAt[i])]);
            if (series.reservedAt)
                parts.push([" · reserved ", bytes(series.reservedAt[i])],
                    [", of which not allocated ", share(series.reservedAt[i] - series.bytesAt[i],
                        series.reservedAt[i])]);
        }
        const other = beforeOf(series), k = other ? before(other.times, time) : -1;
        if (k >= 0)
            parts.push([" · before ", bytes(other.bytesAt[k])]);
        const r = before(curves.rss.times, time);
        if (r >= 0)
            parts.push([" · resident ", bytes(curves.rss.bytesAt[r])]);
        const phases = curves.marks.filter(mark => mark.begin <= time && (mark.end === undefined || time < mark.end));
        if (phases.length > 0)
            parts.push([" · in ", phases.map(mark => mark.name).slice(0, 4).join(", ")]);
        return parts;
    }

    function hover(at, event, time) {
        const box = area(), x = xScale(box);
        cursor = time;
        readout.replaceChildren(...describe(time).flatMap(([label, value]) => [label, make("b", {}, value)]));
        const failure = curves.failures.find(one => Math.abs(x(one.t) - at.x) < 6);
        varve.dom.tip(event, failure ? [`${bytes(failure.bytes)} refused`, `by ${failure.what}, GPU ${failure.device}`,
            `event ${count(failure.seq)}, ${duration(failure.t)} after the start`] : null);
        chart.redraw();
    }

    function choose(series) {
        shown = series;
        chart.redraw();
        overview.redraw();
        watchers.forEach(watch => watch(series));
    }

    function menus(element) {
        const processes = [...new Set(all.map(series => series.process))];
        const ofProcess = process => all.filter(series => series.process === process);
        const domain = select("domain", [], "", key => choose(ofProcess(shown.process)[key]));
        const list = domain.querySelector("select");
        const fill = (process, name) => {
            const choices = ofProcess(process);
            const at = Math.max(0, choices.findIndex(series => `${series.domain}/${series.device}` === name));
            list.replaceChildren(...choices.map((series, i) =>
                make("option", {value: i}, varve.data.seriesName(series, choices))));
            list.value = at;
            return choices[at];
        };
        list.id = "timeline-domain";
        shown = fill(0, initial());
        const process = select("process", processes.map(id =>
            [id, id === 0 ? "all together" : varve.data.processName(id)]), 0,
            id => choose(fill(Number(id), `${shown.domain}/${shown.device}`)));
        process.hidden = processes.length < 2;
        return controls(element, domain, process,
            ...!all.some(series => series.reserved) ? [] : [toggle("reserved",
                "what the caching allocator had of the device", true, isOn => { hasReserved = isOn; chart.redraw(); })],
            ...curves.rss.times.length === 0 ? [] : [toggle("resident (RSS)",
                "memory of all recorded processes as the kernel counts it", true,
                isOn => { hasRss = isOn; chart.redraw(); })],
            ...!varve.data.part("before") ? [] : [toggle("before", "what the recording before had at the same time",
                true, isOn => { hasBefore = isOn; chart.redraw(); })],
            ...varve.figure.zoomButtons());
    }

    // Blocks of a caching allocator are what such a run is about; else the heap.
    function initial() {
        const names = all.filter(series => series.process === 0).map(series => `${series.domain}/${series.device}`);
        return names.find(name => name.startsWith("block/")) || names.find(name => name.startsWith("heap/"))
            || names[0];
    }

    function legend(element) {
        const swatch = (style, isDashed) => {
            const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
            svg.setAttribute("width", 22);
            svg.setAttribute("height", 10);
            const line = document.createElementNS("http://www.w3.org/2000/svg", isDashed ? "line" : "rect");
            if (isDashed) {
                line.setAttribute("x2", 22);
                line.setAttribute("y1", 5);
                line.setAttribute("y2", 5);
                line.style.stroke = `var(--${style})`;
                line.style.strokeWidth = 2;
                line.style.strokeDasharray = isDashed;
            } else {
                line.setAttribute("width", 22);
                line.setAttribute("height", 10);
                line.style.fill = `var(--${style})`;
            }
            svg.append(line);
            return svg;
        };
        const key = (name, ...of) => make("span", {className: "key"}, swatch(...of), name);
        element.append(make("div", {className: "legend"}, key("live", "live"),
            key("the most within a pixel", "live-soft"),
            all.some(series => series.reserved) ? key("reserved", "reserved") : null,
            all.some(series => series.requested) ? key("requested", "ink", "1 3") : null,
            curves.rss.times.length > 0 ? key("resident memory", "rss", "7 4") : null,
            varve.data.part("before") ? key("live in the recording before", "before", "4 2") : null,
            curves.failures.length > 0 ? key("a request was refused", "bad", "3 3") : null,
            key("the chosen moment", "mark", "none")));
    }

    function begin() {
        const element = section("timeline", "Memory over time",
            "Click at a moment to see what was live then. Drag to move, Ctrl and wheel to zoom (the wheel alone " +
            "once the chart is clicked), or drag in the strip below.");
        curves = varve.data.part("curves");
        all = curves.series;
        curves.rss.times = varve.data.sums(curves.rss.t);
        curves.rss.bytesAt = varve.data.sums(curves.rss.bytes);
        if (!all.some(series => series.process === 0)) {
            absent(element, "No allocation was recorded.");
            return;
        }
        menus(element);
        const left = make("div", {}), right = make("div", {id: "live"});
        element.append(make("div", {className: "beside"}, left, right));
        chart = varve.figure.make(left, "live bytes over time; arrows move, plus and minus zoom, 0 shows all, Enter " +
            "chooses the moment in the middle",
            330, context => chart && draw(context));
        overview = varve.figure.make(left, "the whole run; drag to choose the part that is shown", OVERVIEW,
            (...canvas) => overview && drawOverview(...canvas));
        chart.redraw();
        overview.redraw();
        readout = make("div", {className: "readout", "aria-live": "off"});
        left.append(readout);
        legend(left);
        brush();
        varve.figure.interact(chart, area, {
            hover, leave: () => { cursor = null; chart.redraw(); },
            click: (at, event, time) => varve.live.choose(time),
            keys: {Enter: () => varve.live.choose((view.from + view.to) / 2), n: () => varve.live.step(1),
                p: () => varve.live.step(-1)},
        });
        view.watchers.push(() => { chart.redraw(); overview.redraw(); });
        varve.live.begin(right);
    }

    return {
        begin,
        shown: () => shown || {}, // a damaged database may have maps and no totals
        whenChosen: watch => watchers.push(watch),
        markMoment: time => { moment = time; chart.redraw(); },
        state: () => ({domain: shown && shown.domain, process: shown && shown.process, device: shown && shown.device,
            from: view.from, to: view.to, moment,
            before: shown && beforeOf(shown) ? d3.max(beforeOf(shown).bytesAt) : null}),
        timeAt: pixel => xScale(area()).invert(pixel), pixelOf: time => xScale(area())(time),
    };
})();
