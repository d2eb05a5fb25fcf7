// SPDX-License-Identifier: Apache-2.0
// The flame graph: callers above what they call, or turned round, the allocating lines above their callers. As
// wide as its share. Of the whole recording trees are in the page; of a moment, a span of time, a process or a thread
// spans.js makes them.
"use strict";
varve.flame = (() => {
    const {make, section, absent, controls, select, button, toggle} = varve.dom;
    const {bytes, exactBytes, count, share} = varve.format;
    const ROW = 19, GAP = 1;

    let trees, frames, shown, tree, root, figure, scroll, info, sourceBox, matchText, lineList;
    let isInverted = false, hovered = null, pattern = "", isDue = false;
    const chosen = {domain: "", metric: "", whose: {process: 0, thread: 0}, kind: "all", hidesImports: false};

    const words = {peak: "live at the peak", allocated: "allocated", leaked: "live at the end",
        temporary: "temporary allocations", moment: "live at the chosen moment",
        span: "allocated in the time that is shown", grown: "more live at the end of the time that is shown"};
    const ofWhole = ["peak", "allocated", "leaked", "temporary"];
    const ofTime = ["moment", "span", "grown"];
    const ofChange = ["more peak", "less peak", "more allocated", "less allocated", "more leaked", "less leaked"];
    for (const metric of ofChange) {
        const [sign, figure] = metric.split(" ");
        words[metric] = `${sign} ${words[figure]} than before`;
    }

    function node(frame, parent) {
        return {frame, parent, children: [], value: 0, allocations: 0, own: 0, depth: parent ? parent.depth + 1 : 0,
            from: 0, to: 1};
    }

    // Callers come first in the list, so one pass makes the tree; figures are how much less a frame has than its
    // caller. What was left out below a frame becomes a box of its own.
    function unpack(packed) {
        const nodes = [], list = packed.nodes;
        for (let i = 0; i < list.length; i += 5) {
            const parent = i === 0 ? null : nodes[i / 5 - list[i]], whole = parent || packed;
            const one = node(i === 0 ? null : list[i + 1], parent);
            one.value = whole.value - list[i + 2];
            one.allocations = whole.allocations - list[i + 3];
            one.leftOut = list[i + 4];
            nodes.push(one);
            if (parent)
                parent.children.push(one);
        }
        for (const one of nodes) {
            one.own = one.value - one.leftOut - one.children.reduce((sum, child) => sum + child.value, 0);
            addSmaller(one);
        }
        return nodes[0];
    }

    function each(one, visit) {
        const stack = [one];
        while (stack.length > 0) {
            const next = stack.pop();
            visit(next);
            for (let i = next.children.length; i-- > 0;)
                stack.push(next.children[i]);
        }
    }

    function layout(top) {
        top.from = 0;
        top.to = 1;
        each(top, one => {
            let at = one.from;
            one.children.sort((a, b) => b.value - a.value);
            for (const child of one.children) {
                child.from = at;
                child.to = at += one.value > 0 ? child.value / one.value * (one.to - one.from) : 0;
            }
        });
    }

    const place = one => one.place = one.place || findPlace(one);

    function findPlace(one) {
        if (one.frame === null)
            return {what: `all of ${shown.domain}`, where: "", path: "", module: "", isPython: false};
        if (one.frame < 0)
            return {what: "(smaller)", where: "", path: "", module: "", isPython: false};
        const [what, file, module, line, isPython] = frames.slice(5 * one.frame, 5 * one.frame + 5);
        const found = varve.data.place(what, file >= 0 ? file : module, file >= 0 ? line : 0);
        return {...found, module: varve.data.name(module) || "", isPython: isPython === 1};
    }

    const hash = text => {
        let sum = 7;
        for (let i = 0; i < text.length; i++)
            sum = (sum * 31 + text.charCodeAt(i)) >>> 0;
        return sum;
    };

    // Python in blues and greens, native code in oranges; a file or library has one shade. Frames of Python also have a
    // line at their left; functions differ in lightness.
    function frameColor(one) {
        if (one.frame === null)
            return "#c9ced6";
        if (one.frame < 0)
            return "#dddddd";
        const at = place(one), shade = hash(at.isPython ? at.path.replace(/:\d+$/, "") : at.module
            || at.path) % 1000 / 1000;
        const light = hash(at.what) % 1000 / 1000 * 0.14 - 0.07;
        return at.isPython ? d3.hsl(165 + 60 * shade, 0.5, 0.7 + light).toString()
            : d3.hsl(18 + 34 * shade, 0.82, 0.7 + light).toString();
    }

    function isMatch(one) {
        if (!pattern || one.frame === null)
            return false;
        const at = place(one);
        at.text = at.text || `${at.what} ${at.path} ${at.module}`.toLowerCase();
        return at.text.includes(pattern);
    }

    // A frame below another that matches too counts once.
    function mark() {
        let sum = 0;
        each(tree, one => {
            one.matches = isMatch(one);
            one.isBelow = Boolean(one.parent && (one.parent.matches || one.parent.isBelow));
            sum += one.matches && !one.isBelow ? one.value : 0;
        });
        matchText.textContent = pattern ? `${share(sum, tree.value)} in frames that match: ${figureText(sum)}` : "";
        varve.flame.matched = sum;
    }

    const keeps = one => chosen.kind === "all" || place(one).isPython === (chosen.kind === "python");

    // The same tree without the frames of the other kind, which are folded into their callers.
    function filtered(top) {
        const result = node(null, null), below = new Map(), stack = [[top, result]];
        while (stack.length > 0) {
            const [from, to] = stack.pop();
            to.own += from.own;
            to.leftOut = (to.leftOut || 0) + (from.leftOut || 0);
            to.allocations += from.allocations - from.children.reduce((sum, child) => sum + child.allocations, 0);
            for (const child of from.children)
                if (child.frame >= 0)
                    stack.push([child, keeps(child) ? twin(below, to, child) : to]);
        }
        return summed(result);
    }

    function twin(below, parent, like) {
        if (!below.has(parent))
            below.set(parent, new Map());
        const children = below.get(parent);
        if (!children.has(like.frame)) {
            const made = node(like.frame, parent);
            children.set(like.frame, made);
            parent.children.push(made);
        }
        return children.get(like.frame);
    }

    function summed(top) {
        const order = [];
        each(top, one => { one.value = one.own + (one.leftOut || 0); order.push(one); });
        for (const one of order.reverse())
            if (one.parent) {
                one.parent.value += one.value;
                one.parent.allocations += one.allocations;
            }
        each(top, addSmaller);
        return top;
    }

    // What was left out below a frame is a box of its own.
    function addSmaller(one) {
        if (one.leftOut > 0) {
            const smaller = node(-1, one);
            smaller.value = smaller.own = one.leftOut;
            one.children.push(smaller);
        }
    }

    const figureText = value => shown.is_count ? `${count(value)} allocations` : bytes(value);

    function depthOf(top) {
        let deepest = 0;
        each(top, one => { deepest = Math.max(deepest, one.depth); });
        return deepest;
    }

    const ancestors = one => one.parent ? [...ancestors(one.parent), one.parent] : [];

    // Visible boxes: those above the root fill the width.
    function boxes(width) {
        const list = ancestors(root).map(one => ({one, x: 0, width, y: one.depth * ROW}));
        const scale = width / (root.to - root.from || 1);
        const stack = [root];
        while (stack.length > 0) {
            const one = stack.pop(), box = {one, x: (one.from - root.from) * scale, width: (one.to - one.from) * scale,
                y: one.depth * ROW};
            if (box.width < 0.4)
                continue;
            list.push(box);
            stack.push(...one.children);
        }
        return list;
    }

    function draw(context, width) {
        if (!root)
            return;
        figure.boxes = boxes(width);
        context.textBaseline = "middle";
        context.textAlign = "left";
        for (const {one, x, width: wide, y} of figure.boxes) {
            const isAbove = one.depth < root.depth;
            one.color = one.color || frameColor(one);
            context.globalAlpha = isAbove ? 0.55 : pattern && !one.matches ? 0.4 : 1;
            context.fillStyle = one.matches ? varve.figure.color("mark") : one.color;
            context.fillRect(x, y, Math.max(0.5, wide - (wide > 3 ? GAP : 0)), ROW - 1);
            context.globalAlpha = 1;
            if (one === hovered) {
                context.strokeStyle = varve.figure.color("ink");
                context.lineWidth = 2;
                context.strokeRect(x + 1, y + 1, Math.max(0, wide - 2 - GAP), ROW - 3);
            }
            if (wide > 34) {
                const at = place(one), label = one.frame === null || one.frame < 0 ? at.what
                    : `${at.what}  ${at.where}`;
                if (at.isPython) {
                    context.fillStyle = "#17405e";
                    context.fillRect(x, y, 3, ROW - 1);
                }
                context.save();
                context.beginPath();
                context.rect(x, y, wide - 4, ROW);
                context.clip();
                context.fillStyle = one.matches ? "#ffffff" : pattern && !isAbove ? varve.figure.color("ink")
                    : "#10151b";
                context.fillText(label.slice(0, Math.ceil(wide / 4)), x + (at.isPython ? 7 : 5), y + ROW / 2);
                context.restore();
            }
        }
    }

    function boxAt(point) {
        return (figure.boxes || []).find(box => point.y >= box.y && point.y < box.y + ROW && point.x >= box.x
            && point.x < box.x + Math.max(1, box.width));
    }

    function describe(one) {
        const at = place(one);
        const hasOwn = one.own > 0 && one.frame >= 0 && one.frame !== null && !isInverted;
        return [at.what, `${figureText(one.value)}, ${share(one.value, tree.value)} of all` +
            (hasOwn ? `; itself ${figureText(one.own)}` : ""),
            at.path, at.module && at.module !== at.path ? at.module : "", at.isPython ? "Python" : "",
            one.frame !== null && one.frame < 0 ? "frames that are too small for the page, together" : "",
            !shown.is_count ? exactBytes(one.value) : ""];
    }

    function zoom(one) {
        root = one;
        resize();
        sourceBox.replaceChildren(...[varve.data.source(place(root).path)].filter(source => source));
        info.textContent = root === tree ? "" : `Zoomed to ${place(root).what}: ${figureText(root.value)}, ` +
            `${share(root.value, tree.value)} of all. Escape shows all again.`;
    }

    function resize() {
        figure.height = Math.max(120, (depthOf(root) + 1) * ROW + 4);
        figure.redraw();
    }

    function search(text) {
        pattern = text.trim().toLowerCase();
        mark();
        figure.redraw();
    }

    // ---- which tree ----

    const isOfAllThreads = () => chosen.whose.process === 0 && chosen.whose.thread === 0;
    const isOfAll = () => isOfAllThreads() && !chosen.hidesImports;
    const peakOf = (domain, device) => varve.data.part("curves").series.find(series => series.process === 0
        && series.domain === domain && series.device === device) || {};

    // The moments of the page that the time that is shown goes from and to.
    function spanShown() {
        const {momentAt, moment} = varve.spans, {from, to} = varve.figure.view;
        return {begin: momentAt(from), end: momentAt(to), from: moment(momentAt(from)), to: moment(momentAt(to))};
    }

    // Bytes of a row of spans.js by the chosen metric.
    function figureOfRows() {
        const {figures, momentOfEvent} = varve.spans, {begin, end} = spanShown();
        switch (chosen.metric) {
        case "peak": return row => figures.live(row, momentOfEvent(peakOf(chosen.domain, row.device).peak_seq || 0));
        case "allocated": return row => figures.made(row, -1, Infinity);
        case "leaked": return row => row.left;
        case "moment": return row => figures.live(row, varve.live.chosen().at);
        case "span": return row => figures.made(row, begin, end);
        default: return row => figures.grown(row, begin, end);
        }
    }

    // Of the whole recording the page has the tree; null: that of parts is not known.
    function find() {
        if (isOfAll() && ofWhole.includes(chosen.metric)) {
            const found = trees.find(one => one.domain === chosen.domain && one.metric === chosen.metric
                && one.is_inverted === isInverted);
            found.top = found.top || unpack(found);
            return found;
        }
        const isHidden = row => chosen.hidesImports && row.isImport, [sign, changed] = chosen.metric.split(" ");
        const list = chosen.metric === "temporary" || ofChange.includes(chosen.metric) && !isOfAllThreads() ? []
            : changed ? varve.spans.changed(chosen.domain, changed, sign === "more" ? 1 : -1, isHidden)
            : varve.spans.chosen(chosen.domain, chosen.whose, figureOfRows(), isHidden);
        const top = varve.spans.tree(list, isInverted, (frame, parent) => ({...node(frame, parent), leftOut: 0}));
        each(top, addSmaller);
        return {domain: chosen.domain, metric: chosen.metric, is_inverted: isInverted, is_count: false,
            has_stacks: true, share_min: 0, top, rows: list};
    }

    // The same by line: of the rows, or by the inverted tree of the page.
    function showLines() {
        const sums = new Map(), add = (frame, bytes) => sums.set(frame, (sums.get(frame) || 0) + bytes);
        if (shown.rows)
            shown.rows.forEach(row => add(row.line > 0 ? varve.spans.frames()[row.line] : -1, row.bytes));
        else {
            const inverted = trees.find(one => one.domain === shown.domain && one.metric === shown.metric
                && one.is_inverted);
            inverted.top = inverted.top || unpack(inverted);
            inverted.top.children.forEach(one => add(one.frame, one.value));
        }
        const all = d3.sum(sums.values());
        lineList.replaceChildren(...[...sums].sort((a, b) => b[1] - a[1]).slice(0, 40).map(([frame, bytes]) =>
            varve.live.row(bytes, all, frame < 0 ? {what: "all other lines", where: "", path: ""}
                : place({frame}), figureText(bytes))));
    }

    function describeTree() {
        const {duration} = varve.format, {from, to} = ofTime.includes(chosen.metric) ? spanShown() : {};
        const when = chosen.metric === "moment" ? `live at ${duration(varve.live.chosen().time)}`
            : chosen.metric === "span" ? `allocated from ${duration(from.time)} to ${duration(to.time)}`
            : chosen.metric === "grown" ? `more live at ${duration(to.time)} than at ${duration(from.time)}, in call `
                + "sites that have more" : words[chosen.metric];
        if (chosen.metric === "temporary" && !isOfAll())
            return "Temporary allocations are counted of the whole recording, with its imports.";
        if (ofChange.includes(chosen.metric) && !isOfAllThreads())
            return "Changes are those of the whole recordings, all processes and threads together.";
        if (tree.value === 0)
            return `Nothing of ${shown.domain} was ${when}.`;
        if (!shown.has_stacks)
            return "This recording has no stacks: there is one frame.";
        return `${figureText(tree.value)} ${shown.is_count ? "freed before their thread allocated again" : when}. `
            + "Blue and green, with a line at the left: Python; orange: native code. Frames of allocators and "
            + "interpreters are folded into their callers" + (shown.share_min > 0 ?
                `; what has less than ${shown.share_min / 10000} % is in boxes named (smaller)` : "") + ".";
    }

    function update() {
        shown = find();
        tree = chosen.kind === "all" ? shown.top : filtered(shown.top);
        layout(tree);
        hovered = null;
        mark();
        zoom(tree);
        showLines();
        varve.flame.note.textContent = describeTree();
    }

    // Once for however many changes there are before the screen's next frame, if the tree depends on them.
    function updateFor(...metrics) {
        if (!isDue && metrics.includes(chosen.metric)) {
            isDue = true;
            requestAnimationFrame(() => { isDue = false; update(); });
        }
    }

    // Arrows go from box to box: down to the largest callee, up to the caller, left and right between siblings.
    function walk(event) {
        const one = hovered || root, siblings = one.parent ? one.parent.children : [one], at = siblings.indexOf(one);
        const next = {ArrowDown: one.children[0], ArrowUp: one.parent, ArrowLeft: siblings[at - 1],
            ArrowRight: siblings[at + 1]}[event.key];
        if (event.key === "Enter" && one)
            zoom(one);
        else if (event.key === "Escape")
            zoom(tree);
        else if (!(event.key.startsWith("Arrow")))
            return;
        event.preventDefault();
        if (next) {
            hovered = next;
            info.textContent = describe(next).filter(line => line).slice(0, 3).join(" · ");
            scroll.scrollTop = Math.max(0, next.depth * ROW - scroll.clientHeight / 2);
            figure.redraw();
        }
    }

    function listen() {
        const canvas = figure.canvas;
        const point = event => {
            const box = canvas.getBoundingClientRect();
            return {x: event.clientX - box.left, y: event.clientY - box.top};
        };
        canvas.addEventListener("pointermove", event => {
            const box = boxAt(point(event)), one = box ? box.one : null;
            if (one !== hovered) {
                hovered = one;
                figure.redraw();
            }
            varve.dom.tip(event, one ? describe(one) : null);
        });
        canvas.addEventListener("pointerleave", event => {
            hovered = null;
            varve.dom.tip(event, null);
            figure.redraw();
        });
        canvas.addEventListener("click", event => {
            const box = boxAt(point(event));
            if (box)
                zoom(box.one === root && box.one.parent ? tree : box.one);
        });
        canvas.addEventListener("keydown", walk);
    }

    // Processes, and threads of each that has several that allocated something.
    function whoseList() {
        if (varve.data.part("meta").no_parts)
            return [];
        const {threads} = varve.spans, meta = varve.data.part("meta"), list = [["0 0", "all"]];
        for (const {id} of meta.processes) {
            const own = threads().filter(thread => thread.process === id);
            if (meta.processes.length > 1)
                list.push([`${id} 0`, varve.data.processName(id)]);
            if (own.length > 1)
                list.push(...own.map(({tid, name}) => [`${id} ${tid}`,
                    `${meta.processes.length > 1 ? "\u00a0\u00a0" : ""}thread ${tid}${name ? ` ${name}` : ""}`]));
        }
        return list;
    }

    function menus(element) {
        const domains = [...new Set(trees.map(one => one.domain))], whose = whoseList();
        chosen.domain = domains.includes(varve.timeline.shown().domain) ? varve.timeline.shown().domain : domains[0];
        const box = make("input", {type: "search", placeholder: "function, file or module", id: "flame-search",
            "aria-label": "search the flame graph"});
        box.addEventListener("input", () => search(box.value));
        matchText = make("span", {className: "readout", id: "flame-match", role: "status"});
        const menu = (id, label, options, value, change) => {
            const list = select(label, options, value, key => { change(key); update(); });
            list.querySelector("select").id = id;
            return list;
        };
        const metrics = Object.entries(words).filter(([metric]) => ofTime.includes(metric) ? whose.length > 0
            : !ofChange.includes(metric) || varve.data.part("before"));
        chosen.metric = varve.data.part("before") ? "more peak" : "peak";
        controls(element,
            menu("flame-domain", "domain", domains.map(name => [name, name]), chosen.domain,
                key => { chosen.domain = key; }),
            menu("flame-metric", "by", metrics, chosen.metric, key => { chosen.metric = key; }),
            whose.length < 2 ? null : menu("flame-whose", "of", whose, "0 0", key => {
                const [process, thread] = key.split(" ").map(Number);
                chosen.whose = {process, thread};
            }),
            !hasBothKinds() ? null : menu("flame-kind", "frames", [["all", "native and Python"],
                ["python", "Python"], ["native", "native"]], "all", key => { chosen.kind = key; }),
            toggle("inverted", "the allocating lines first, callers below them", false,
                isOn => { isInverted = isOn; update(); }),
            whose.length === 0 || !hasBothKinds() ? null : toggle("without imports",
                "leave out what was allocated while modules were imported", false,
                isOn => { chosen.hidesImports = isOn; update(); }),
            button("reset", "the whole graph (Escape)", () => { box.value = ""; search(""); zoom(tree); }), box,
            matchText);
    }

    function hasBothKinds() {
        for (let i = 4; i < frames.length; i += 5)
            if (frames[i] === 1)
                return true;
        return false;
    }

    function begin() {
        const element = section("flame", "Flame graph",
            "Who calls what allocates, native code and Python in one stack. Click a box to zoom into it, click it " +
            "again or press Escape for all.");
        trees = varve.data.part("flame");
        frames = varve.data.frames();
        if (trees.length === 0) {
            absent(element, "No allocation was recorded.");
            return;
        }
        menus(element);
        scroll = make("div", {className: "scroll", id: "flame-graph"});
        element.append(scroll);
        info = make("div", {className: "readout", role: "status"});
        varve.flame.note = make("p", {className: "explanation"});
        figure = varve.figure.make(scroll, "flame graph; arrows go from frame to frame, Enter zooms, Escape shows all",
            120, (...canvas) => figure && draw(...canvas));
        lineList = make("div", {className: "live-list", id: "flame-lines"});
        sourceBox = make("div", {id: "flame-source"});
        element.append(info, sourceBox, varve.flame.note,
            make("details", {}, make("summary", {}, "The same by line"), lineList));
        listen();
        update();
        varve.live.whenShown(() => updateFor("moment"));
        varve.figure.view.watchers.push(() => updateFor("span", "grown"));
    }

    return {
        begin, note: null, matched: 0, placeOf: frame => place({frame}),
        state: () => ({domain: shown.domain, metric: shown.metric, isInverted, total: tree.value,
            ...(ofTime.includes(shown.metric) ? {from: spanShown().from.seq, to: spanShown().to.seq} : {}),
            root: place(root).what, rootValue: root.value,
            boxes: (figure.boxes || []).map(box => ({x: box.x, y: box.y, width: box.width, what: place(box.one).what,
                isPython: place(box.one).isPython, value: box.one.value}))}),
    };
})();
