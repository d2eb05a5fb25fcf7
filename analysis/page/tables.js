// SPDX-License-Identifier: Apache-2.0
// The sections of `varve report`, each as a table: a click on a heading sorts, the box filters, figures are exact
// in their titles.
"use strict";
varve.tables = (() => {
    const {make, button} = varve.dom;
    const {bytes, exactBytes, duration, count} = varve.format;

    const signed = (value, text) => value < 0 ? `\u2212${text(-value)}` : value > 0 ? `+${text(value)}` : text(0);
    const isText = kind => kind === "t" || kind === "p" || kind === "x";

    // Value, what is shown of it, and its title.
    function cell(value, kind) {
        if (value === null)
            return {value, text: "-", title: ""};
        switch (kind) {
        case "t": return {value: varve.data.name(value), text: varve.data.name(value), title: varve.data.name(value)};
        case "p": return {value: varve.data.name(value), text: varve.data.name(value).replace(/^.*\/(?=[^/]*\/[^/])/,
            "\u2026/"), title: varve.data.name(value)};
        case "b": return {value, text: bytes(value), title: exactBytes(value)};
        case "B": return {value, text: signed(value, bytes), title: signed(value, exactBytes)};
        case "C": return {value, text: signed(value, count), title: ""};
        case "d": return {value, text: duration(value), title: `${count(value)} ns`};
        case "%": return {value, text: `${(value / 10).toFixed(1)} %`, title: ""};
        case "c": return {value, text: count(value), title: ""};
        default: return {value, text: String(value), title: ""};
        }
    }

    function unpack(section) {
        const rows = [], width = section.kinds.length;
        for (let i = 0; i < section.rows.length; i += width)
            rows.push(section.rows.slice(i, i + width).map((value, column) => cell(value, section.kinds[column])));
        return rows;
    }

    function compare(a, b) {
        if (a === null || b === null)
            return (a === null) - (b === null);
        return typeof a === "string" ? a.localeCompare(b) : a - b;
    }

    function toCsv(section, rows) {
        const quote = value => {
            const text = value === null ? "" : String(value);
            return /[",\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
        };
        return [section.columns.map(quote).join(","), ...rows.map(row =>
            row.map(one => quote(one.value)).join(","))].join("\n") + "\n";
    }

    function build(element, section) {
        const rows = unpack(section), body = make("tbody", {}),
            note = make("span", {className: "readout", role: "status"});
        let order = null, isDown = false, pattern = "", visible = rows;
        const fill = () => {
            visible = rows.filter(row => !pattern || row.some(one => String(one.text).toLowerCase().includes(pattern)
                || String(one.title).toLowerCase().includes(pattern)));
            if (order !== null)
                visible = [...visible].sort((a, b) => (isDown ? -1 : 1) * compare(a[order].value, b[order].value));
            body.replaceChildren(...visible.map(row => row.element = row.element
                || make("tr", {}, ...row.map((one, i) =>
                make("td", {className: isText(section.kinds[i]) ? "" : "number", title: one.title}, one.text)))));
            note.textContent = pattern ? `${count(visible.length)} of ${count(rows.length)} rows` : "";
        };
        const heads = section.columns.map((title, i) => {
            const head = make("th", {className: isText(section.kinds[i]) ? "" : "number", scope: "col"});
            head.append(button(title || "\u00a0", "sort", () => {
                isDown = order === i ? !isDown : !isText(section.kinds[i]);
                order = i;
                heads.forEach(other => other.removeAttribute("aria-sort"));
                heads.forEach((other, k) => { other.firstChild.textContent = (section.columns[k] || "\u00a0")
                    + (k === i ? isDown ? " \u25be" : " \u25b4" : ""); });
                head.setAttribute("aria-sort", isDown ? "descending" : "ascending");
                fill();
            }));
            return head;
        });
        const box = make("input", {type: "search", placeholder: "filter", "aria-label": `filter ${section.title}`});
        box.addEventListener("input", () => { pattern = box.value.trim().toLowerCase(); fill(); });
        const copy = button("copy as CSV", "the rows that are shown, with exact figures", async () => {
            try {
                await navigator.clipboard.writeText(toCsv(section, visible));
                note.textContent = `copied ${count(visible.length)} rows`;
            } catch (error) {
                note.textContent = "the browser does not allow copying";
            }
        });
        varve.dom.controls(element, rows.length > 5 ? box : null, copy, note);
        element.append(make("div", {className: "table-box", tabIndex: 0},
            make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body)));
        fill();
    }

    // A table is built when it is opened first.
    function add(parent, section, isOpen) {
        const summary = make("summary", {}, make("h3", {}, section.title),
            make("span", {className: "rows"}, `  ${count(section.all)} ${section.all === 1 ? "row" : "rows"}`));
        const details = make("details", {className: "section-table", id: `table-${section.key}`}, summary,
            make("p", {className: "explanation"}, section.explanation
                + (section.all * section.kinds.length > section.rows.length ?
                ` The first ${count(section.rows.length / section.kinds.length)} of ${count(section.all)} rows are ` +
                `here; varve report --json has more.` : "")));
        let isBuilt = false;
        details.addEventListener("toggle", () => {
            if (details.open && !isBuilt) {
                isBuilt = true;
                build(details, section);
            }
        });
        parent.append(details);
        if (isOpen) {
            isBuilt = true;
            details.open = true;
            build(details, section);
        }
    }

    function begin() {
        const element = varve.dom.section("tables", "Tables",
            "Click a heading to sort. The same rows are in varve report --json.");
        const sections = varve.data.part("tables"), empty = sections.filter(section => section.rows.length === 0);
        sections.filter(section => section.rows.length > 0).forEach((section, i) => add(element, section, i < 3));
        if (empty.length > 0)
            element.append(make("h3", {}, "Not in this recording"), make("ul", {className: "none", id: "absent"},
                ...empty.map(section => make("li", {}, `${section.title}: ${section.absent}`))));
    }

    return {begin};
})();
