// SPDX-License-Identifier: Apache-2.0
// Elements. Whatever comes from the recording gets into the page through here, as text: nothing is ever parsed as HTML.
"use strict";
varve.dom = (() => {
    // Children are elements or text.
    function make(tag, properties, ...children) {
        const element = document.createElement(tag);
        for (const [key, value] of Object.entries(properties || {}))
            if (key in element && key !== "list")
                element[key] = value;
            else
                element.setAttribute(key, value);
        element.append(...children.filter(child => child !== null && child !== undefined));
        return element;
    }

    function section(id, title, explanation) {
        const element = make("section", {id}, make("h2", {}, title));
        if (explanation)
            element.append(make("p", {className: "explanation"}, explanation));
        document.getElementById("main").append(element);
        return element;
    }

    const absent = (element, sentence) => element.append(make("p", {className: "absent"}, sentence));

    function controls(element, ...children) {
        const row = make("div", {className: "controls"}, ...children);
        element.append(row);
        return row;
    }

    // options: pairs of value and text.
    function select(label, options, value, change) {
        const list = make("select", {}, ...options.map(([key, text]) => make("option", {value: key}, text)));
        list.value = value;
        list.addEventListener("change", () => change(list.value));
        return make("label", {}, label, list);
    }

    function button(text, title, press) {
        const element = make("button", {type: "button", title}, text);
        element.addEventListener("click", press);
        return element;
    }

    // A button that stays down.
    function toggle(text, title, isOn, change) {
        const element = button(text, title, () => {
            const isDown = element.getAttribute("aria-pressed") !== "true";
            element.setAttribute("aria-pressed", isDown);
            change(isDown);
        });
        element.setAttribute("aria-pressed", isOn);
        return element;
    }

    // One box beside the pointer; lines: texts, the first one bold; null: away with it.
    const box = make("div", {className: "tip", hidden: true, role: "tooltip"});
    function tip(event, lines) {
        if (!lines) {
            box.hidden = true;
            return;
        }
        if (!box.parentNode)
            document.body.append(box);
        box.replaceChildren(...lines.filter(line => line).map((line, i) =>
            make("div", {className: i === 0 ? "title" : i > 1 ? "faint" : ""}, line)));
        box.hidden = false;
        const width = box.offsetWidth, height = box.offsetHeight;
        const isRight = event.clientX + 14 + width > innerWidth, isLow = event.clientY + 16 + height > innerHeight;
        box.style.left = `${Math.max(4, isRight ? event.clientX - width - 10 : event.clientX + 14)}px`;
        box.style.top = `${Math.max(4, isLow ? event.clientY - height - 10 : event.clientY + 16)}px`;
    }

    return {make, section, absent, controls, select, button, toggle, tip};
})();
