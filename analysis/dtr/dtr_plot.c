/* SPDX-License-Identifier: Apache-2.0 */
/* Coordinates of the drawing are CSS pixels, y downwards. */
#include "analysis/dtr/dtr_print.h"

#include "analysis/base/number_format.h"
#include "base/error.h"
#include "base/program.h"
#include "base/publish.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WIDTH 760
#define HEIGHT 420
#define LEFT 70.0
#define RIGHT 740.0
#define TOP 44.0
#define BOTTOM 360.0
#define TICKS 8 /* at most about so many on an axis */
#define PROGRAM "rsvg-convert"

struct axis {
    double low, high;   /* values at the ends */
    double begin, end;  /* where these are */
    double first, step; /* of its ticks */
    int ticks;
};

struct plot {
    FILE *out;
    const struct dtr_subject *subject;
    const struct dtr_sweep *sweep;
    struct axis x, y;
    double unit; /* bytes of a step of the x axis's figures */
    const char *unit_name;
};

/* ---- axes ---- */

static double dtr_plot_place(const struct axis *axis, double value)
{
    return axis->begin + (value - axis->low) / (axis->high - axis->low) * (axis->end - axis->begin);
}

/* Ticks at 1, 2 or 5 times a power of ten. */
static void set_ticks(struct axis *axis)
{
    double raw = (axis->high - axis->low) / TICKS, power = pow(10, floor(log10(raw)));
    axis->step = (raw <= power ? 1 : raw <= 2 * power ? 2 : raw <= 5 * power ? 5 : 10) * power;
    axis->first = ceil(axis->low / axis->step - 1e-9) * axis->step;
    axis->ticks = (int)floor((axis->high - axis->first) / axis->step + 1e-9) + 1;
}

static int decimals(const struct axis *axis)
{
    int count = (int)-floor(log10(axis->step) + 1e-9);
    return count > 0 ? count : 0;
}

static double dtr_plot_overhead(const struct plot *plot, uint64_t clock)
{
    uint64_t cost = plot->subject->baseline.counters.model_compute_ns;
    return cost > 0 ? (double)clock / (double)cost : 1;
}

static void set_axes(struct plot *plot)
{
    const struct dtr_sweep *sweep = plot->sweep;
    uint64_t first = sweep->points[0].budget, last = sweep->points[sweep->point_count - 1].budget;
    bool is_large = last >= UINT64_C(1) << 30;
    plot->unit = is_large ? 0x1p30 : last >= UINT64_C(1) << 20 ? 0x1p20 : 1;
    plot->unit_name = is_large ? "GiB" : plot->unit > 1 ? "MiB" : "bytes";
    double most = 1;
    for (size_t i = 0; i < sweep->band_count; i++) {
        if (sweep->bands[i].status == DTR_OK) {
            most = fmax(most, dtr_plot_overhead(plot, sweep->bands[i].clock_max));
        }
    }
    plot->x = (struct axis){.low = (double)first / plot->unit,
                            .high = (double)(last > first ? last : first + 1) / plot->unit,
                            .begin = LEFT,
                            .end = RIGHT};
    plot->y = (struct axis){.low = 1, .high = most > 1.01 ? most : 1.01, .begin = BOTTOM, .end = TOP};
    plot->y.high += (plot->y.high - 1) * 0.05;
    set_ticks(&plot->x);
    set_ticks(&plot->y);
}

/* ---- what is drawn ---- */

static void dtr_plot_write_head(const struct plot *plot)
{
    const char *name = strrchr(plot->subject->path, '/');
    fprintf(plot->out, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\">\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    fputs("<style>\n"
          "text { font: 12px sans-serif; fill: #333 } .title { font-size: 14px } .paper { fill: #fff }\n"
          ".grid { stroke: #ddd } .curve { stroke: #0b62c4; fill: none; stroke-width: 2; stroke-linejoin: round; "
          "stroke-linecap: round } .dot { fill: #0b62c4 }\n"
          ".oom { fill: #c9302c; fill-opacity: .25 } .thrash { fill: #e8a317; fill-opacity: .3 }\n"
          ".bound { stroke: #666; stroke-dasharray: 4 3 }\n"
          "@media (prefers-color-scheme: dark) { text { fill: #ccc } .paper { fill: #15181c } .grid { stroke: #333 }\n"
          "  .curve { stroke: #6cb0ff } .dot { fill: #6cb0ff } }\n"
          "</style>\n",
          plot->out);
    fprintf(plot->out, "<rect class=\"paper\" width=\"%d\" height=\"%d\"/>\n", WIDTH, HEIGHT);
    fprintf(plot->out, "<text class=\"title\" x=\"%g\" y=\"26\">", LEFT);
    format_print_xml(plot->out, name != NULL ? name + 1 : plot->subject->path);
    fprintf(plot->out, ", heuristic %s</text>\n", plot->subject->options->heuristic->name);
}

/* A band reaches to the middle between its points and the next band's. */
static double band_edge(const struct plot *plot, size_t point)
{
    const struct dtr_point *points = plot->sweep->points;
    double here = point < plot->sweep->point_count ? (double)points[point].budget : (double)points[point - 1].budget;
    double before = point > 0 ? (double)points[point - 1].budget : here;
    return dtr_plot_place(&plot->x, (here + before) / 2 / plot->unit);
}

static void dtr_plot_write_bands(const struct plot *plot)
{
    for (size_t i = 0; i < plot->sweep->band_count; i++) {
        const struct dtr_band *band = &plot->sweep->bands[i];
        double from = band_edge(plot, band->first), to = band_edge(plot, band->end);
        if (band->status != DTR_OK) {
            fprintf(plot->out, "<rect class=\"%s\" x=\"%.2f\" y=\"%g\" width=\"%.2f\" height=\"%g\"/>\n",
                    dtr_status_name(band->status), from, TOP, to - from, BOTTOM - TOP);
        }
    }
}

static void write_axes(const struct plot *plot)
{
    FILE *out = plot->out;
    for (int i = 0; i < plot->x.ticks; i++) {
        double v = plot->x.first + i * plot->x.step, x = dtr_plot_place(&plot->x, v);
        fprintf(out, "<path class=\"grid\" d=\"M%.2f %gV%g\"/>", x, TOP, BOTTOM);
        fprintf(out, "<text x=\"%.2f\" y=\"%g\" text-anchor=\"middle\">%.*f</text>\n", x, BOTTOM + 18,
                decimals(&plot->x), v);
    }
    for (int i = 0; i < plot->y.ticks; i++) {
        double v = plot->y.first + i * plot->y.step, y = dtr_plot_place(&plot->y, v);
        fprintf(out, "<path class=\"grid\" d=\"M%g %.2fH%g\"/>", LEFT, y, RIGHT);
        fprintf(out, "<text x=\"%g\" y=\"%.2f\" text-anchor=\"end\">%.*f</text>\n", LEFT - 8, y + 4, decimals(&plot->y),
                v);
    }
    fprintf(out, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">memory budget in %s; peak without: %.4g</text>\n",
            (LEFT + RIGHT) / 2, BOTTOM + 40, plot->unit_name,
            (double)plot->subject->baseline.counters.max_used_bytes / plot->unit);
    fprintf(out,
            "<text transform=\"translate(20 %g) rotate(-90)\" text-anchor=\"middle\">time with recomputation / "
            "without</text>\n",
            (TOP + BOTTOM) / 2);
    fprintf(out,
            "<rect class=\"oom\" x=\"%g\" y=\"16\" width=\"12\" height=\"12\"/><text x=\"%g\" y=\"26\">out of "
            "memory</text>\n"
            "<rect class=\"thrash\" x=\"%g\" y=\"16\" width=\"12\" height=\"12\"/><text x=\"%g\" y=\"26\">over the "
            "recomputation limit</text>\n",
            RIGHT - 314, RIGHT - 298, RIGHT - 190, RIGHT - 174);
}

/* Left of it nothing can work, whatever is evicted. */
static void write_bound(const struct plot *plot)
{
    double x = dtr_plot_place(&plot->x, (double)plot->subject->description.bound_bytes / plot->unit);
    if (x >= LEFT && x <= RIGHT) {
        fprintf(plot->out, "<path class=\"bound\" d=\"M%.2f %gV%g\"/><text x=\"%.2f\" y=\"%g\">lower bound</text>\n", x,
                TOP, BOTTOM, x + 6, BOTTOM - 8);
    }
}

static void write_curve(const struct plot *plot)
{
    for (size_t i = 0; i < plot->sweep->band_count; i++) {
        const struct dtr_band *band = &plot->sweep->bands[i];
        if (band->status != DTR_OK) {
            continue;
        }
        fputs("<path class=\"curve\" d=\"", plot->out);
        for (size_t j = band->first; j < band->end; j++) {
            const struct dtr_point *point = &plot->sweep->points[j];
            double x = dtr_plot_place(&plot->x, (double)point->budget / plot->unit);
            double y = dtr_plot_place(&plot->y, dtr_plot_overhead(plot, point->counters.clock));
            fprintf(plot->out, "%c%.2f %.2f", j == band->first ? 'M' : 'L', x, y);
            if (band->end - band->first == 1) {
                fprintf(plot->out, "\"/><circle class=\"dot\" cx=\"%.2f\" cy=\"%.2f\" r=\"2", x, y);
            }
        }
        fputs("\"/>\n", plot->out);
    }
}

static void write_svg(FILE *out, const struct dtr_subject *subject, const struct dtr_sweep *sweep)
{
    struct plot plot = {.out = out, .subject = subject, .sweep = sweep};
    set_axes(&plot);
    dtr_plot_write_head(&plot);
    dtr_plot_write_bands(&plot);
    write_axes(&plot);
    write_bound(&plot);
    write_curve(&plot);
    fputs("</svg>\n", out);
}

/* ---- files ---- */

static bool dtr_plot_ends_with(const char *path, const char *end)
{
    size_t length = strlen(path);
    return length > strlen(end) && strcmp(path + length - strlen(end), end) == 0;
}

/* Run it, with nothing to read, and nobody to tell. False: it could not be run, or failed. */
static bool run_program(char *const *argv)
{
    int status = -1;
    pid_t pid;
    int reason = program_spawn(argv, environ, (const int[]){-1, -1, -1}, false, &pid);
    while (reason == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    return reason == 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int dtr_plot_check(const char *path, struct varve_message *message)
{
    char program[] = PROGRAM, version[] = "--version";
    char *const argv[] = {program, version, NULL};
    if (!dtr_plot_ends_with(path, ".svg") && !dtr_plot_ends_with(path, ".png")) {
        return varve_message_set(message, VARVE_ERROR_INVALID, "--plot: '%s' must end in .svg or .png", path);
    }
    if (dtr_plot_ends_with(path, ".png") && !run_program(argv)) {
        return varve_message_set(message, VARVE_ERROR_NOT_FOUND,
                                 "--plot: %s, which makes .png files, is not there: install librsvg2-bin, or "
                                 "write an .svg",
                                 PROGRAM);
    }
    return VARVE_OK;
}

static int convert(char *svg, char *png, struct varve_message *message)
{
    char program[] = PROGRAM, zoom[] = "--zoom=2", output[] = "-o";
    char *const argv[] = {program, zoom, output, png, svg, NULL};
    return run_program(argv) ? VARVE_OK
                             : varve_message_set(message, VARVE_ERROR_IO, "%s failed on the drawing", PROGRAM);
}

int dtr_plot_write(const char *path, bool may_replace, const struct dtr_subject *subject, const struct dtr_sweep *sweep,
                   struct varve_message *message)
{
    char folder[4096];
    int error = varve_publish_folder_make(path, may_replace, folder, sizeof(folder), message);
    if (error != VARVE_OK) {
        return error;
    }
    char svg[4096 + 16];
    snprintf(svg, sizeof(svg), "%s/plot.svg", folder);
    char png[4096 + 16];
    snprintf(png, sizeof(png), "%s/plot.png", folder);
    FILE *out = fopen(svg, "wxe");
    bool is_whole = false;
    if (out != NULL) {
        write_svg(out, subject, sweep);
        is_whole = !ferror(out);
        is_whole = fclose(out) == 0 && is_whole;
    }
    if (!is_whole) {
        error = varve_message_set(message, VARVE_ERROR_IO, "%s: cannot be written: %s", path, strerror(errno));
    }
    if (error == VARVE_OK && dtr_plot_ends_with(path, ".png")) {
        error = convert(svg, png, message);
    }
    VARVE_THEN(error, varve_publish_move(dtr_plot_ends_with(path, ".png") ? png : svg, path, may_replace, message));
    varve_publish_folder_remove(folder);
    return error;
}
