// SPDX-License-Identifier: Apache-2.0
// The page from top to bottom. One part that fails leaves the others as they are, and says so.
"use strict";
(() => {
    const {make} = varve.dom;
    const {bytes, duration, count} = varve.format;

    const meaning = name => (varve.data.part("meta").domains.find(domain => domain.name === name)
        || {meaning: ""}).meaning;

    // What the recording before had of the same.
    function sinceBefore(series, before) {
        const found = before && before.curves.series.find(other => other.process === 0
            && other.domain === series.domain && other.device === series.device);
        return !before ? null : make("div", {className: "more"}, !found ? "before: nothing"
            : `before: ${bytes(found.peak)}`);
    }

    function totals(element) {
        const before = varve.data.part("before");
        const all = varve.data.part("curves").series.filter(series => series.process === 0);
        const box = make("div", {className: "totals"});
        for (const series of all)
            box.append(make("div", {className: "total", title: meaning(series.domain)},
                make("div", {className: "what"}, `${varve.data.seriesName(series, all)}, at its peak`),
                make("div", {className: "figure", title: varve.format.exactBytes(series.peak)}, bytes(series.peak)),
                make("div", {className: "more"}, `${duration(series.peak_t)} after the start`),
                sinceBefore(series, before)));
        const rss = varve.data.part("curves").rss.peak;
        if (rss > 0)
            box.append(make("div", {className: "total"}, make("div", {className: "what"}, "resident memory, at most"),
                make("div", {className: "figure"}, bytes(rss)),
                make("div", {className: "more"}, "as the kernel counts it")));
        element.append(box);
    }

    function navigation(element) {
        const nav = make("nav", {"aria-label": "parts of the page"});
        for (const section of document.querySelectorAll("section"))
            nav.append(make("a", {href: `#${section.id}`}, section.querySelector("h2").textContent));
        element.prepend(nav);
    }

    // A program may load libraries for long before it has any memory of the kind that was recorded: charts begin
    // where there is some.
    function beginView() {
        const {view, setView} = varve.figure;
        const first = d3.min(varve.data.part("curves").series, series => series.t[0]);
        setView(first > 0.1 * view.end ? first - 0.03 * (view.end - first) : view.begin, view.end);
    }

    function run() {
        const main = document.getElementById("main"), meta = varve.data.part("meta"),
            before = varve.data.part("before");
        main.replaceChildren();
        varve.figure.view.end = Math.max(1, meta.end, before ? before.end : 0);
        beginView();
        const parts = [["header", () => totals(document.querySelector("header"))], ["timeline", varve.timeline.begin],
            ["flame graph", varve.flame.begin],
            ["map", varve.blocks.begin], ["ladder", varve.ladder.begin], ["tables", varve.tables.begin]];
        for (const [name, begin] of parts) {
            try {
                performance.mark(name);
                begin();
                performance.measure(`varve ${name}`, name);
            } catch (error) {
                console.error(name, error);
                main.append(make("p", {className: "absent"}, `The part "${name}" can't be shown: ${error.message}`));
            }
        }
        navigation(main);
        document.querySelector("footer summary").textContent += `, version ${d3.version}`;
        requestAnimationFrame(() => requestAnimationFrame(() => performance.mark("varve-rendered")));
    }

    run();
})();
