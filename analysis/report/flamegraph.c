/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names come from recorded programs: no control character, no character that XML can't hold and no ';' of theirs gets
 * into the output, and long ones are cut. Coordinates are CSS pixels, y downwards: callers lie above what they call.
 */
#include "analysis/report/flamegraph.h"

#include "analysis/base/memory_or_exit.h"
#include "analysis/base/number_format.h"
#include "analysis/query/database.h"
#include "analysis/report/call_tree.h"
#include "analysis/report/frame_name.h"
#include "analysis/report/tree_print.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 1200
#define MARGIN 10
#define TOP 62
#define ROW 17
#define LETTER 7.2 /* width of one */

/* ---- folded stacks ---- */

static char *folded_name(const struct call_tree_frame *frame)
{
    char name[FRAME_NAME_BYTES];
    frame_name(name, frame);
    char location[FRAME_NAME_BYTES];
    frame_location(location, frame);
    char text[sizeof(name) + sizeof(location) + 8];
    snprintf(text, sizeof(text), location[0] != '\0' ? "%s (%s)" : "%s", name, location);
    for (char *at = text; *at != '\0'; at++) {
        *at = *at == ';' ? ':' : *at;
    }
    return memory_copy_text(text);
}

static void flamegraph_print_folded(FILE *out, const struct call_tree *tree, char *const *names, size_t number,
                                    bool is_left_out, int64_t figure)
{
    if (figure == 0) {
        return;
    }
    uint32_t path[CALL_TREE_FRAMES_MAX];
    size_t count = 0;
    for (size_t i = number; i != 0; i = tree->nodes[i].parent) {
        path[count++] = tree->nodes[i].frame;
    }
    while (count > 0) {
        fputs(names[path[--count]], out);
        fputs(count > 0 || is_left_out ? ";" : "", out);
    }
    fprintf(out, "%s %" PRId64 "\n", is_left_out ? "(smaller)" : "", figure);
}

void flamegraph_folded(FILE *out, const struct call_tree *tree)
{
    enum call_tree_figure figure = tree->options.figure;
    char **names = memory_resize(NULL, (tree->frame_count + 1) * sizeof(*names));
    for (size_t i = 0; i < tree->frame_count; i++) {
        names[i] = folded_name(&tree->frames[i]);
    }
    for (size_t i = 0; i < tree->count; i++) {
        flamegraph_print_folded(out, tree, names, i, false, tree->nodes[i].own[figure]);
        flamegraph_print_folded(out, tree, names, i, true, tree->nodes[i].left_out[figure]);
    }
    for (size_t i = 0; i < tree->frame_count; i++) {
        free(names[i]);
    }
    free(names);
}

/* ---- SVG ---- */

/* Python is blue and green, native code red and yellow, what is unresolved grey; one function has one colour. */
static void put_colour(char *text, size_t bytes, const struct call_tree_frame *frame)
{
    uint32_t hash = 2166136261U;
    for (const char *at = frame->function; at != NULL && *at != '\0'; at++) {
        hash = (hash ^ (unsigned char)*at) * 16777619U;
    }
    hash ^= hash >> 15;
    if (frame->function == NULL) {
        snprintf(text, bytes, "hsl(0,0%%,78%%)");
    } else {
        snprintf(text, bytes, "hsl(%u,%u%%,%u%%)", (frame->is_python ? 150U : 5U) + hash % 50,
                 frame->is_python ? 45U : 75U, 66 + hash / 64 % 10);
    }
}

static void flamegraph_write_figures(FILE *out, const struct call_tree *tree, const int64_t *figures)
{
    enum call_tree_figure figure = tree->options.figure;
    if (tree->options.metric != CALL_TREE_TEMPORARY) {
        fprintf(out, "%s, ", format_bytes_exact(figures[CALL_TREE_BYTES]).text);
    }
    fprintf(out, "%s allocation%s, %s", format_count(figures[CALL_TREE_ALLOCATIONS]).text,
            figures[CALL_TREE_ALLOCATIONS] == 1 ? "" : "s",
            format_share(figures[figure], tree->nodes[0].total[figure]).text);
}

static void write_box(FILE *out, const struct call_tree *tree, size_t number, double x, double width)
{
    const struct call_tree_node *node = &tree->nodes[number];
    struct call_tree_frame root = {.function = NULL};
    const struct call_tree_frame *frame = number > 0 ? &tree->frames[node->frame] : &root;
    size_t letters = width > LETTER ? (size_t)((width - 4) / LETTER) : 0;
    char name[FRAME_NAME_BYTES] = "all";
    char location[FRAME_NAME_BYTES] = "";
    unsigned y = TOP + node->depth * ROW;
    if (number > 0) {
        frame_name(name, frame);
        frame_location(location, frame);
    }
    char colour[48];
    put_colour(colour, sizeof(colour), frame);
    fputs("<g><title>", out);
    format_print_xml(out, name);
    if (location[0] != '\0') {
        fputs("  ", out);
        format_print_xml(out, location);
    }
    fputc('\n', out);
    flamegraph_write_figures(out, tree, node->total);
    fprintf(out, "</title><rect x=\"%.2f\" y=\"%u\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>", x, y,
            width > 0.5 ? width - 0.3 : width, ROW - 1, colour);
    fprintf(out, "<text x=\"%.2f\" y=\"%u\">", x + 2, y + 12);
    char words[2 * FRAME_NAME_BYTES + 2], label[2 * FRAME_NAME_BYTES + 2];
    if (letters >= 3) {
        const char *slash = strrchr(location, '/');
        snprintf(words, sizeof(words), location[0] != '\0' ? "%s  %s" : "%s", name,
                 slash != NULL ? slash + 1 : location);
        format_head(label, sizeof(label), words, letters);
        format_print_xml(out, label);
    }
    fputs("</text></g>\n", out);
}

static const char style[] = "<style>text{font:12px monospace;fill:#000;pointer-events:none;white-space:pre}"
                            ".head{font-size:15px}.note{fill:#555}g:hover rect{stroke:#000;stroke-width:.7}"
                            "rect.found{fill:#e0f}.button{pointer-events:auto;cursor:pointer}</style>\n";

/* A click shows a box and what is below it in full width; one on the topmost box shows all again. */
static const char script[] =
    "<script><![CDATA[\n"
    "(function () {\n"
    "  const svg = document.documentElement, left = 10, full = 1180, letter = 7.2;\n"
    "  const boxes = Array.from(svg.querySelectorAll('#boxes > g')).map(function (g) {\n"
    "    const r = g.querySelector('rect'), t = g.querySelector('title').textContent;\n"
    "    return {g: g, r: r, t: g.querySelector('text'), x: +r.getAttribute('x'), w: +r.getAttribute('width'),\n"
    "      y: +r.getAttribute('y'), title: t, name: t.split('\\n')[0].replace(/  .*\\//, '  ')};\n"
    "  });\n"
    "  function zoom(to) {\n"
    "    const scale = full / to.w;\n"
    "    boxes.forEach(function (b) {\n"
    "      let x = left + (b.x - to.x) * scale, w = b.w * scale;\n"
    "      const mid = b.x + b.w / 2, above = b.y < to.y && b.x <= to.x + .4 && b.x + b.w >= to.x + to.w - .4;\n"
    "      const inside = b.y >= to.y && mid >= to.x && mid <= to.x + to.w;\n"
    "      b.g.style.display = above || inside ? '' : 'none';\n"
    "      b.g.style.opacity = above ? .5 : 1;\n"
    "      if (above) { x = left; w = full; }\n"
    "      b.r.setAttribute('x', x); b.r.setAttribute('width', w); b.t.setAttribute('x', x + 2);\n"
    "      const n = Math.floor((w - 4) / letter);\n"
    "      b.t.textContent = n < 3 ? '' : b.name.length > n ? b.name.slice(0, n - 1) + '\\u2026' : b.name;\n"
    "    });\n"
    "  }\n"
    "  boxes.forEach(function (b) { b.g.style.cursor = 'pointer'; b.g.addEventListener('click', function () { zoom(b); "
    "}); });\n"
    "  const button = svg.querySelector('#search');\n"
    "  button.textContent = '[search]';\n"
    "  button.addEventListener('click', function () {\n"
    "    const words = (prompt('part of a function, file or module; empty: none') || '').toLowerCase();\n"
    "    let count = 0;\n"
    "    boxes.forEach(function (b) {\n"
    "      const found = words !== '' && b.title.split('\\n')[0].toLowerCase().includes(words);\n"
    "      b.r.classList.toggle('found', found);\n"
    "      count += found ? 1 : 0;\n"
    "    });\n"
    "    button.textContent = words === '' ? '[search]' : '[search] ' + count + ' found';\n"
    "  });\n"
    "})();\n"
    "]]></script>\n";

static void flamegraph_write_head(FILE *out, struct database *database, const struct call_tree *tree, unsigned depth)
{
    unsigned height = TOP + (depth + 1) * ROW + MARGIN;
    int64_t figures[CALL_TREE_FIGURES];
    size_t left_out = call_tree_left_out(tree, figures);
    fprintf(out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %u\" width=\"%d\" height=\"%u\">\n",
            WIDTH, height, WIDTH, height);
    fputs(style, out);
    fprintf(out, "<rect width=\"%d\" height=\"%u\" fill=\"#fff\"/>\n<text class=\"head\" x=\"%d\" y=\"20\">", WIDTH,
            height, MARGIN);
    call_tree_print_title(out, database, tree);
    fprintf(out, "</text>\n<text class=\"note\" x=\"%d\" y=\"38\">", MARGIN);
    char path[FRAME_NAME_BYTES];
    format_tail(path, sizeof(path), database_path(database), 80);
    format_print_xml(out, path);
    fputs(tree->options.is_inverted ? "; callers below the allocating line" : "; callees below their callers", out);
    if (left_out > 0) {
        fprintf(out, "; left out: %s smaller frame%s with ", format_count((int64_t)left_out).text,
                left_out == 1 ? "" : "s");
        flamegraph_write_figures(out, tree, figures);
    }
    fprintf(out, "</text>\n<text class=\"note button\" id=\"search\" x=\"%d\" y=\"54\"></text>\n", MARGIN);
}

void flamegraph_svg(FILE *out, struct database *database, const struct call_tree *tree)
{
    enum call_tree_figure figure = tree->options.figure;
    double whole = (double)tree->nodes[0].total[figure];
    double *next = memory_resize(NULL, tree->count * sizeof(*next)); /* where a node's next child begins */
    unsigned depth = 0;
    for (size_t i = 0; i < tree->count; i++) {
        depth = tree->nodes[i].depth > depth ? tree->nodes[i].depth : depth;
    }
    flamegraph_write_head(out, database, tree, depth);
    fputs("<g id=\"boxes\">\n", out);
    for (size_t i = 0; i < tree->count; i++) {
        const struct call_tree_node *node = &tree->nodes[i];
        double x = i > 0 ? next[node->parent] : MARGIN;
        double width = whole > 0 ? (double)node->total[figure] / whole * (WIDTH - 2 * MARGIN) : WIDTH - 2 * MARGIN;
        next[i] = x;
        if (i > 0) {
            next[node->parent] = x + width;
        }
        write_box(out, tree, i, x, width);
    }
    fputs("</g>\n", out);
    fputs(script, out);
    fputs("</svg>\n", out);
    free(next);
}
