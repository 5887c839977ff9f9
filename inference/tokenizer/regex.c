/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/regex.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/task.h"
#include "inference/tokenizer/tables.h"

#define MAX_CODE    8192u /* instructions of a program */
#define MAX_STATES  4096u
#define MAX_THREADS (1u << 20) /* of all states */
#define MAX_HASH    (2 * MAX_STATES)
#define MAX_CHECKS  64u /* possessive quantifiers */
#define MAX_WORK    (1u << 26)
#define END         UINT32_MAX

typedef enum code {
    C_CHAR,  /* a character of set a, then go on */
    C_CHECK, /* the node a looks ahead */
    C_SPLIT, /* try a, then b */
    C_JUMP,  /* to a */
    C_MATCH,
} code_t;

typedef struct instr {
    uint32_t code, a, b;
} instr_t;

/* One automaton in the making. A state is an ordered list of threads, each a
 * C_CHAR, C_CHECK or C_MATCH that it has come to. */
typedef struct builder {
    const bt_rx_t *rx;
    uint32_t n_classes;
    instr_t code[MAX_CODE];
    uint32_t n_code;
    struct {
        uint32_t set, behind;
    } possessive[MAX_CHECKS];
    uint32_t n_possessive;
    uint32_t seen[MAX_CODE]; /* the round that came here last */
    uint32_t round;
    uint32_t stack[2 * MAX_CODE];
    uint32_t list[MAX_CODE]; /* the state that is made */
    uint32_t n_list;
    bool full; /* it has a match: nothing behind counts */
    uint16_t threads[MAX_THREADS];
    uint32_t n_threads;
    uint32_t first[MAX_STATES + 1]; /* of each state in threads */
    uint32_t n_states;
    uint16_t hash[MAX_HASH];
    uint64_t work; /* threads followed, for all states */
    bt_status_t status;
} builder_t;

static void fail(builder_t *b, bt_status_t status, const char *what)
{
    if (b->status == BT_OK) {
        b->status = status;
        snprintf(b->rx->why, b->rx->why_bytes, "a pattern %s", what);
    }
}

/* ---- programs ---- */

static uint32_t emit(builder_t *b, code_t code, uint32_t x, uint32_t y)
{
    if (b->n_code == MAX_CODE) {
        fail(b, BT_ERR_TOO_LARGE, "repeats too much");
        return 0;
    }
    b->code[b->n_code] = (instr_t){code, x, y};
    return b->n_code++;
}

static void emit_node(builder_t *b, uint32_t index);

static void emit_repeat(builder_t *b, const bt_rx_node_t *n)
{
    uint32_t split = 0;

    for (uint32_t i = 0; (i < n->min) && (b->status == BT_OK); i++) {
        emit_node(b, n->a);
    }
    if (n->max == BT_RX_NONE) {
        split = emit(b, C_SPLIT, b->n_code + 1, 0);
        emit_node(b, n->a);
        emit(b, C_JUMP, split, 0);
        b->code[split].b = b->n_code;
        return;
    }
    for (uint32_t i = n->min; (i < n->max) && (b->status == BT_OK); i++) {
        split = emit(b, C_SPLIT, b->n_code + 1, 0);
        emit_node(b, n->a);
        b->code[split].b = b->n_code; /* the next one, which may be left out */
    }
}

static void emit_possessive(builder_t *b, const bt_rx_node_t *n)
{
    if ((b->rx->nodes[n->a].kind != BT_RX_SET) ||
        (b->n_possessive == MAX_CHECKS)) {
        fail(b, BT_ERR_UNSUPPORTED,
             "has a possessive quantifier of other than one character, which "
             "is not supported");
        return;
    }
    emit_repeat(b, n);
    b->possessive[b->n_possessive].set = b->rx->nodes[n->a].a;
    b->possessive[b->n_possessive++].behind = b->n_code;
}

static void emit_node(builder_t *b, uint32_t index)
{
    const bt_rx_node_t *n = &b->rx->nodes[index];
    uint32_t split;
    uint32_t jump;

    if (b->status != BT_OK) {
        return;
    }
    switch ((bt_rx_node_kind_t)n->kind) {
    case BT_RX_EMPTY:
        break;
    case BT_RX_SET:
        emit(b, C_CHAR, n->a, 0);
        break;
    case BT_RX_NEXT_IS:
    case BT_RX_NEXT_NOT:
    case BT_RX_LINE_END:
    case BT_RX_TEXT_END:
        emit(b, C_CHECK, index, 0);
        break;
    case BT_RX_CAT:
        emit_node(b, n->a);
        emit_node(b, n->b);
        break;
    case BT_RX_ALT:
        split = emit(b, C_SPLIT, b->n_code + 1, 0);
        emit_node(b, n->a);
        jump = emit(b, C_JUMP, 0, 0);
        b->code[split].b = b->n_code;
        emit_node(b, n->b);
        b->code[jump].a = b->n_code;
        break;
    case BT_RX_REPEAT:
        emit_repeat(b, n);
        break;
    case BT_RX_POSSESSIVE:
        emit_possessive(b, n);
        break;
    }
}

/* ---- states ---- */

static bool check(const builder_t *b, uint32_t index, uint32_t next)
{
    const bt_rx_node_t *n = &b->rx->nodes[index];
    const bool is = (next != END) && bt_rx_member(b->rx, next, n->a);

    switch (n->kind) {
    case BT_RX_NEXT_IS:
        return is;
    case BT_RX_NEXT_NOT:
        return !is;
    case BT_RX_LINE_END:
        return is || (next == END);
    default:
        return next == END;
    }
}

/* Append what pc comes to without a character, in the order of trying.
 * @param [in] next  The class of the next character, or UINT32_MAX - 1 as long
 *                   as it is not known: then what looks ahead stays. */
#define UNKNOWN (UINT32_MAX - 1)
static void follow(builder_t *b, uint32_t pc, uint32_t next)
{
    uint32_t n = 0;

    b->stack[n++] = pc;
    while ((n > 0) && !b->full) {
        const instr_t *in;

        pc = b->stack[--n];
        b->work++;
        if (b->seen[pc] == b->round) {
            continue;
        }
        b->seen[pc] = b->round;
        in = &b->code[pc];
        switch ((code_t)in->code) {
        case C_SPLIT:
            b->stack[n++] = in->b;
            b->stack[n++] = in->a;
            break;
        case C_JUMP:
            b->stack[n++] = in->a;
            break;
        case C_CHECK:
            if (next == UNKNOWN) {
                b->list[b->n_list++] = pc;
            } else if (check(b, in->a, next)) {
                b->stack[n++] = pc + 1;
            }
            break;
        case C_MATCH:
            b->full = true;
            b->list[b->n_list++] = pc;
            break;
        case C_CHAR:
            b->list[b->n_list++] = pc;
            break;
        }
    }
}

static void start_list(builder_t *b)
{
    b->n_list = 0;
    b->full = false;
    b->round++;
}

/* The state that is b->list, made if there is none. */
static uint32_t state_of_list(builder_t *b)
{
    uint32_t h = 2166136261u;

    for (uint32_t i = 0; i < b->n_list; i++) {
        h = (h ^ b->list[i]) * 16777619u;
    }
    for (h %= MAX_HASH; b->hash[h] != 0; h = (h + 1) % MAX_HASH) {
        const uint32_t s = b->hash[h] - 1u;
        const uint32_t n = b->first[s + 1] - b->first[s];
        uint32_t i = 0;

        while ((i < n) && (n == b->n_list) &&
               (b->threads[b->first[s] + i] == b->list[i])) {
            i++;
        }
        if ((n == b->n_list) && (i == n)) {
            return s;
        }
    }
    if ((b->n_states == MAX_STATES) || (b->work > MAX_WORK) ||
        (b->n_list > MAX_THREADS - b->n_threads)) {
        fail(b, BT_ERR_TOO_LARGE, "needs too many states");
        return 0;
    }
    for (uint32_t i = 0; i < b->n_list; i++) {
        b->threads[b->n_threads++] = (uint16_t)b->list[i];
    }
    b->hash[h] = (uint16_t)(b->n_states + 1);
    b->first[++b->n_states] = b->n_threads;
    return b->n_states - 1;
}

/* Where a state goes with a character of a class, or at the end. */
static uint16_t step(builder_t *b, uint32_t state, uint32_t next)
{
    uint32_t resolved[MAX_CODE];
    uint32_t n;
    bool matched;

    start_list(b);
    for (uint32_t i = b->first[state]; i < b->first[state + 1]; i++) {
        follow(b, b->threads[i], next);
    }
    matched = b->full;
    n = b->n_list - (matched ? 1 : 0);
    b->work += n;
    memcpy(resolved, b->list, n * sizeof(*resolved));
    if (next == END) {
        return matched ? BT_REGEX_MATCH : 0;
    }
    start_list(b);
    for (uint32_t i = 0; i < n; i++) {
        const instr_t *in = &b->code[resolved[i]];

        if (bt_rx_member(b->rx, next, in->a)) {
            follow(b, resolved[i] + 1, UNKNOWN);
        }
    }
    return (uint16_t)(state_of_list(b) | (matched ? BT_REGEX_MATCH : 0u));
}

/* A quantifier that never gives back is as one that would where what follows
 * cannot begin with what it took. */
static void check_possessive(builder_t *b)
{
    for (uint32_t i = 0; i < b->n_possessive; i++) {
        start_list(b);
        follow(b, b->possessive[i].behind, UNKNOWN);
        for (uint32_t k = 0; k < b->n_list; k++) {
            const instr_t *in = &b->code[b->list[k]];
            bool same = (in->code == C_CHECK);

            for (uint32_t c = 0; (in->code == C_CHAR) && (c < b->n_classes);
                 c++) {
                same = same || (bt_rx_member(b->rx, c, in->a) &&
                                bt_rx_member(b->rx, c, b->possessive[i].set));
            }
            if (same) {
                fail(b, BT_ERR_UNSUPPORTED,
                     "has a possessive quantifier before what it could take, "
                     "which is not supported");
            }
        }
    }
}

/* ---- looking ahead ---- */

static uint32_t target(const bt_regex_t *regex, uint32_t state, uint32_t column)
{
    return regex->next[state * regex->n_columns + column] & BT_REGEX_STATE_MASK;
}

/* Steps that found no match so far, from state to state, must not come back to
 * where they were, but for runs of one state: mark those. */
static void find_loops(builder_t *b, bt_regex_t *regex)
{
    const uint32_t n_states = regex->n_states;
    uint32_t n_in[MAX_STATES] = {0};
    uint32_t *todo = b->stack;
    uint32_t n_todo = 0;
    uint32_t n_done = 0;

    for (uint32_t i = 0; i < n_states * regex->n_columns; i++) {
        const uint32_t from = i / regex->n_columns;
        const uint32_t to = regex->next[i] & BT_REGEX_STATE_MASK;

        if ((regex->next[i] & BT_REGEX_MATCH) != 0) {
            continue;
        }
        n_in[to] += (to != from);
        if ((to == from) && (to != 0)) {
            regex->next[i] |= BT_REGEX_LOOP;
            if (regex->run_of[to] == BT_REGEX_MAX_RUNS) {
                regex->run_of[to] = (uint8_t)regex->n_runs++;
            }
            if (regex->n_runs > BT_REGEX_MAX_RUNS) {
                fail(b, BT_ERR_TOO_LARGE, "looks ahead in too many ways");
                return;
            }
        }
    }
    for (uint32_t s = 0; s < n_states; s++) {
        if (n_in[s] == 0) {
            todo[n_todo++] = s;
        }
    }
    while (n_todo > 0) {
        const uint32_t s = todo[--n_todo];

        n_done++;
        for (uint32_t c = 0; c < regex->n_columns; c++) {
            const uint32_t to = target(regex, s, c);

            if ((to != s) &&
                ((regex->next[s * regex->n_columns + c] & BT_REGEX_MATCH) ==
                 0) &&
                (--n_in[to] == 0)) {
                todo[n_todo++] = to;
            }
        }
    }
    if (n_done < n_states) {
        fail(b, BT_ERR_UNSUPPORTED,
             "could look ahead without end, which is not supported");
    }
}

static void find_empty_match(builder_t *b, const bt_regex_t *regex)
{
    for (uint32_t c = 0; c < regex->n_columns; c++) {
        if ((regex->next[regex->n_columns + c] & BT_REGEX_MATCH) != 0) {
            fail(b, BT_ERR_UNSUPPORTED,
                 "matches an empty text, which is not supported");
        }
    }
}

static void make_states(builder_t *b, bt_regex_t *regex)
{
    size_t cap = 0;

    b->round = 0;
    start_list(b);
    (void)state_of_list(b); /* 0: nothing matches any more */
    start_list(b);
    follow(b, 0, UNKNOWN);
    (void)state_of_list(b); /* 1: the start */
    for (uint32_t s = 0; (b->status == BT_OK) && (s < b->n_states); s++) {
        uint16_t *next = bt_array_reserve(regex->next, &cap, s + 1,
                                          regex->n_columns * sizeof(*next));

        if (next == NULL) {
            b->status = BT_ERR_NO_MEMORY;
            return;
        }
        regex->next = next;
        for (uint32_t c = 0; (b->status == BT_OK) && (c <= b->n_classes); c++) {
            regex->next[s * regex->n_columns + c] =
                step(b, s, (c == b->n_classes) ? END : c);
        }
    }
    regex->n_states = b->n_states;
}

static void build(builder_t *b, uint32_t root, bt_regex_t *regex)
{
    emit_node(b, root);
    emit(b, C_MATCH, 0, 0);
    if (b->status == BT_OK) {
        b->round = 1;
        check_possessive(b);
        memset(b->seen, 0, sizeof(b->seen));
    }
    if (b->status == BT_OK) {
        make_states(b, regex);
    }
    if (b->status != BT_OK) {
        return;
    }
    regex->run_of = bt_calloc(regex->n_states, 1);
    if (regex->run_of == NULL) {
        b->status = BT_ERR_NO_MEMORY;
        return;
    }
    memset(regex->run_of, BT_REGEX_MAX_RUNS, regex->n_states);
    find_empty_match(b, regex);
    find_loops(b, regex);
}

/* Builds the automaton of a tree. */
static bt_status_t build_automaton(const bt_rx_t *rx, uint32_t root,
                                   uint32_t n_classes, bt_regex_t *regex_p)
{
    builder_t *b = bt_calloc(1, sizeof(*b));
    bt_regex_t regex = {.n_columns = n_classes + 1};
    bt_status_t status;

    if (b == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    b->rx = rx;
    b->n_classes = n_classes;
    build(b, root, &regex);
    status = b->status;
    bt_free(b);
    if (status == BT_OK) {
        *regex_p = regex;
    } else {
        bt_regex_fini(&regex);
    }
    return status;
}

void bt_regex_fini(bt_regex_t *regex)
{
    bt_free(regex->next);
    bt_free(regex->run_of);
    memset(regex, 0, sizeof(*regex));
}

static bt_status_t compile_all(bt_rx_t *rx, const char *const *patterns,
                               size_t n, bt_alphabet_t *alphabet_p,
                               bt_regex_t *regexes_p)
{
    uint32_t roots[BT_REGEX_MAX_PATTERNS];
    bt_status_t status;

    for (size_t i = 0; i < n; i++) {
        status = bt_rx_parse(rx, patterns[i], &roots[i]);
        if (status != BT_OK) {
            return status;
        }
    }
    status = bt_rx_classify(rx, alphabet_p);
    if (status != BT_OK) {
        return status;
    }
    for (size_t i = 0; i < n; i++) {
        status = build_automaton(rx, roots[i], alphabet_p->n, &regexes_p[i]);
        if (status != BT_OK) {
            while (i > 0) {
                bt_regex_fini(&regexes_p[--i]);
            }
            bt_alphabet_fini(alphabet_p);
            return status;
        }
    }
    return BT_OK;
}

bt_status_t bt_regex_compile(const char *const *patterns, size_t n, char *why,
                             size_t why_bytes, bt_alphabet_t *alphabet_p,
                             bt_regex_t *regexes_p)
{
    bt_rx_t *rx;
    bt_status_t status;

    BT_ASSERT(n <= BT_REGEX_MAX_PATTERNS);
    rx = bt_calloc(1, sizeof(*rx));
    if (rx == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    rx->why = why;
    rx->why_bytes = why_bytes;
    status = compile_all(rx, patterns, n, alphabet_p, regexes_p);
    bt_free(rx);
    return status;
}

/* ---- matching ---- */

typedef struct cursor {
    const bt_alphabet_t *alphabet;
    const uint8_t *mapped;
    const uint8_t *text;
    size_t end;
} cursor_t;

/* The class of the character at at, and its bytes; at the end the last column
 * and 0. */
static inline uint32_t class_at(const cursor_t *c, size_t at, unsigned *len_p)
{
    uint32_t cp;

    if (at >= c->end) {
        *len_p = 0;
        return c->alphabet->n;
    }
    if (c->mapped != NULL) {
        *len_p = 1;
        return c->mapped[c->text[at]];
    }
    if (c->text[at] < 0x80) {
        *len_p = 1;
        return c->alphabet->ascii[c->text[at]];
    }
    *len_p = bt_utf8_decode(c->text + at, &cp);
    return bt_alphabet_class(c->alphabet, cp);
}

/* Remembers that the run of a looping state, from begin to end, led to no
 * match.
 */
static void remember(bt_regex_runs_t *runs, uint32_t i, size_t begin,
                     size_t end)
{
    if ((begin <= runs->runs[i].end) && (end >= runs->runs[i].begin)) {
        begin = (begin < runs->runs[i].begin) ? begin : runs->runs[i].begin;
        end = (end > runs->runs[i].end) ? end : runs->runs[i].end;
    }
    runs->runs[i].begin = begin;
    runs->runs[i].end = end;
}

size_t bt_regex_match(const bt_regex_t *regex, const bt_alphabet_t *alphabet,
                      const uint8_t *mapped, const uint8_t *text, size_t at,
                      size_t end, bt_regex_runs_t *runs)
{
    const cursor_t cursor = {alphabet, mapped, text, end};
    struct {
        size_t begin, end;
        uint8_t run;
    } open[BT_REGEX_MAX_RUNS]; /* since the last match */
    const size_t start = at;
    uint32_t n_open = 0;
    uint32_t state = 1;
    unsigned steps = 0;
    size_t best = at;

    for (;;) {
        unsigned len;
        const uint32_t column = class_at(&cursor, at, &len);
        const uint32_t step = regex->next[state * regex->n_columns + column];

        if ((step & BT_REGEX_MATCH) != 0) {
            best = at;
            n_open = 0;
        }
        if ((step & BT_REGEX_LOOP) != 0) {
            const uint8_t run = regex->run_of[state];

            if ((at >= runs->runs[run].begin) && (at < runs->runs[run].end)) {
                break; /* here before, and nothing came of it */
            }
            if ((n_open == 0) || (open[n_open - 1].run != run)) {
                open[n_open].begin = at;
                open[n_open++].run = run;
            }
            open[n_open - 1].end = at + len;
        }
        state = step & BT_REGEX_STATE_MASK;
        if (state == 0) {
            break;
        }
        at += len;
        (void)bt_task_poll_every(&steps); /* who asks gives up */
    }
    for (uint32_t i = 0; i < n_open; i++) {
        remember(runs, open[i].run, open[i].begin, open[i].end);
    }
    runs->n_steps += at - start + 1;
    return best;
}
