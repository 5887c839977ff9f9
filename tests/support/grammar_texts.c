/* SPDX-License-Identifier: Apache-2.0 */
/* Says which texts a description of answers has, and writes texts of it at
 * random, for tests in Python. Standard input has any number of jobs:
 *
 *     KIND COMPACT LENIENT N_TEXTS N_WALKS SEED BYTES\n description
 *     BYTES\n text …                                   N_TEXTS of them
 *
 * where KIND is a number of compile.h, and each gets an answer:
 *
 *     ok PROGRAM_BYTES NANOSECONDS\n
 *     0101…\n                   which texts it has
 *     BYTES\n text …            N_WALKS of them; BYTES -1: it did not end
 *     refused STATUS BYTES\n why
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/grammar/bounds.h"
#include "common/grammar/compile.h"

#define MAX_BYTES  ((size_t)16 << 20)
#define MAX_SPOTS  20000u
#define WALK_BYTES 3000u
#define EAGER      150u /* bytes after which a walk hurries to its end */

/* Frame of a stack; below is the one that called its rule, which goes on in its
 * state. */
typedef struct frame {
    uint32_t state, count, depth;
    struct frame *below;
    struct frame *next; /* of the same hash */
} frame_t;

typedef struct sim {
    const bt_grammar_t *g;
    const bt_grammar_bounds_t *bounds;
    frame_t *table[1u << 14];
    bt_arena_t arena;
    frame_t **now; /* tops of all stacks */
    frame_t **then;
    uint32_t n_now, n_then;
    bool is_lost; /* more than MAX_SPOTS */
} sim_t;

static uint64_t rng;

static uint32_t below(uint32_t n)
{
    rng ^= rng << 13;
    rng ^= rng >> 7;
    rng ^= rng << 17;
    return (uint32_t)(rng >> 33) % n;
}

static frame_t *frame(sim_t *sim, uint32_t state, uint32_t count,
                      frame_t *parent)
{
    const uint64_t hash =
        ((uint64_t)(uintptr_t)parent ^ (state * 2654435761u)) + count * 97u;
    frame_t **const list = &sim->table[(hash * 0x9E3779B97F4A7C15u) >> 50];
    frame_t *f;

    for (f = *list; f != NULL; f = f->next) {
        if ((f->state == state) && (f->count == count) &&
            (f->below == parent)) {
            return f;
        }
    }
    f = bt_arena_alloc(&sim->arena, sizeof(*f));
    if (f == NULL) {
        fprintf(stderr, "out of memory\n");
        _Exit(1);
    }
    *f = (frame_t){.state = state,
                   .count = count,
                   .depth = (parent != NULL) ? parent->depth + 1 : 0,
                   .below = parent,
                   .next = *list};
    *list = f;
    return f;
}

/* Adds a stack, unless it is there or its rule cannot end. */
static void add(sim_t *sim, frame_t **list, uint32_t *n_p, frame_t *f)
{
    if ((f->depth > BT_GRAMMAR_MAX_DEPTH) ||
        !bt_grammar_can_end(sim->bounds, f->state, f->count,
                            BT_GRAMMAR_MAX_DEPTH - f->depth)) {
        return;
    }
    for (uint32_t i = 0; i < *n_p; i++) {
        if (list[i] == f) {
            return;
        }
    }
    if (*n_p == MAX_SPOTS) {
        sim->is_lost = true;
        return;
    }
    list[(*n_p)++] = f;
}

static bool may_end(const sim_t *sim, const frame_t *f)
{
    const bt_grammar_state_t *const s = &sim->g->states[f->state];
    const bt_grammar_rule_t *const rule = &sim->g->rules[s->rule];

    return s->accepts && (f->count >= rule->min) &&
           ((rule->max == BT_GRAMMAR_NO_LIMIT) || (f->count <= rule->max));
}

/* Adds the stack of a call; a tail call's frame is in place of its caller's. */
static void call(sim_t *sim, frame_t *f, const bt_grammar_edge_t *edge)
{
    frame_t *const back =
        frame(sim, edge->to, f->count + (edge->counts ? 1 : 0), f->below);
    const bool is_tail = bt_grammar_ends(sim->g, edge->to);

    if (is_tail ? may_end(sim, back)
                : bt_grammar_can_end(sim->bounds, back->state, back->count,
                                     BT_GRAMMAR_MAX_DEPTH - back->depth)) {
        add(sim, sim->now, &sim->n_now,
            frame(sim, sim->g->rules[edge->arg].start, 0,
                  is_tail ? f->below : back));
    }
}

/* Adds the stacks that calls and ends of rules lead to. */
static void close_now(sim_t *sim)
{
    for (uint32_t i = 0; i < sim->n_now; i++) {
        frame_t *const f = sim->now[i];
        const bt_grammar_state_t *const s = &sim->g->states[f->state];

        if (may_end(sim, f) && (f->below != NULL)) {
            add(sim, sim->now, &sim->n_now, f->below);
        }
        for (uint32_t e = s->n_byte_edges; e < s->n_edges; e++) {
            const bt_grammar_edge_t *const edge =
                &sim->g->edges[s->first_edge + e];

            if (edge->kind == BT_GRAMMAR_CALLS) {
                call(sim, f, edge);
            }
        }
    }
}

static void start(sim_t *sim)
{
    sim->n_now = 0;
    add(sim, sim->now, &sim->n_now,
        frame(sim, sim->g->rules[0].start, 0, NULL));
    close_now(sim);
}

static bool is_complete(const sim_t *sim)
{
    for (uint32_t i = 0; i < sim->n_now; i++) {
        if ((sim->now[i]->below == NULL) && may_end(sim, sim->now[i])) {
            return true;
        }
    }
    return false;
}

/* Reads a byte. @return false: it is not allowed */
static bool step(sim_t *sim, uint8_t byte)
{
    frame_t **swap = sim->now;

    sim->n_then = 0;
    for (uint32_t i = 0; i < sim->n_now; i++) {
        const frame_t *const f = sim->now[i];
        const bt_grammar_edge_t *const edge =
            bt_grammar_read(sim->g, f->state, byte);

        if (edge != NULL) {
            add(sim, sim->then, &sim->n_then,
                frame(sim, edge->to, f->count + (edge->counts ? 1 : 0),
                      f->below));
        }
    }
    sim->now = sim->then;
    sim->n_now = sim->n_then;
    sim->then = swap;
    close_now(sim);
    return sim->n_now > 0;
}

static bool has_text(sim_t *sim, const char *text, size_t n)
{
    start(sim);
    for (size_t i = 0; i < n; i++) {
        if (!step(sim, (uint8_t)text[i])) {
            return false;
        }
    }
    return is_complete(sim);
}

static bool allows(sim_t *sim, int byte)
{
    for (uint32_t i = 0; i < sim->n_now; i++) {
        const frame_t *const f = sim->now[i];
        const bt_grammar_edge_t *const edge =
            bt_grammar_read(sim->g, f->state, (uint8_t)byte);

        if ((edge != NULL) &&
            bt_grammar_can_end(sim->bounds, edge->to,
                               f->count + (edge->counts ? 1 : 0),
                               BT_GRAMMAR_MAX_DEPTH - f->depth)) {
            return true;
        }
    }
    return false;
}

/* Draws the next byte: often one that ends something, and always, if there is
 * one, when the text has become long. @return -1: none */
static int draw_byte(sim_t *sim, uint32_t n)
{
    static const char closing[] = "}]\",:";
    int allowed[256];
    uint32_t n_allowed = 0;

    for (const char *at = closing; *at != '\0'; at++) {
        if (allows(sim, *at) && ((n > EAGER) || (below(3) == 0))) {
            return *at;
        }
    }
    for (int byte = 0; byte < 256; byte++) {
        if (allows(sim, byte)) {
            allowed[n_allowed++] = byte;
        }
    }
    /* Few texts are of escapes and characters of several bytes. */
    if ((n_allowed > 8) && (below(4) != 0)) {
        for (uint32_t i = 0; i < 16; i++) {
            const int byte = allowed[below(n_allowed)];

            if ((byte >= '0') && (byte < 0x7F) && (byte != '\\')) {
                return byte;
            }
        }
    }
    return (n_allowed > 0) ? allowed[below(n_allowed)] : -1;
}

static void walk(sim_t *sim)
{
    char text[WALK_BYTES];
    uint32_t n = 0;

    start(sim);
    while (!sim->is_lost) {
        const int byte = (is_complete(sim) && ((n > EAGER) || (below(3) == 0)))
                             ? -1
                             : draw_byte(sim, n);

        if (byte < 0) {
            printf("%u\n", n);
            fwrite(text, 1, n, stdout);
            return;
        }
        if (n == sizeof(text)) {
            break;
        }
        text[n++] = (char)byte;
        (void)step(sim, (uint8_t)byte);
    }
    printf("-1\n");
}

static char *read_part(size_t bytes)
{
    char *part = (bytes <= MAX_BYTES) ? bt_calloc(bytes + 1, 1) : NULL;

    if ((part != NULL) && (fread(part, 1, bytes, stdin) != bytes)) {
        bt_free(part);
        return NULL;
    }
    return part;
}

static void answer(const bt_grammar_t *g, uint32_t n_texts, uint32_t n_walks,
                   char *const *texts, const size_t *bytes)
{
    static sim_t sim;
    bt_grammar_bounds_t *bounds = NULL;

    if (bt_grammar_bounds_create(g, &bounds) != BT_OK) {
        fprintf(stderr, "no bounds\n");
        _Exit(1);
    }
    memset(&sim, 0, sizeof(sim));
    sim.g = g;
    sim.bounds = bounds;
    sim.now = bt_calloc(MAX_SPOTS, sizeof(*sim.now));
    sim.then = bt_calloc(MAX_SPOTS, sizeof(*sim.then));
    for (uint32_t i = 0; i < n_texts; i++) {
        printf("%d", has_text(&sim, texts[i], bytes[i]) ? 1 : 0);
    }
    printf("\n");
    for (uint32_t i = 0; i < n_walks; i++) {
        walk(&sim);
    }
    bt_free(sim.now);
    bt_free(sim.then);
    bt_arena_fini(&sim.arena);
    bt_grammar_bounds_destroy(bounds);
}

/* Does one job. @return false: there is none */
static bool job(void)
{
    bt_grammar_source_t source = {0};
    unsigned kind, compact, lenient, n_texts, n_walks;
    size_t bytes;
    char why[BT_GRAMMAR_WHY_BYTES] = "";
    const char *fault;
    char **texts;
    size_t *lens;
    char *text;
    uint8_t *program;
    size_t program_bytes;
    uint64_t start_ns;
    bt_status_t status;

    if (scanf("%u %u %u %u %u %" SCNu64 " %zu", &kind, &compact, &lenient,
              &n_texts, &n_walks, &rng, &bytes) != 7) {
        return false;
    }
    (void)getchar();
    text = read_part(bytes);
    texts = bt_calloc(n_texts + 1u, sizeof(*texts));
    lens = bt_calloc(n_texts + 1u, sizeof(*lens));
    if ((text == NULL) || (texts == NULL) || (lens == NULL)) {
        return false;
    }
    for (uint32_t i = 0; i < n_texts; i++) {
        if (scanf("%zu", &lens[i]) != 1) {
            return false;
        }
        (void)getchar();
        texts[i] = read_part(lens[i]);
        if (texts[i] == NULL) {
            return false;
        }
    }
    rng = rng * 2 + 88172645463325253u;
    source = (bt_grammar_source_t){.kind = kind,
                                   .compact = compact != 0,
                                   .lenient = lenient != 0,
                                   .text = text,
                                   .bytes = bytes};
    start_ns = bt_now_ns();
    status =
        bt_grammar_compile(&source, &program, &program_bytes, why, sizeof(why));
    if (status != BT_OK) {
        printf("refused %d %zu\n%s", (int)status, strlen(why), why);
    } else {
        bt_grammar_t *g;

        printf("ok %zu %" PRIu64 "\n", program_bytes, bt_now_ns() - start_ns);
        if (bt_grammar_load(program, program_bytes, &fault, &g) != BT_OK) {
            fprintf(stderr, "not loaded: %s\n", fault);
            _Exit(1);
        }
        answer(g, n_texts, n_walks, texts, lens);
        bt_grammar_free(g);
        bt_free(program);
    }
    (void)fflush(stdout);
    for (uint32_t i = 0; i < n_texts; i++) {
        bt_free(texts[i]);
    }
    bt_free(texts);
    bt_free(lens);
    bt_free(text);
    return true;
}

int main(void)
{
    while (job()) {
    }
    return 0;
}
