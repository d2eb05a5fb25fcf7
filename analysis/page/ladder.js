// SPDX-License-Identifier: Apache-2.0
// Why reserved memory served no request, over time: what was live, and above it the rungs of the view `ladder`, up to
// what was reserved.
"use strict";
varve.ladder = (() => {
    const {make, section, absent, controls, select, toggle} = varve.dom;
    const {bytes, duration, share} = varve.format;
    const {color, view} = varve.figure;
    const TOP = 10, BOTTOM = 26, LEFT = 74, RIGHT = 14;

    const rungs = [
        ["live_requested", "live", "#4e79a7", "what requests asked for"],
        ["rounding", "rounding", "#76b7b2", "sizes of blocks above what was asked for"],
        ["unsplit_remainder", "unsplit remainder", "#59a14f", "blocks given out whole, larger than their size class"],
        ["stream_pending", "stream pending", "#9c755f", "freed, but other streams still use them"],
        ["cached_segments", "cached segments", "#bab0ac", "whole segments without a block in use"],
        ["segment_quantum", "segment quantum", "#edc948", "no block has had it yet: segments are larger than a " +
            "request needs"],
        ["pool_segregation", "pool segregation", "#b07aa1", "free, but of another pool or stream"],
        ["external_holes", "external holes", "#e15759", "holes between blocks"],
    ];

    let ladders, shown, figure, readout, cursor = null, isUnused = false;

    function unpack(one) {
        if (!one.times) {
            one.times = varve.data.sums(one.t);
            one.reservedAt = varve.data.sums(one.reserved);
            one.rungs = rungs.map(([key]) => varve.data.sums(one[key]));
        }
        return one;
    }

    const area = () => ({left: LEFT, top: TOP, width: Math.max(10, figure.width - LEFT - RIGHT),
        height: figure.height - TOP - BOTTOM});
    const xScale = box => d3.scaleLinear([view.from, view.to], [box.left, box.left + box.width]);

    // Rows of the view for each column of pixels: the one with the most reserved.
    function rows(x, box) {
        const list = [], times = shown.times;
        let i = Math.max(0, d3.bisectRight(times, view.from) - 1);
        for (let pixel = 0; pixel < box.width && times.length > 0; pixel++) {
            const end = x.invert(box.left + pixel + 1);
            let top = times[i] <= end ? i : -1;
            while (i + 1 < times.length && times[i + 1] <= end) {
                i++;
                top = top < 0 || shown.reservedAt[i] > shown.reservedAt[top] ? i : top;
            }
            list.push(top);
        }
        return list;
    }

    // Hatches tell rungs apart where colours do not.
    function hatch(context, style, number) {
        const tile = make("canvas", {width: 8, height: 8}), paint = tile.getContext("2d");
        paint.fillStyle = style;
        paint.fillRect(0, 0, 8, 8);
        paint.strokeStyle = "rgba(0, 0, 0, .28)";
        paint.lineWidth = 1;
        paint.beginPath();
        if (number % 4 === 1)
            for (const at of [-4, 4, 12]) { paint.moveTo(at - 4, 8); paint.lineTo(at + 4, 0); }
        if (number % 4 === 2)
            for (const at of [2, 6]) { paint.moveTo(0, at); paint.lineTo(8, at); }
        if (number % 4 === 3)
            for (const at of [-4, 4, 12]) { paint.moveTo(at - 4, 0); paint.lineTo(at + 4, 8); }
        paint.stroke();
        return context.createPattern(tile, "repeat");
    }

    function draw(context) {
        const box = area(), x = xScale(box), list = rows(x, box), first = isUnused ? 1 : 0;
        const top = i => i < 0 ? 0 : isUnused ? shown.reservedAt[i] - shown.rungs[0][i] : shown.reservedAt[i];
        const y = d3.scaleLinear([0, Math.max(1, d3.max(list, top) || 0) * 1.04], [box.top + box.height, box.top]);
        varve.figure.axes(context, box, x, y);
        const floor = new Float64Array(list.length);
        for (let rung = first; rung < rungs.length; rung++) {
            const values = list.map(i => i < 0 ? 0 : shown.rungs[rung][i]), begin = floor.slice();
            context.fillStyle = rung === 0 ? rungs[0][2] : hatch(context, rungs[rung][2], rung);
            context.beginPath();
            values.forEach((value, i) => {
                floor[i] += value;
                context.lineTo(box.left + i, y(floor[i]));
                context.lineTo(box.left + i + 1, y(floor[i]));
            });
            for (let i = values.length; i-- > 0;) {
                context.lineTo(box.left + i + 1, y(begin[i]));
                context.lineTo(box.left + i, y(begin[i]));
            }
            context.fill();
            label(context, rungs[rung][1], values, begin, y, box);
        }
        context.strokeStyle = color("ink");
        context.lineWidth = 1;
        context.beginPath();
        list.forEach((i, pixel) => context.lineTo(box.left + pixel + 0.5, y(top(i))));
        context.stroke();
        if (cursor !== null) {
            context.setLineDash([2, 2]);
            context.beginPath();
            context.moveTo(x(cursor), box.top);
            context.lineTo(x(cursor), box.top + box.height);
            context.stroke();
            context.setLineDash([]);
        }
    }

    // The name of a rung where it is widest and tall enough.
    function label(context, text, values, begin, y, box) {
        const width = context.measureText(text).width + 10;
        let best = -1, height = 0;
        for (let i = 0; i + width < values.length; i += 8) {
            const tall = Math.min(y(begin[i]) - y(begin[i] + values[i]),
                y(begin[i + Math.floor(width)]) - y(begin[i + Math.floor(width)] + values[i + Math.floor(width)]));
            if (tall > height) {
                height = tall;
                best = i;
            }
        }
        if (best >= 0 && height > 22) {
            const middle = best + Math.floor(width / 2), at = y(begin[middle] + values[middle] / 2);
            context.textAlign = "center";
            context.textBaseline = "middle";
            context.fillStyle = "rgba(255, 255, 255, .82)";
            context.fillRect(box.left + middle - width / 2, at - 9, width, 18);
            context.fillStyle = "#10151b";
            context.fillText(text, box.left + middle, at);
        }
    }

    function describe(time) {
        const i = Math.max(0, d3.bisectRight(shown.times, time) - 1), reserved = shown.reservedAt[i];
        return [["at ", duration(Math.max(0, time))], [" · reserved ", bytes(reserved)],
            ...rungs.map(([, title], rung) => [title, shown.rungs[rung][i]]).filter(([, value]) => value !== 0)
                .map(([title, value]) => [` · ${title} `, `${bytes(value)} (${share(value, reserved)})`])];
    }

    function legend(element) {
        element.append(make("div", {className: "legend"}, ...rungs.map(([, title, style, meaning], i) => {
            const sample = make("canvas", {width: 22, height: 12}), context = sample.getContext("2d");
            context.fillStyle = i === 0 ? style : hatch(context, style, i);
            context.fillRect(0, 0, 22, 12);
            return make("span", {className: "key", title: meaning}, sample, `${title}: ${meaning}`);
        })));
    }

    function begin() {
        const element = section("ladder", "Why reserved memory serves no request",
            "What a caching allocator had of its device: what was live, and above it each byte that was not, by the " +
            "reason.");
        const reason = varve.data.part("meta").no_events;
        ladders = varve.data.part("ladder").filter(one => one.reserved.some(value => value !== 0));
        if (reason || ladders.length === 0) {
            absent(element, reason ? `The ladder needs every event: this recording has ${reason}.`
                : "No caching allocator was recorded.");
            return;
        }
        shown = unpack(ladders[0]);
        const menu = select("allocator", ladders.map((one, i) =>
            [i, `GPU ${one.device}, ${varve.data.processName(one.process)}`]), 0,
            i => { shown = unpack(ladders[i]); figure.redraw(); });
        controls(element, menu, toggle("without live", "only what serves no request", false,
            isOn => { isUnused = isOn; figure.redraw(); }), ...varve.figure.zoomButtons());
        figure = varve.figure.make(element, "stacked area of the fragmentation ladder; arrows move, plus and minus " +
            "zoom", 320, (...canvas) => figure && draw(...canvas));
        figure.redraw();
        readout = make("div", {className: "readout"});
        element.append(readout);
        legend(element);
        varve.figure.interact(figure, area, {
            hover: (at, event, time) => {
                cursor = time;
                readout.replaceChildren(...describe(time).flatMap(([title, value]) => [title, make("b", {}, value)]));
                figure.redraw();
            },
            leave: () => { cursor = null; figure.redraw(); },
            click: (at, event, time) => varve.live.choose(time),
        });
        view.watchers.push(figure.redraw);
    }

    // Of each row: do the rungs add up to what was reserved?
    const addsUp = () => (ladders || []).map(unpack).every(one =>
        one.times.every((_, i) => one.rungs.reduce((sum, rung) => sum + rung[i], 0) === one.reservedAt[i]));

    return {begin, addsUp};
})();
