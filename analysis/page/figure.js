// SPDX-License-Identifier: Apache-2.0
// Canvases: their size in pixels of the screen, colours of the style, axes; and the part of time that all
// charts show together.
"use strict";
varve.figure = (() => {
    const {bytes, timeTick} = varve.format;
    const all = [];

    // Of the style; asked for ten thousand times in a picture, so kept until the colours of the system change.
    let colors = {};
    const color = name => colors[name] = colors[name]
        || getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

    // draw(context, width, height) is called whenever the canvas has changed: its size, the colours of the
    // system, or redraw().
    function make(parent, label, height, draw) {
        const canvas = varve.dom.make("canvas", {tabIndex: 0, role: "img"});
        const box = varve.dom.make("div", {className: "figure-box"}, canvas);
        const figure = {canvas, box, width: 0, height, hasPlan: false};
        canvas.setAttribute("aria-label", label);
        parent.append(box);
        figure.paint = () => {
            const scale = devicePixelRatio || 1;
            figure.hasPlan = false;
            figure.width = box.clientWidth;
            if (figure.width === 0)
                return;
            canvas.width = Math.round(figure.width * scale);
            canvas.height = Math.round(figure.height * scale);
            canvas.style.height = `${figure.height}px`;
            const context = canvas.getContext("2d");
            context.scale(scale, scale);
            context.font = `12px ${getComputedStyle(document.body).fontFamily}`;
            draw(context, figure.width, figure.height);
        };
        // Drawn once for however many changes there are before the screen's next frame.
        figure.redraw = () => {
            if (!figure.hasPlan) {
                figure.hasPlan = true;
                requestAnimationFrame(figure.paint);
            }
        };
        new ResizeObserver(() => {
            if (box.clientWidth !== figure.width)
                figure.redraw();
        }).observe(box);
        all.push(figure);
        figure.paint();
        return figure;
    }

    for (const query of ["(prefers-color-scheme: dark)", "print"])
        matchMedia(query).addEventListener("change", () => {
            colors = {};
            all.forEach(figure => figure.redraw());
        });

    // ---- the part of time ----

    const view = {from: 0, to: 1, begin: 0, end: 1, watchers: []};

    function setView(from, to) {
        const span = Math.min(view.end - view.begin, Math.max(to - from, Math.max(50, (view.end - view.begin) * 1e-7)));
        from = Math.min(Math.max(from, view.begin), view.end - span);
        view.from = from;
        view.to = from + span;
        view.watchers.forEach(watch => watch());
    }

    function zoomTime(factor, around) {
        const middle = around === undefined ? (view.from + view.to) / 2 : around;
        setView(middle - (middle - view.from) * factor, middle + (view.to - middle) * factor);
    }

    const panTime = share => setView(view.from + share * (view.to - view.from),
        view.to + share * (view.to - view.from));
    const resetTime = () => setView(view.begin, view.end);

    // ---- axes ----

    // Labels of bytes at round numbers of a power of 1024.
    function byteTicks(from, to, count) {
        const unit = Math.pow(1024, Math.max(0, Math.floor(Math.log(Math.max(1, to - from)) / Math.log(1024) + 0.001)));
        return d3.ticks(from / unit, to / unit, count).map(tick => tick * unit);
    }

    function axes(context, area, x, y, yLabel) {
        context.lineWidth = 1;
        context.textBaseline = "middle";
        context.textAlign = "right";
        for (const tick of byteTicks(...y.domain(), Math.max(2, Math.floor(area.height / 50)))) {
            const at = Math.round(y(tick)) + 0.5;
            context.strokeStyle = color("hair");
            context.beginPath();
            context.moveTo(area.left, at);
            context.lineTo(area.left + area.width, at);
            context.stroke();
            context.fillStyle = color("faint");
            context.fillText(yLabel ? yLabel(tick) : bytes(tick).replace(/\.0+ /, " "), area.left - 8, at);
        }
        timeAxis(context, area, x);
    }

    function timeAxis(context, area, x) {
        const ticks = x.ticks(Math.max(2, Math.floor(area.width / 110)));
        const step = ticks.length > 1 ? ticks[1] - ticks[0] : view.to - view.from;
        context.fillStyle = color("faint");
        context.strokeStyle = color("line");
        context.textBaseline = "top";
        context.textAlign = "center";
        for (const tick of ticks) {
            const at = Math.round(x(tick)) + 0.5;
            context.beginPath();
            context.moveTo(at, area.top + area.height);
            context.lineTo(at, area.top + area.height + 4);
            context.stroke();
            context.fillText(timeTick(tick, step), at, area.top + area.height + 7);
        }
        context.beginPath();
        context.moveTo(area.left, area.top + area.height + 0.5);
        context.lineTo(area.left + area.width, area.top + area.height + 0.5);
        context.stroke();
    }

    // ---- the pointer and the keyboard ----

    // Drag to pan, wheel to zoom (with Ctrl, or once the chart has the focus), double click for all.
    // area(): of the plot; on.hover(point, event), on.leave(), on.click(point, event), on.drag(dx, dy) and
    // on.zoom(factor, point, isVertical) may be left out; what they do not do is done to the part of time.
    function interact(figure, area, on) {
        const canvas = figure.canvas;
        let pressed = null;
        const point = event => {
            const box = canvas.getBoundingClientRect();
            return {x: event.clientX - box.left, y: event.clientY - box.top};
        };
        const timeAt = at => view.from + (at.x - area().left) / area().width * (view.to - view.from);
        canvas.addEventListener("pointerdown", event => {
            pressed = {...point(event), isDrag: false, id: event.pointerId};
        });
        canvas.addEventListener("pointermove", event => {
            const at = point(event);
            if (pressed && (pressed.isDrag || Math.abs(at.x - pressed.x) + Math.abs(at.y - pressed.y) > 4)) {
                if (!pressed.isDrag)
                    canvas.setPointerCapture(pressed.id);
                const dx = at.x - pressed.x, dy = at.y - pressed.y;
                pressed = {...at, isDrag: true, id: pressed.id};
                panTime(-dx / area().width);
                if (on.drag)
                    on.drag(dx, dy);
                varve.dom.tip(event, null);
            } else if (!pressed && on.hover) {
                on.hover(at, event, timeAt(at));
            }
        });
        canvas.addEventListener("pointerup", event => {
            if (pressed && !pressed.isDrag && on.click)
                on.click(point(event), event, timeAt(point(event)));
            pressed = null;
        });
        canvas.addEventListener("pointercancel", () => { pressed = null; });
        canvas.addEventListener("pointerleave", event => {
            varve.dom.tip(event, null);
            if (on.leave)
                on.leave();
        });
        canvas.addEventListener("dblclick", () => {
            resetTime();
            if (on.reset)
                on.reset();
        });
        canvas.addEventListener("wheel", event => {
            if (!event.ctrlKey && document.activeElement !== canvas)
                return;
            event.preventDefault();
            const at = point(event), factor = Math.exp((event.deltaY || event.deltaX) * 0.0016);
            if (event.shiftKey && on.zoom)
                on.zoom(factor, at);
            else
                zoomTime(factor, timeAt(at));
        }, {passive: false});
        canvas.addEventListener("keydown", event => {
            const step = {ArrowLeft: () => panTime(-0.15), ArrowRight: () => panTime(0.15), "+": () => zoomTime(0.6),
                "=": () => zoomTime(0.6),
                "-": () => zoomTime(1 / 0.6), "0": () => { resetTime(); if (on.reset) on.reset(); }}[event.key]
                || (on.keys || {})[event.key];
            if (step && !event.ctrlKey && !event.metaKey) {
                event.preventDefault();
                step();
            }
        });
    }

    // Buttons for those who do not know the wheel.
    const zoomButtons = () => [
        varve.dom.button("+", "zoom in (+)", () => zoomTime(0.5)),
            varve.dom.button("\u2212", "zoom out (-)", () => zoomTime(2)),
        varve.dom.button("\u25c0", "earlier (left arrow)", () => panTime(-0.25)),
        varve.dom.button("\u25b6", "later (right arrow)", () => panTime(0.25)),
        varve.dom.button("all", "the whole run (0, or a double click)", resetTime)];

    return {make, color, view, setView, zoomTime, panTime, resetTime, axes, timeAxis, byteTicks, interact, zoomButtons};
})();
