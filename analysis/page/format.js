// SPDX-License-Identifier: Apache-2.0
// Figures for people, as `varve report` prints them. The page's one global name is `varve`; each script
// adds its part to it.
"use strict";
const varve = {};

varve.format = (() => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

    function bytes(number) {
        let unit = 0;
        let value = number;
        while (Math.abs(value) >= 1023.95 && unit < units.length - 1) {
            value /= 1024;
            unit++;
        }
        if (unit === 0)
            return `${value} B`;
        const size = Math.abs(value);
        return `${value.toFixed(size < 9.995 ? 2 : size < 99.95 ? 1 : 0)} ${units[unit]}`;
    }

    function duration(ns) {
        if (ns < 0)
            return "-";
        for (const [unit, length] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]])
            if (ns >= length) {
                const value = ns / length;
                const text = value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1)
                    : Math.round(value).toLocaleString("en");
                return `${text} ${unit}`;
            }
        return `${ns} ns`;
    }

    const count = number => number.toLocaleString("en");
    const exactBytes = number => `${count(number)} bytes`;
    const share = (part, whole) => whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : "-";

    // Ticks of a time axis: as many digits as tell them apart.
    function timeTick(ns, step) {
        const [unit, length] = step >= 1e8 ? ["s", 1e9] : step >= 1e5 ? ["ms", 1e6] : step >= 100 ? ["us", 1e3]
            : ["ns", 1];
        const digits = Math.max(0, -Math.floor(Math.log10(step / length) + 1e-9));
        return `${(ns / length).toFixed(digits)} ${unit}`;
    }

    return {bytes, duration, count, exactBytes, share, timeTick};
})();
