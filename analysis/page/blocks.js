// SPDX-License-Identifier: Apache-2.0
// Addresses over time: a rectangle is an allocation, from its first byte to its last and from its birth to its end. The
// part of time is that of all charts; addresses zoom by themselves. Allocations that are not among the largest are a
// raster behind: the darker, the fuller.
"use strict";
varve.blocks = (() => {
    const {make, section, absent, controls, select, button} = varve.dom;
    const {bytes, exactBytes, duration, count} = varve.format;
    const {color, view} = varve.figure;
    const TOP = 8, BOTTOM = 26, LEFT = 124, RIGHT = 14;

    let maps, map, figure, readout, scale, key = "size", low = 0, high = 1, hovered = null, stackBox;

    function unpack(one) {
        if (one.rects)
            return one;
        let time = 0, place = 0;
        one.rects = [];
        for (let i = 0; i < one.blocks.length; i += 7) {
            const [at, size, begin, lifetime, stream, line, node] = one.blocks.slice(i, i + 7);
            time += begin;
            one.rects.push({at, size, begin: time, end: lifetime < 0 ? one.end : time + lifetime,
                isFreed: lifetime >= 0, stream, line, node});
        }
        one.sizes = d3.extent(one.rects, rect => Math.log2(rect.size + 1));
        one.places = [];
        for (let i = 0; i < one.bands.length; i += 2) {
            one.places.push({addr: BigInt(one.bands[i]), at: place, size: one.bands[i + 1]});
            place += one.bands[i + 1];
        }
        one.height = place;
        one.holders = [];
        for (let i = 0; i < one.segments.length; i += 6) {
            const [at, size, begin, end, stream, pool] = one.segments.slice(i, i + 6);
            one.holders.push({at, size, begin, end, stream, pool});
        }
        one.image = one.raster ? raster(one) : null;
        return one;
    }

    // Cells as a small picture, which the canvas stretches.
    function raster(one) {
        const cells = [];
        for (let i = 0; i < one.raster.length; i += 2)
            for (let run = one.raster[i]; run > 0; run--)
                cells.push(one.raster[i + 1]);
        const canvas = make("canvas", {width: one.columns, height: cells.length / one.columns});
        const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
        cells.forEach((value, i) => {
            const row = canvas.height - 1 - Math.floor(i / canvas.width),
                at = 4 * (row * canvas.width + i % canvas.width);
            image.data[at] = image.data[at + 1] = 128;
            image.data[at + 2] = 140;
            image.data[at + 3] = value === 0 ? 0 : 30 + value * 2;
        });
        context.putImageData(image, 0, 0);
        return canvas;
    }

    const area = () => ({left: LEFT, top: TOP, width: Math.max(10, figure.width - LEFT - RIGHT),
        height: figure.height - TOP - BOTTOM});
    const xScale = box => d3.scaleLinear([view.from, view.to], [box.left, box.left + box.width]);
    const yScale = box => d3.scaleLinear([low, high], [box.top + box.height, box.top]);

    function address(place) {
        const band = map.places.find(one => place < one.at + one.size) || map.places[map.places.length - 1];
        return band ? `0x${(band.addr + BigInt(Math.max(0, Math.round(place - band.at)))).toString(16)}` : "";
    }

    const palette = [...d3.schemeTableau10, ...d3.schemeSet3];

    // From the smallest to the largest of the map, by powers of two; the larger, the further from the paper.
    function sizeColor(size) {
        const [least, most] = map.sizes, share = most > least ? (Math.log2(size + 1) - least) / (most - least) : 0.5;
        return d3.interpolateViridis(isDark() ? 0.16 + 0.84 * share : 0.95 - 0.95 * share);
    }

    const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

    function fill(rect) {
        if (key === "size")
            return sizeColor(rect.size);
        return palette[(key === "line" ? rect.line : rect.stream) % palette.length];
    }

    function draw(context) {
        const box = area(), x = xScale(box), y = yScale(box), isNight = isDark();
        varve.figure.axes(context, box, x, y, tick => address(tick));
        context.save();
        context.beginPath();
        context.rect(box.left, box.top, box.width, box.height);
        context.clip();
        if (map.image) {
            context.imageSmoothingEnabled = false;
            context.drawImage(map.image, x(0), y(map.height), x(map.end) - x(0), y(0) - y(map.height));
        }
        for (const one of map.holders)
            segment(context, one, x, y, box);
        for (const rect of map.rects) {
            const from = Math.max(box.left, x(rect.begin)), to = Math.min(box.left + box.width, x(rect.end));
            const top = y(rect.at + rect.size), bottom = y(rect.at);
            if (to < box.left || from > box.left + box.width || bottom < box.top || top > box.top + box.height)
                continue;
            const kind = key + isNight;
            rect.fills = rect.fills || {};
            context.fillStyle = rect.fills[kind] = rect.fills[kind] || fill(rect);
            const wide = Math.max(0.7, to - from), tall = Math.max(0.7, bottom - top);
            context.fillRect(from, top, wide, tall);
            if (wide > 6 && tall > 6) {
                context.strokeStyle = color("empty");
                context.lineWidth = 0.7;
                context.strokeRect(from, top, wide, tall);
            }
            if (wide > 60 && tall > 13)
                label(context, rect, from, top, wide, tall);
        }
        bands(context, box, y);
        if (hovered) {
            context.strokeStyle = color("mark");
            context.lineWidth = 2;
            context.strokeRect(x(hovered.begin), y(hovered.at + hovered.size),
                Math.max(2, x(hovered.end) - x(hovered.begin)),
                Math.max(2, y(hovered.at) - y(hovered.at + hovered.size)));
        }
        context.restore();
    }

    function label(context, rect, from, top, wide, tall) {
        const at = varve.data.place(...map.lines.slice(3 * rect.line, 3 * rect.line + 3));
        context.save();
        context.beginPath();
        context.rect(from + 2, top, wide - 4, tall);
        context.clip();
        context.fillStyle = d3.lab(context.fillStyle).l > 55 ? "#10151b" : "#ffffff";
        context.textAlign = "left";
        context.textBaseline = "middle";
        context.font = context.font.replace(/^\d+px/, "11px");
        context.fillText(`${bytes(rect.size)} ${at.what}`, from + 4, top + Math.min(tall / 2, 12));
        context.restore();
    }

    function segment(context, one, x, y, box) {
        const from = x(one.begin), to = x(one.end), top = y(one.at + one.size), bottom = y(one.at);
        if (to < box.left || from > box.left + box.width || bottom < box.top || top > box.top + box.height)
            return;
        context.fillStyle = color("hair");
        context.fillRect(from, top, to - from, bottom - top);
        if (bottom - top > 5) {
            context.strokeStyle = color("line");
            context.lineWidth = 1;
            context.strokeRect(from, top, to - from, bottom - top);
        }
    }

    // Where addresses jump.
    function bands(context, box, y) {
        const isShown = map.places.filter((band, i) => i > 0 && y(band.at) - y(band.at + band.size) > 10
            && y(map.places[i - 1].at) - y(band.at) > 10);
        context.strokeStyle = color("faint");
        context.globalAlpha = 0.3;
        context.setLineDash([2, 3]);
        context.beginPath();
        for (const band of isShown) {
            const at = Math.round(y(band.at)) + 0.5;
            context.moveTo(box.left, at);
            context.lineTo(box.left + box.width, at);
        }
        context.stroke();
        context.setLineDash([]);
        context.globalAlpha = 1;
    }

    function find(point) {
        const box = area(), x = xScale(box), y = yScale(box), time = x.invert(point.x), place = y.invert(point.y);
        const slackTime = x.invert(1.5) - x.invert(0), slackPlace = y.invert(0) - y.invert(1.5);
        const isIn = (one, dt, dp) => one.begin - dt <= time && time < one.end + dt && one.at - dp <= place
            && place < one.at + one.size + dp;
        return {block: map.rects.find(one => isIn(one, 0, 0))
            || map.rects.find(one => isIn(one, slackTime, slackPlace)),
            holder: map.holders.find(one => isIn(one, 0, 0)), place};
    }

    const lifeOf = block => `from ${duration(block.begin)}, `
        + `${block.isFreed ? `for ${duration(block.end - block.begin)}` : "never freed"}; stream ${block.stream}`;

    // The stack of a block, its innermost frame first; a frame shows its source code.
    function showStack(point) {
        const {block} = find(point);
        if (!block)
            return;
        const frames = varve.spans.path(block.node).map(varve.flame.placeOf).filter(at => at.what !== "(no stack)");
        stackBox.replaceChildren(make("h3", {}, `${bytes(block.size)} at ${address(block.at)}, ${lifeOf(block)}`),
            ...frames.map(at => varve.live.withSource(make("div", {className: "stack-row", title: at.path},
                at.what, " ", make("span", {className: "where"}, at.where)), at)),
            frames.length > 0 ? "" : make("p", {className: "explanation"}, "No stack was recorded with it."));
    }

    function hover(point, event) {
        const {block, holder, place} = find(point);
        if (block !== hovered) {
            hovered = block || null;
            figure.redraw();
        }
        if (block) {
            const at = varve.data.place(...map.lines.slice(3 * block.line, 3 * block.line + 3));
            varve.dom.tip(event, [`${bytes(block.size)} at ${address(block.at)}`, at.what, at.path,
                lifeOf(block), holder ? `in a segment of ${bytes(holder.size)}, pool ${holder.pool}` : "",
                exactBytes(block.size)]);
        } else {
            varve.dom.tip(event, holder ? [`not in use: a segment of ${bytes(holder.size)}`, `at ${address(place)}`,
                `pool ${holder.pool}, stream ${holder.stream}, from ${duration(holder.begin)} to ` +
                `${duration(holder.end)}`] : null);
        }
    }

    function moveTo(from, to) {
        const span = Math.min(map.height, Math.max(256, to - from));
        low = Math.min(Math.max(0, from), map.height - span);
        high = low + span;
        figure.redraw();
    }

    // What the colours of sizes mean; others have no order.
    function legend() {
        const sample = make("canvas", {width: 160, height: 12}), context = sample.getContext("2d"),
            [least, most] = map.sizes;
        for (let i = 0; i < 160; i++) {
            context.fillStyle = sizeColor(Math.pow(2, least + i / 160 * (most - least)));
            context.fillRect(i, 0, 1, 12);
        }
        scale.replaceChildren(...key !== "size" ? [] : [bytes(Math.round(Math.pow(2, least) - 1)), sample,
            `${bytes(Math.round(Math.pow(2, most) - 1))} in one allocation`]);
    }

    const zoomPlace = (factor, middle) => moveTo(middle - (middle - low) * factor, middle + (high - middle) * factor);
    const reset = () => moveTo(0, map.height);

    function choose(i) {
        map = unpack(maps[i]);
        hovered = null;
        reset();
        readout.textContent = `${count(map.rects.length)} allocations` +
            (map.others > 0 ? ", the largest by size times lifetime; " +
                `${count(map.others)} others are the grey behind them` : "") +
            `${map.holders.length > 0 ? `; ${count(map.holders.length)} segments` : ""}; ${bytes(map.height)} of ` +
            `addresses, in ${count(map.places.length)} ${map.places.length === 1 ? "range" : "ranges"}. Dotted ` +
            `lines: addresses jump.`;
        legend();
    }

    function begin() {
        const element = section("map", "Addresses over time",
            "Where allocations lay, and how long; a click on one shows its stack. Move and zoom in time as above; " +
            "Shift and wheel zooms addresses, dragging moves both.");
        const reason = varve.data.part("meta").no_allocations;
        maps = varve.data.part("maps").filter(one => one.blocks.length > 0);
        if (reason || maps.length === 0) {
            absent(element, reason ? `Addresses are not known: this recording has ${reason}.`
                : "No allocation was recorded.");
            return;
        }
        const name = one => varve.data.seriesName(one, maps) +
            (new Set(maps.map(other => other.process)).size > 1 ? `, ${varve.data.processName(one.process)}` : "");
        const menu = select("of", maps.map((one, i) => [i, name(one)]), 0, i => choose(Number(i)));
        menu.querySelector("select").id = "map-of";
        const shown = varve.timeline.shown(), first = Math.max(0,
            maps.findIndex(one => one.domain === shown.domain && one.device === shown.device));
        menu.querySelector("select").value = first;
        controls(element, menu, select("colour", [["size", "size"], ["line", "line"], ["stream", "stream"]], key,
            value => { key = value; figure.redraw(); legend(); }), ...varve.figure.zoomButtons(),
            button("addresses +", "zoom into addresses (])", () => zoomPlace(0.5, (low + high) / 2)),
            button("addresses \u2212", "([)", () => zoomPlace(2, (low + high) / 2)),
            button("all addresses", "", reset));
        readout = make("div", {className: "readout"});
        map = unpack(maps[first]);
        high = map.height;
        figure = varve.figure.make(element, "map of addresses over time; arrows move, plus and minus zoom in time, " +
            "brackets zoom addresses, page up and down move addresses", 440,
            (...canvas) => figure && draw(...canvas));
        scale = make("div", {className: "legend"});
        stackBox = make("div", {id: "map-stack", "aria-live": "polite"});
        element.append(readout, scale, stackBox);
        const page = share => moveTo(low + share * (high - low), high + share * (high - low));
        varve.figure.interact(figure, area, {
            hover, reset, leave: () => { hovered = null; figure.redraw(); },
            click: (at, event, time) => { varve.live.choose(time); showStack(at); },
            drag: (dx, dy) => moveTo(low + dy / area().height * (high - low), high + dy / area().height * (high - low)),
            zoom: (factor, at) => zoomPlace(factor, yScale(area()).invert(at.y)),
            keys: {"]": () => zoomPlace(0.6, (low + high) / 2), "[": () => zoomPlace(1 / 0.6, (low + high) / 2),
                PageUp: () => page(0.4), PageDown: () => page(-0.4),
                ArrowUp: () => page(0.1), ArrowDown: () => page(-0.1)},
        });
        view.watchers.push(figure.redraw);
        choose(first);
    }

    // The largest block on the screen: where it is drawn.
    function largest() {
        const box = area(), x = xScale(box), y = yScale(box), one = d3.greatest(map.rects, rect => rect.size);
        return {x: x((one.begin + one.end) / 2), y: y(one.at + one.size / 2), size: one.size,
            addr: address(one.at)};
    }

    return {begin, state: () => ({low, high, rects: map ? map.rects.length : 0, height: map ? map.height : 0,
        largest: map ? largest() : null})};
})();
