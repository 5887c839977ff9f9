/* SPDX-License-Identifier: Apache-2.0 */
/* Compares the masks of answers that it draws with an oracle, which is the
 * program at the other end of standard input and output
 * (tests/unit/inference/matcher/test_matcher_masks.py). A line in is a
 * vocabulary or a case:
 *
 *     {"vocab": ["61", "6162", …, ""], "end_ids": [8]}
 *     {"kind": "ebnf", "source": "…", "compact": false, "answers": 3,
 *      "tokens": 20, "seed": 1, "within": true, "bytes": 2097152,
 *      "begin": [5, 6]}
 *
 * Tokens are in hexadecimal; those without bytes are special. The oracle is an
 * automaton of which rows are asked for as they are needed; state 0 is dead:
 *
 *     out  start
 *     in   1
 *     out  row 17
 *     in   ACCEPTS MIN_BYTES  N lo hi to …  N token to …
 *     out  union 3 4         state behind a token by its bytes and by its id
 *     in   19
 *
 * At the end of a case comes one line of totals_t as JSON, or {"refused": "…"}.
 * Answers begin with the tokens of `begin`, as far as these may come next. With
 * `within`, masks of answers that end within some tokens are compared too. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json_doc.h"
#include "common/grammar/compile.h"
#include "inference/matcher/matcher.h"
#include "tests/support/draw.h"

#define MAX_LINE   ((size_t)32 << 20)
#define MAX_TOKENS 256u
#define NOT_NEAR   UINT32_MAX
#define MUST(x)    BT_ASSERT_ALWAYS(x)

typedef struct vocab {
    uint32_t n;
    uint32_t *first; /* n + 1: where the bytes of a token begin */
    uint8_t *bytes;
    uint32_t n_end_ids;
    uint32_t end_ids[16];
    bool *ends;
    bool has_all_bytes; /* a token for each */
} vocab_t;

typedef struct take {
    uint32_t id, to;
} take_t;

/* State of the oracle. */
typedef struct row {
    bool accepts;
    bool compared; /* a mask of it was */
    uint32_t min_bytes;
    uint32_t next[256];
    uint32_t n_takes;
    take_t *takes;
} row_t;

typedef struct totals {
    uint64_t masks, tokens, allowed, states;
    uint64_t differ;   /* bits that are not as the oracle says */
    uint64_t failed;   /* masks over a limit */
    uint64_t within;   /* tokens of masks within some tokens */
    uint64_t left_out; /* by bounds of tokens */
    uint64_t strict;   /* of these, which could have ended in time */
    uint64_t stuck;    /* masks without a token that were promised one */
    uint64_t farther;  /* states that the matcher takes as farther from the end
                          than they are */
} totals_t;

typedef struct run {
    vocab_t *vocab;
    char *line;
    bt_matcher_t *m;
    bool within;
    uint32_t begin[MAX_TOKENS];
    uint32_t n_begin;
    uint32_t start; /* state of the oracle */
    row_t **rows;
    uint32_t cap_rows;
    uint32_t *dist; /* by token: bytes to the end behind it; NOT_NEAR: not
                       allowed */
    uint64_t rng;
    totals_t totals;
    char first[4096]; /* difference, as JSON */
} run_t;

/*
 * The oracle
 */

static void read_line(run_t *r)
{
    (void)fflush(stdout);
    MUST(fgets(r->line, (int)MAX_LINE, stdin) != NULL);
}

static uint32_t number(char **at_p)
{
    return (uint32_t)strtoul(*at_p, at_p, 10);
}

static row_t *read_row(run_t *r, uint32_t state)
{
    row_t *row = bt_calloc(1, sizeof(*row));
    char *at;

    MUST(row != NULL);
    printf("row %" PRIu32 "\n", state);
    read_line(r);
    at = r->line;
    row->accepts = number(&at) != 0;
    row->min_bytes = number(&at);
    for (uint32_t n = number(&at); n > 0; n--) {
        const uint32_t lo = number(&at);
        const uint32_t hi = number(&at);
        const uint32_t to = number(&at);

        MUST((lo <= hi) && (hi < 256));
        for (uint32_t b = lo; b <= hi; b++) {
            row->next[b] = to;
        }
    }
    row->n_takes = number(&at);
    row->takes = bt_calloc((size_t)row->n_takes + 1, sizeof(take_t));
    MUST(row->takes != NULL);
    for (uint32_t i = 0; i < row->n_takes; i++) {
        row->takes[i].id = number(&at);
        row->takes[i].to = number(&at);
    }
    return row;
}

static row_t *row_of(run_t *r, uint32_t state)
{
    if (state >= r->cap_rows) {
        const uint32_t cap = (state + 1) * 2;

        r->rows = bt_realloc_array(r->rows, cap, sizeof(r->rows[0]));
        MUST(r->rows != NULL);
        memset(&r->rows[r->cap_rows], 0,
               (cap - r->cap_rows) * sizeof(r->rows[0]));
        r->cap_rows = cap;
    }
    if (r->rows[state] == NULL) {
        r->rows[state] = read_row(r, state);
    }
    return r->rows[state];
}

/* Returns the states behind a token, by its bytes and by its id; 0: dead. */
static void behind(run_t *r, uint32_t state, uint32_t id, uint32_t to[2])
{
    const vocab_t *v = r->vocab;
    const row_t *row = row_of(r, state);

    to[0] = (v->first[id] < v->first[id + 1]) ? state : 0;
    to[1] = 0;
    for (uint32_t i = 0; i < row->n_takes; i++) {
        to[1] = (row->takes[i].id == id) ? row->takes[i].to : to[1];
    }
    for (uint32_t i = v->first[id]; (i < v->first[id + 1]) && (to[0] != 0);
         i++) {
        to[0] = row_of(r, to[0])->next[v->bytes[i]];
    }
}

static uint32_t after(run_t *r, uint32_t state, uint32_t id)
{
    uint32_t to[2];

    behind(r, state, id, to);
    if ((to[0] == 0) || (to[1] == 0)) {
        return to[0] + to[1];
    }
    printf("union %" PRIu32 " %" PRIu32 "\n", to[0], to[1]);
    read_line(r);
    return (uint32_t)strtoul(r->line, NULL, 10);
}

/* Finds which tokens may come next, and how far from the end they lead. */
static void find_allowed(run_t *r, uint32_t state)
{
    const vocab_t *v = r->vocab;

    for (uint32_t id = 0; id < v->n; id++) {
        uint32_t to[2];

        if (v->ends[id]) {
            r->dist[id] = row_of(r, state)->accepts ? 0 : NOT_NEAR;
            continue;
        }
        behind(r, state, id, to);
        r->dist[id] = NOT_NEAR;
        for (uint32_t i = 0; i < 2; i++) {
            if ((to[i] != 0) && (row_of(r, to[i])->min_bytes < r->dist[id])) {
                r->dist[id] = row_of(r, to[i])->min_bytes;
            }
        }
    }
}

/*
 * Comparisons
 */

static bool has(const uint64_t *mask, uint32_t id)
{
    return (mask != NULL) && ((mask[id / 64] >> (id % 64) & 1) != 0);
}

static void note(run_t *r, const char *what, const uint32_t *tokens, uint32_t n,
                 uint32_t id, bool in_mask)
{
    size_t at;

    r->totals.differ++;
    if (r->first[0] != '\0') {
        return;
    }
    at = (size_t)snprintf(r->first, sizeof(r->first),
                          "{\"what\": \"%s\", \"token\": %" PRIu32
                          ", \"in_mask\": %s, \"tokens\": [",
                          what, id, in_mask ? "true" : "false");
    for (uint32_t i = 0; i < n; i++) {
        at += (size_t)snprintf(&r->first[at], sizeof(r->first) - at,
                               "%s%" PRIu32, (i == 0) ? "" : ", ", tokens[i]);
    }
    (void)snprintf(&r->first[at], sizeof(r->first) - at, "]}");
}

/* Compares a mask of all tokens. */
static void compare_mask(run_t *r, const uint64_t *mask, uint32_t n_mask,
                         const uint32_t *tokens, uint32_t n)
{
    uint32_t n_allowed = 0;
    uint32_t n_bits = 0;

    for (uint32_t id = 0; id < r->vocab->n; id++) {
        const bool want = r->dist[id] != NOT_NEAR;

        n_allowed += want ? 1 : 0;
        n_bits += has(mask, id) ? 1 : 0;
        if (has(mask, id) != want) {
            note(r, "mask", tokens, n, id, has(mask, id));
        }
    }
    if ((mask != NULL) && (n_bits != n_mask)) {
        note(r, "number of tokens", tokens, n, n_mask, true);
    }
    r->totals.tokens += r->vocab->n;
    r->totals.allowed += n_allowed;
}

/* Compares a mask of tokens behind which the answer can end in time. */
static void compare_within(run_t *r, bt_matcher_cursor_t *cursor,
                           uint32_t state, const uint32_t *tokens, uint32_t n)
{
    const uint32_t bytes = bt_matcher_min_bytes(r->m, cursor->state);
    const uint32_t least = row_of(r, state)->min_bytes;
    const uint32_t n_left =
        (uint32_t)draw_below(&r->rng, 12) + ((least > 3) ? least - 3 : 0);
    uint32_t n_mask = 0;
    const uint64_t *mask =
        bt_matcher_mask_within(r->m, cursor, n_left, &n_mask);
    uint32_t n_bits = 0;

    if ((bytes < least) || ((bytes == 0) != row_of(r, state)->accepts)) {
        note(r, "least bytes", tokens, n, bytes, true);
    }
    r->totals.farther += (bytes > least) ? 1 : 0;
    for (uint32_t id = 0; id < r->vocab->n; id++) {
        const bool allowed = r->dist[id] != NOT_NEAR;
        const bool want =
            allowed && (r->vocab->ends[id] || (r->dist[id] <= n_left));

        n_bits += has(mask, id) ? 1 : 0;
        if (has(mask, id) && !want) {
            note(r, "mask within", tokens, n, id, true);
        }
        r->totals.left_out += (allowed && !has(mask, id)) ? 1 : 0;
        r->totals.strict += (want && !has(mask, id)) ? 1 : 0;
    }
    if ((mask != NULL) && (n_bits != n_mask)) {
        note(r, "number of tokens within", tokens, n, n_mask, true);
    }
    r->totals.within += r->vocab->n;
    r->totals.stuck += (r->vocab->has_all_bytes && (mask == NULL) &&
                        (bytes > 0) && (bytes <= n_left + 1))
                           ? 1
                           : 0;
}

/* Draws a token that may come next, half of the time one that leads nearer to
 * the end; n: none. */
static uint32_t draw_token(run_t *r, uint32_t least)
{
    const uint32_t n = r->vocab->n;
    const uint32_t first = (uint32_t)draw_below(&r->rng, n);
    const bool near = draw_below(&r->rng, 2) == 0;
    uint32_t any = n;

    for (uint32_t i = 0; i < n; i++) {
        const uint32_t id = (first + i) % n;

        if ((r->dist[id] == NOT_NEAR) ||
            (r->vocab->ends[id] && (any != n || draw_below(&r->rng, 3) != 0))) {
            continue;
        }
        if (!near || (r->dist[id] < least) || r->vocab->ends[id]) {
            return id;
        }
        any = (any == n) ? id : any;
    }
    return any;
}

static void compare_answer(run_t *r, uint32_t n_tokens)
{
    bt_matcher_cursor_t cursor = bt_matcher_begin(r->m);
    uint32_t tokens[MAX_TOKENS];
    uint32_t state = r->start;

    for (uint32_t n = 0; (n < n_tokens) && (n < MAX_TOKENS); n++) {
        const uint64_t *mask = NULL;
        uint32_t n_mask = 0;
        const bool moved = bt_matcher_move(r->m, &cursor, tokens, n);

        if (moved) {
            if (bt_matcher_accepts(r->m, cursor.state) !=
                row_of(r, state)->accepts) {
                note(r, "accepts", tokens, n, 0, true);
            }
            mask = bt_matcher_mask(r->m, &cursor, &n_mask);
        }
        r->totals.masks++;
        if (cursor.state == BT_MATCHER_FAILED) {
            r->totals.failed++;
            return;
        }
        r->totals.states += row_of(r, state)->compared ? 0 : 1;
        row_of(r, state)->compared = true;
        find_allowed(r, state);
        compare_mask(r, mask, n_mask, tokens, n);
        if (r->within && moved) {
            compare_within(r, &cursor, state, tokens, n);
        }
        tokens[n] = (n < r->n_begin)
                        ? r->begin[n]
                        : draw_token(r, row_of(r, state)->min_bytes);
        if ((n < r->n_begin) && (r->dist[tokens[n]] == NOT_NEAR)) {
            return;
        }
        if ((tokens[n] == r->vocab->n) || r->vocab->ends[tokens[n]]) {
            return;
        }
        state = after(r, state, tokens[n]);
    }
}

/*
 * Input
 */

static uint8_t digit(char c)
{
    return (uint8_t)((c <= '9') ? c - '0' : c - 'a' + 10);
}

static void free_vocab(vocab_t *v)
{
    bt_free(v->first);
    bt_free(v->bytes);
    bt_free(v->ends);
    *v = (vocab_t){0};
}

static void find_bytes(vocab_t *v)
{
    bool has[256] = {false};

    for (uint32_t id = 0; id < v->n; id++) {
        if (!v->ends[id] && (v->first[id] + 1 == v->first[id + 1])) {
            has[v->bytes[v->first[id]]] = true;
        }
    }
    v->has_all_bytes = memchr(has, false, sizeof(has)) == NULL;
}

static void read_vocab(vocab_t *v, const bt_json_doc_t *doc, size_t line_bytes)
{
    const bt_json_node_t *root = bt_json_doc_root(doc);
    const bt_json_node_t *list = bt_json_get(doc, root, "vocab");
    const bt_json_node_t *ids = bt_json_get(doc, root, "end_ids");
    const bt_json_node_t *node = bt_json_first(list);
    uint32_t at = 0;

    free_vocab(v);
    v->n = bt_json_size(list, BT_JSON_ARRAY);
    v->first = bt_calloc((size_t)v->n + 1, sizeof(uint32_t));
    v->bytes = bt_calloc(line_bytes, 1);
    v->ends = bt_calloc((size_t)v->n + 1, sizeof(bool));
    MUST((v->n > 0) && (v->first != NULL) && (v->bytes != NULL) &&
         (v->ends != NULL));
    for (uint32_t i = 0; i < v->n; i++) {
        for (size_t k = 0; k + 1 < node->len; k += 2) {
            v->bytes[at++] =
                (uint8_t)(digit(node->text[k]) << 4 | digit(node->text[k + 1]));
        }
        v->first[i + 1] = at;
        node = bt_json_next(doc, node);
    }
    v->n_end_ids = bt_json_size(ids, BT_JSON_ARRAY);
    MUST(v->n_end_ids <= BT_ARRAY_LEN(v->end_ids));
    node = bt_json_first(ids);
    for (uint32_t i = 0; i < v->n_end_ids; i++) {
        uint64_t id = 0;

        MUST(bt_json_as_u64(node, &id) && (id < v->n));
        v->end_ids[i] = (uint32_t)id;
        v->ends[id] = true;
        node = bt_json_next(doc, node);
    }
    find_bytes(v);
}

static const uint8_t *bytes_of(void *ctx, uint32_t id, size_t *n_p)
{
    const vocab_t *v = ctx;

    *n_p = v->first[id + 1] - v->first[id];
    return &v->bytes[v->first[id]];
}

static uint64_t member(const bt_json_doc_t *doc, const char *name,
                       uint64_t value)
{
    (void)bt_json_as_u64(bt_json_get(doc, bt_json_doc_root(doc), name), &value);
    return value;
}

static void read_begin(run_t *r, const bt_json_doc_t *doc)
{
    const bt_json_node_t *list =
        bt_json_get(doc, bt_json_doc_root(doc), "begin");
    const uint32_t n = bt_json_size(list, BT_JSON_ARRAY);
    const bt_json_node_t *node = (n > 0) ? bt_json_first(list) : NULL;

    MUST(n <= MAX_TOKENS);
    for (r->n_begin = 0; r->n_begin < n; r->n_begin++) {
        uint64_t id = 0;

        MUST(bt_json_as_u64(node, &id) && (id < r->vocab->n));
        r->begin[r->n_begin] = (uint32_t)id;
        node = bt_json_next(doc, node);
    }
}

static bool is_set(const bt_json_doc_t *doc, const char *name)
{
    return bt_json_is_kind(bt_json_get(doc, bt_json_doc_root(doc), name),
                           BT_JSON_TRUE);
}

static bt_grammar_kind_t kind_of(const bt_json_node_t *node)
{
    return bt_json_is(node, "regex")    ? BT_GRAMMAR_REGEX
           : bt_json_is(node, "choice") ? BT_GRAMMAR_CHOICE
           : bt_json_is(node, "ebnf")   ? BT_GRAMMAR_EBNF
                                        : BT_GRAMMAR_JSON_SCHEMA;
}

/*
 * Cases
 */

static void print_refused(char *why)
{
    for (char *c = why; *c != '\0'; c++) {
        *c = ((*c == '"') || (*c == '\\') || ((uint8_t)*c < ' ')) ? ' ' : *c;
    }
    printf("{\"refused\": \"%s\"}\n", why);
}

static void print_totals(const run_t *r)
{
    const totals_t *t = &r->totals;

    printf("{\"masks\": %" PRIu64 ", \"tokens\": %" PRIu64
           ", \"allowed\": %" PRIu64 ", \"states\": %" PRIu64
           ", \"differ\": %" PRIu64 ", \"failed\": %" PRIu64
           ", \"within\": %" PRIu64 ", \"left_out\": %" PRIu64
           ", \"strict\": %" PRIu64 ", \"stuck\": %" PRIu64
           ", \"farther\": %" PRIu64 ", \"resets\": %" PRIu64
           ", \"first\": %s}\n",
           t->masks, t->tokens, t->allowed, t->states, t->differ, t->failed,
           t->within, t->left_out, t->strict, t->stuck, t->farther,
           bt_matcher_stats(r->m)->resets,
           (r->first[0] != '\0') ? r->first : "null");
}

static void compare(run_t *r, uint64_t n_answers, uint32_t n_tokens)
{
    printf("start\n");
    read_line(r);
    r->start = (uint32_t)strtoul(r->line, NULL, 10);
    for (uint64_t i = 0; i < n_answers; i++) {
        compare_answer(r, n_tokens);
    }
    print_totals(r);
    for (uint32_t i = 0; i < r->cap_rows; i++) {
        if (r->rows[i] != NULL) {
            bt_free(r->rows[i]->takes);
        }
        bt_free(r->rows[i]);
    }
    bt_free(r->rows);
}

static void run_case(const bt_json_doc_t *doc, vocab_t *vocab, char *line)
{
    const bt_json_node_t *root = bt_json_doc_root(doc);
    const bt_json_node_t *source = bt_json_get(doc, root, "source");
    const bt_grammar_source_t what = {
        .kind = kind_of(bt_json_get(doc, root, "kind")),
        .compact = is_set(doc, "compact"),
        .text = source->text,
        .bytes = source->len};
    bt_matcher_config_t config = {.max_bytes = member(doc, "bytes", 2u << 20)};
    run_t r = {.vocab = vocab,
               .line = line,
               .within = is_set(doc, "within"),
               .rng = member(doc, "seed", 1)};
    char why[512] = "";
    const char *why_load = "";
    uint8_t *program = NULL;
    size_t bytes = 0;
    bt_grammar_t *grammar = NULL;
    bt_token_trie_t *trie = NULL;

    if (bt_grammar_compile(&what, &program, &bytes, why, sizeof(why)) !=
        BT_OK) {
        print_refused(why);
        return;
    }
    MUST(bt_grammar_load(program, bytes, &why_load, &grammar) == BT_OK);
    MUST(bt_token_trie_create(vocab->n, bytes_of, vocab, vocab->end_ids,
                              vocab->n_end_ids, &trie) == BT_OK);
    config.grammar = grammar;
    config.trie = trie;
    MUST(bt_matcher_create(&config, &r.m) == BT_OK);
    MUST(!r.within || (bt_matcher_know_distances(r.m) == BT_OK));
    read_begin(&r, doc);
    r.dist = bt_calloc(vocab->n, sizeof(uint32_t));
    MUST(r.dist != NULL);
    compare(&r, member(doc, "answers", 1), (uint32_t)member(doc, "tokens", 10));
    bt_free(r.dist);
    bt_matcher_destroy(r.m);
    bt_token_trie_destroy(trie);
    bt_grammar_free(grammar);
    bt_free(program);
}

int main(void)
{
    vocab_t vocab = {0};
    char *line = bt_calloc(1, MAX_LINE);

    MUST(line != NULL);
    while (fgets(line, (int)MAX_LINE, stdin) != NULL) {
        char why[256];
        bt_json_doc_t *doc;

        MUST(bt_json_doc_parse(line, strlen(line), why, sizeof(why), &doc) ==
             BT_OK);
        if (bt_json_get(doc, bt_json_doc_root(doc), "vocab") != NULL) {
            read_vocab(&vocab, doc, strlen(line));
        } else {
            run_case(doc, &vocab, line);
        }
        (void)fflush(stdout);
        bt_json_doc_free(doc);
    }
    free_vocab(&vocab);
    bt_free(line);
    return 0;
}
