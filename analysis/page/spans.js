// SPDX-License-Identifier: Apache-2.0
// What each call site allocated and freed between the moments of the page, by thread: trees of any moment, of any span
// of time, and of a process or a thread. Exact at the moments; a span goes from moment to moment.
"use strict";
varve.spans = (() => {
    let rows, parents, frames, threads, times, seqs, changes;

    // The nodes of another tree, behind those that are there already: what their numbers become.
    function append(nodes, frameOf) {
        const base = parents.length - 1;
        for (let i = 0; i < nodes.length; i += 2) {
            const parent = i / 2 + 1 - nodes[i];
            parents.push(parent > 0 ? base + parent : 0);
            frames.push(frameOf(nodes[i + 1]));
        }
        return place => place > 0 ? base + place : 0;
    }

    function loadChanges(before) {
        const after = append(before.after.nodes, frame => frame), gone = append(before.gone.nodes,
            varve.data.frameOfGone);
        changes = [];
        for (let i = 0; i < before.rows.length; i += 8) {
            const [domain, isGone, leaf, line, isImport, peak, allocated, leaked] = before.rows.slice(i, i + 8);
            const place = isGone === 1 ? gone : after;
            changes.push({domain: varve.data.name(domain), leaf: place(leaf), line: place(line),
                isImport: isImport === 1, peak, allocated, leaked});
        }
    }

    function load() {
        if (rows)
            return;
        const packed = varve.data.part("spans"), live = varve.data.part("live");
        times = varve.data.sums(live.t);
        seqs = varve.data.sums(live.seq);
        parents = [-1];
        frames = [null];
        append(packed.nodes, frame => frame);
        if (varve.data.part("before"))
            loadChanges(varve.data.part("before"));
        threads = [];
        for (let i = 0; i < packed.threads.length; i += 3)
            threads.push({process: packed.threads[i], tid: packed.threads[i + 1],
                name: varve.data.name(packed.threads[i + 2])});
        rows = [];
        for (let i = 0; i < packed.rows.length;) {
            const [domain, process, device, thread, leaf, line, isImport, left, count] = packed.rows.slice(i, i + 9);
            const cells = [];
            let moment = 0;
            i += 9;
            for (let k = 0; k < count; k++, i += 3)
                cells.push({moment: moment += packed.rows[i], made: packed.rows[i + 1], freed: packed.rows[i + 2]});
            rows.push({domain, process, device, thread, leaf, line, isImport: isImport === 1, left, cells});
        }
        const used = new Set(rows.map(row => `${row.process} ${row.thread}`));
        threads = threads.filter(thread => used.has(`${thread.process} ${thread.tid}`));
    }

    // Bytes of a row. A moment is its number; what happened after the last one has the next.
    const figures = {
        live: (row, at) => row.cells.reduce((sum, cell) => sum + (cell.moment <= at ? cell.made - cell.freed : 0), 0),
        made: (row, from, to) => row.cells.reduce((sum, cell) =>
            sum + (cell.moment > from && cell.moment <= to ? cell.made : 0), 0),
        grown: (row, from, to) => Math.max(0, row.cells.reduce((sum, cell) =>
            sum + (cell.moment > from && cell.moment <= to ? cell.made - cell.freed : 0), 0)),
    };

    // The last moment that is not after a time; -1: there is none.
    const momentAt = time => d3.bisectRight(times, time) - 1;

    // Those of a domain, of a process (0: all) and a thread (0: all), that are not hidden and have some of `bytes`.
    function chosen(domain, whose, bytes, isHidden) {
        load();
        return rows.filter(row => varve.data.domainName(row.domain) === domain
            && (whose.process === 0 || row.process === whose.process)
            && (whose.thread === 0 || row.thread === whose.thread) && !isHidden(row))
            .map(row => ({...row, bytes: bytes(row)})).filter(row => row.bytes > 0);
    }

    // What a domain has more of than the recording before, or, with sign -1, less, by a figure.
    function changed(domain, figure, sign, isHidden) {
        load();
        return changes.filter(row => row.domain === domain && sign * row[figure] > 0 && !isHidden(row))
            .map(row => ({...row, bytes: sign * row[figure]}));
    }

    // Frames from a place in the tree outwards.
    function framesFrom(place) {
        load();
        const path = [];
        for (let at = place; at > 0; at = parents[at])
            path.push(frames[at]);
        return path;
    }

    // As flame.js has trees: node() makes one, whose `own` and `leftOut` are what does not come from its children.
    function tree(list, isInverted, node) {
        const root = node(null, null), below = new Map([[root, new Map()]]);
        const child = (parent, frame) => {
            const children = below.get(parent);
            if (!children.has(frame)) {
                const made = node(frame, parent);
                children.set(frame, made);
                below.set(made, new Map());
                parent.children.push(made);
            }
            return children.get(frame);
        };
        for (const row of list) {
            const path = framesFrom(isInverted ? row.line : row.leaf);
            let at = root;
            at.value += row.bytes;
            for (const frame of isInverted ? path : path.reverse()) {
                at = child(at, frame);
                at.value += row.bytes;
            }
            if (path.length === 0)
                root.leftOut += row.bytes;
            else
                at.own += row.bytes;
        }
        return root;
    }

    const momentOfEvent = seq => Math.max(0, d3.bisectRight(seqs, seq) - 1);
    const moment = at => at < 0 ? {time: 0, seq: 0} : {time: times[at], seq: seqs[at]};

    return {
        figures, chosen, changed, tree, path: framesFrom, moment,
        threads: () => (load(), threads), frames: () => frames,
        momentAt: time => (load(), momentAt(time)), momentOfEvent: seq => (load(), momentOfEvent(seq)),
    };
})();
