// SPDX-License-Identifier: Apache-2.0
// What was live at the chosen moment: the largest lines of the chosen domain then, and the sum of all others.
// Exact at each moment.
"use strict";
varve.live = (() => {
    const {make, button} = varve.dom;
    const {bytes, exactBytes, duration, count, share} = varve.format;
    const ROWS = 40;

    let live, times, seqs, head, list, at = -1;
    const watchers = [];

    // Series of the chosen domain and device: of one process, or of all.
    function matching() {
        const shown = varve.timeline.shown();
        return live.series.filter(series => varve.data.domainName(series.domain) === shown.domain
            && series.device === shown.device && (shown.process === 0 || series.process === shown.process));
    }

    function unpack(series) {
        if (!series.restAt) {
            series.restAt = varve.data.sums(series.rest);
            series.lines.forEach(line => { line.bytesAt = varve.data.sums(line.bytes); });
        }
        return series;
    }

    // Lines by name, the largest first; a line that several processes have is one.
    function lines(moment) {
        const sums = new Map();
        let rest = 0;
        for (const series of matching().map(unpack)) {
            rest += series.restAt[moment];
            for (const line of series.lines) {
                const key = line.at.join(" "), sum = sums.get(key) || {at: line.at, bytes: 0};
                sum.bytes += line.bytesAt[moment];
                sums.set(key, sum);
            }
        }
        const rows = [...sums.values()].filter(row => row.bytes !== 0).sort((a, b) => b.bytes - a.bytes);
        rest += rows.slice(ROWS).reduce((sum, row) => sum + row.bytes, 0);
        return {rows: rows.slice(0, ROWS), rest, all: rows.reduce((sum, row, i) => sum + (i < ROWS ? row.bytes : 0),
            rest)};
    }

    function row(size, all, place, text) {
        const bar = make("span", {className: "bar"});
        bar.style.width = `${all > 0 ? 100 * size / all : 0}%`;
        const element = make("div", {className: "live-row",
            title: `${text || exactBytes(size)}\n${place.what}\n${place.path}`}, bar,
            make("span", {}, text || bytes(size)),
            make("span", {}, share(size, all)), make("span", {className: "who"}, place.what, " ",
                make("span", {className: "where"}, place.where)));
        return withSource(element, place);
    }

    // A click on it, or Enter, shows the place's source code below it, if the page has that.
    function withSource(element, place) {
        const source = varve.data.source(place.path);
        if (!source)
            return element;
        const toggle = () => {
            if (source.parentNode)
                source.remove();
            else
                element.after(source);
        };
        Object.assign(element, {tabIndex: 0, onclick: toggle, onkeydown: event => {
            if (event.key === "Enter")
                toggle();
        }});
        element.classList.add("has-source");
        return element;
    }

    function show() {
        if (at < 0)
            return;
        const {rows, rest, all} = lines(at);
        head.textContent = `Live at ${duration(times[at])}: ${bytes(all)}`;
        head.title = `after event ${count(seqs[at])}; ${exactBytes(all)}`;
        list.replaceChildren(...rows.map(one => row(one.bytes, all, varve.data.place(...one.at))));
        if (rest !== 0)
            list.append(row(rest, all, {what: "all other lines", where: "", path: ""}));
        if (rows.length > 0 && rows.every(one => one.at[0] < 0))
            list.append(make("p", {className: "explanation"},
                "No stack was recorded with these allocations, so there is no line to name."));
        if (all === 0)
            list.append(make("p", {className: "explanation"}, "Nothing of this domain was live."));
        varve.timeline.markMoment(times[at]);
        watchers.forEach(watch => watch());
    }

    // The moment that is nearest to a time; of several with this time the last, after which it is as it was then.
    function choose(time) {
        if (!times || times.length === 0)
            return;
        const after = Math.min(times.length - 1, d3.bisectLeft(times, time));
        at = after > 0 && time - times[after - 1] < times[after] - time ? after - 1 : after;
        while (at + 1 < times.length && times[at + 1] === times[at])
            at++;
        show();
    }

    function step(by) {
        if (times && times.length > 0) {
            at = Math.min(times.length - 1, Math.max(0, at + by));
            show();
        }
    }

    // By its event, since a recording may have one time for many. That of a process may be no moment: then it
    // is the one before.
    function peak() {
        const shown = varve.timeline.shown();
        if (shown.peak_seq === undefined) {
            choose(shown.peak_t);
        } else if (times && times.length > 0) {
            at = Math.max(0, d3.bisectRight(seqs, shown.peak_seq) - 1);
            show();
        }
    }

    function begin(element) {
        const reason = varve.data.part("meta").no_allocations;
        if (reason) {
            varve.dom.absent(element, `What was live at a moment is not known: this recording has ${reason}.`);
            return;
        }
        live = varve.data.part("live");
        times = varve.data.sums(live.t);
        seqs = varve.data.sums(live.seq);
        head = make("h3", {id: "live-head", "aria-live": "polite"});
        list = make("div", {className: "live-list", id: "live-list", tabIndex: 0});
        element.append(make("div", {className: "live-head"}, head,
            button("\u25c0", "the moment before (p)", () => step(-1)),
            button("peak", "the moment of the peak", peak), button("\u25b6", "the next moment (n)", () => step(1))),
            list);
        element.append(make("p", {className: "explanation"},
            `By the user's line; exact at each of ${count(times.length)} moments, of which the nearest to a click ` +
            `is taken.`));
        varve.timeline.whenChosen(show);
        if (times.length > 0)
            peak();
    }

    return {begin, choose, step, lines, row, withSource, chosen: () => ({at, time: at < 0 ? 0 : times[at]}),
        whenShown: watch => watchers.push(watch), state: () => ({at, seq: at < 0 ? null : seqs[at],
        ...(at < 0 ? {} : lines(at))})};
})();
