// SPDX-License-Identifier: Apache-2.0
// The parts of the recording that are in the page. A part is parsed when it is asked for first.
"use strict";
varve.data = (() => {
    const parts = {};

    function part(name) {
        if (!(name in parts))
            parts[name] = JSON.parse(document.getElementById(`data-${name}`).textContent);
        return parts[name];
    }

    // Numbers are written as the difference to the one before.
    function sums(differences) {
        const numbers = new Float64Array(differences.length);
        let sum = 0;
        for (let i = 0; i < differences.length; i++)
            numbers[i] = sum += differences[i];
        return numbers;
    }

    const name = number => number < 0 ? null : part("names")[number];

    // What a person calls a line of code.
    function place(functionName, file, line) {
        return {
            what: name(functionName) || "(no name)",
            where: name(file) === null ? "" : name(file).replace(/^.*\/(?=[^/])/, "") + (line > 0 ? `:${line}` : ""),
            path: name(file) === null ? "" : name(file) + (line > 0 ? `:${line}` : ""),
        };
    }

    // Frames of all stacks of the page, five values each. Those that only the recording before has come last; of each
    // of its frames `ofGone` has the number, which is that of an equal one.
    let frames = null;
    const ofGone = [];
    function allFrames() {
        if (frames)
            return frames;
        const before = part("before"), numbers = new Map();
        frames = [...part("flame"), part("spans"), before && before.after].filter(one => one)
            .flatMap(one => one.new_frames);
        for (let i = 0; before && i < frames.length; i += 5)
            numbers.set(frames.slice(i, i + 5).join(), i / 5);
        for (let i = 0; before && i < before.gone.new_frames.length; i += 5) {
            const frame = before.gone.new_frames.slice(i, i + 5), key = frame.join();
            if (!numbers.has(key)) {
                numbers.set(key, frames.length / 5);
                frames.push(...frame);
            }
            ofGone.push(numbers.get(key));
        }
        return frames;
    }

    // Source code around a line, as an element; null: it is not in the page.
    let sources = null;
    function source(path) {
        sources = sources || new Map(part("source").map(([file, line, first, ...texts]) =>
            [`${name(file)}:${line}`, {line, first, texts}]));
        const found = sources.get(path);
        if (!found)
            return null;
        return varve.dom.make("pre", {className: "source"}, ...found.texts.map((text, i) =>
            varve.dom.make("div", {className: found.first + i === found.line ? "here" : ""},
                `${String(found.first + i).padStart(5)}  ${text}`)));
    }

    function processName(id) {
        const found = part("meta").processes.find(process => process.id === id);
        if (!found)
            return `process ${id}`;
        return `${found.program || "process"} ${found.pid}${found.rank === undefined ? "" : ` (rank ${found.rank})`}`;
    }

    const domainName = code => (part("meta").domains.find(domain => domain.code === code)
        || {name: `domain ${code}`}).name;

    // A domain, and the device where it matters.
    function seriesName(series, all) {
        const devices = new Set(all.filter(other => other.domain === series.domain).map(other => other.device));
        return devices.size > 1 || series.device > 0 ? `${series.domain}, GPU ${series.device}` : series.domain;
    }

    return {part, sums, name, place, source, processName, domainName, seriesName, frames: allFrames,
        frameOfGone: number => (allFrames(), ofGone[number])};
})();
