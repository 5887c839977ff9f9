/* SPDX-License-Identifier: Apache-2.0 */
/* Compiles grammars and makes masks of their answers, with one thread, for
 * bench/grammar.py.
 *
 *     grammar-run MODEL.gguf [MAX_BYTES]
 *
 * One case a line on standard input, as JSON:
 *
 *     {"kind": "json_schema", "source": "…", "compact": false,
 *      "answers": ["…"], "walks": 2, "max_tokens": 200, "seed": 1,
 *      "within": 100}
 *
 * Each answer is tokenized, and its tokens are looked up in their masks; a walk
 * draws tokens from its masks, each alike, until it draws the end. With
 * `within` answers and walks are to be whole within so many tokens, or as many
 * as are needed. The line of the result has times in ns, of this thread's CPU:
 * compile, load (program to matcher), the first mask, and for each answer and
 * walk those of its masks (with the move to the token before), the tokens of
 * each mask, its own tokens, and what came of it: "whole", a text whose end was
 * not allowed or drawn ("open"), the token that was not allowed ("refused N"),
 * or "failed". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/_half.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/json_doc.h"
#include "common/grammar/compile.h"
#include "inference/gguf/gguf.h"
#include "inference/matcher/matcher.h"
#include "inference/tokenizer/tokenizer.h"

#define MAX_LINE   (8u << 20)
#define MAX_TOKENS 65536u

typedef struct run {
    const bt_tokenizer_t *tok;
    bt_token_trie_t *trie;
    size_t max_bytes;
    uint32_t tokens[MAX_TOKENS];
    uint64_t mask_ns[MAX_TOKENS];
    uint32_t n_allowed[MAX_TOKENS];
    uint32_t n;        /* masks */
    uint32_t n_tokens; /* of the answer or walk, without the end */
    uint64_t within;   /* tokens; 0: any */
    uint64_t distances_ns;
} run_t;

static const uint8_t *bytes_of(void *ctx, uint32_t id, size_t *n_p)
{
    bool special = false;
    const uint8_t *bytes = bt_token_bytes(ctx, id, n_p, &special);

    *n_p = special ? 0 : *n_p;
    return bytes;
}

static bt_token_trie_t *trie_of(const bt_tokenizer_t *tok)
{
    uint32_t end_ids[64];
    const uint32_t n = bt_tokenizer_end_ids(tok, end_ids, 64);
    bt_token_trie_t *trie;
    const uint64_t begin = bt_thread_cpu_ns();

    bt_half_must(bt_token_trie_create(bt_tokenizer_n_vocab(tok), bytes_of,
                                      (void *)(uintptr_t)tok, end_ids, n,
                                      &trie),
                 "trie");
    printf("{\"vocab\": %" PRIu32 ", \"nodes\": %" PRIu32
           ", \"others\": %" PRIu32 ", \"plain\": %" PRIu32
           ", \"longest\": %" PRIu32 ", \"trie_ns\": %" PRIu64 "}\n",
           trie->n_vocab, trie->all.n_nodes, trie->others.n_nodes,
           trie->n_plain[BT_TRIE_MAX_PLAIN], trie->max_bytes,
           bt_thread_cpu_ns() - begin);
    (void)fflush(stdout);
    return trie;
}

static bt_grammar_kind_t kind_of(const bt_json_node_t *node)
{
    static const char *const names[] = {
        [BT_GRAMMAR_JSON_OBJECT] = "json_object",
        [BT_GRAMMAR_JSON_SCHEMA] = "json_schema",
        [BT_GRAMMAR_REGEX] = "regex",
        [BT_GRAMMAR_CHOICE] = "choice",
        [BT_GRAMMAR_EBNF] = "ebnf",
        [BT_GRAMMAR_LARK] = "lark",
        [BT_GRAMMAR_STRUCTURAL_TAG] = "structural_tag"};

    for (uint32_t i = 0; i < BT_ARRAY_LEN(names); i++) {
        if (bt_json_is(node, names[i])) {
            return (bt_grammar_kind_t)i;
        }
    }
    bt_half_die(BT_ERR_INVALID_PARAM, "kind of a case");
}

static bool mask_has(const uint64_t *mask, uint32_t id)
{
    return (mask[id / 64] >> (id % 64) & 1) != 0;
}

/* A token of a mask, each alike. */
static uint32_t draw(const run_t *run, const uint64_t *mask, uint32_t n,
                     uint64_t *rng)
{
    uint32_t left = bt_half_random(rng, n);

    for (uint32_t w = 0; w < run->trie->n_words; w++) {
        const uint32_t here = (uint32_t)__builtin_popcountll(mask[w]);

        if (left < here) {
            uint64_t word = mask[w];

            for (; left > 0; left--) {
                word &= word - 1;
            }
            return w * 64 + (uint32_t)__builtin_ctzll(word);
        }
        left -= here;
    }
    bt_half_die(BT_ERR_INTERNAL, "a mask has fewer tokens than it says");
}

/* Follows run->tokens, or draws them where rng is there, up to @a n. */
static const char *follow(run_t *run, bt_matcher_t *m, uint32_t n,
                          uint64_t *rng)
{
    bt_matcher_cursor_t cursor = bt_matcher_begin(m);
    uint32_t within = (uint32_t)run->within;
    static char what[32];

    run->n_tokens = (rng == NULL) ? n : 0;
    if (within > 0) {
        const uint32_t least = bt_matcher_min_bytes(m, cursor.state);

        within = (within < least) ? least : within;
        within++; /* the end */
    }

    for (run->n = 0; run->n <= n; run->n++) {
        const uint64_t begin = bt_thread_cpu_ns();
        const uint64_t *mask = NULL;
        uint32_t n_mask = 0;
        uint32_t token;

        if (bt_matcher_move(m, &cursor, run->tokens, run->n)) {
            mask = (within == 0)
                       ? bt_matcher_mask(m, &cursor, &n_mask)
                       : bt_matcher_mask_within(m, &cursor, within - run->n - 1,
                                                &n_mask);
        }
        run->mask_ns[run->n] = bt_thread_cpu_ns() - begin;
        run->n_allowed[run->n] = n_mask;
        if (mask == NULL) {
            run->n++;
            return "failed";
        }
        token = (rng != NULL)  ? draw(run, mask, n_mask, rng)
                : (run->n < n) ? run->tokens[run->n]
                               : run->trie->end_ids[0];
        if (!mask_has(mask, token)) {
            if (run->n++ == n) {
                return "open";
            }
            (void)snprintf(what, sizeof(what), "refused %" PRIu32, run->n - 1);
            return what;
        }
        if (bt_token_trie_is_end(run->trie, token)) {
            run->n++;
            return "whole";
        }
        run->tokens[run->n] = token;
        run->n_tokens = (rng == NULL) ? n : run->n + 1;
    }
    return "open";
}

static void print_follow(const run_t *run, const char *what, bool first)
{
    printf("%s{\"what\": \"%s\", \"mask_ns\": [", first ? "" : ", ", what);
    for (uint32_t i = 0; i < run->n; i++) {
        printf("%s%" PRIu64, (i == 0) ? "" : ", ", run->mask_ns[i]);
    }
    printf("], \"allowed\": [");
    for (uint32_t i = 0; i < run->n; i++) {
        printf("%s%" PRIu32, (i == 0) ? "" : ", ", run->n_allowed[i]);
    }
    printf("], \"tokens\": [");
    for (uint32_t i = 0; i < run->n_tokens; i++) {
        printf("%s%" PRIu32, (i == 0) ? "" : ", ", run->tokens[i]);
    }
    printf("]}");
}

/* Returns the time of the first mask, which is there afterwards. */
static uint64_t first_mask(bt_matcher_t *m)
{
    const uint64_t begin = bt_thread_cpu_ns();
    bt_matcher_cursor_t cursor = bt_matcher_begin(m);
    uint32_t n = 0;

    (void)bt_matcher_mask(m, &cursor, &n);
    return bt_thread_cpu_ns() - begin;
}

static void run_answers(run_t *run, bt_matcher_t *m, const bt_json_doc_t *doc)
{
    const bt_json_node_t *root = bt_json_doc_root(doc);
    const bt_json_node_t *answers = bt_json_get(doc, root, "answers");
    const uint32_t n_answers = bt_json_size(answers, BT_JSON_ARRAY);
    const bt_json_node_t *answer =
        (n_answers > 0) ? bt_json_first(answers) : NULL;
    uint64_t n_walks = 0;
    uint64_t max_tokens = 200;
    uint64_t seed = 1;

    (void)bt_json_as_u64(bt_json_get(doc, root, "walks"), &n_walks);
    (void)bt_json_as_u64(bt_json_get(doc, root, "max_tokens"), &max_tokens);
    (void)bt_json_as_u64(bt_json_get(doc, root, "seed"), &seed);
    run->within = 0;
    (void)bt_json_as_u64(bt_json_get(doc, root, "within"), &run->within);
    if (run->within > 0) {
        const uint64_t begin = bt_thread_cpu_ns();

        bt_half_must(bt_matcher_know_distances(m), "distances");
        run->distances_ns = bt_thread_cpu_ns() - begin;
    }
    max_tokens = (max_tokens < MAX_TOKENS) ? max_tokens : MAX_TOKENS - 1;
    for (uint32_t i = 0; i < n_answers; i++) {
        bt_token_vec_t ids = {0};

        bt_half_must(bt_tokenize(run->tok, answer->text, answer->len, 0,
                                 MAX_TOKENS - 1, &ids),
                     "tokenize");
        memcpy(run->tokens, ids.ids, ids.n * sizeof(uint32_t));
        print_follow(run, follow(run, m, (uint32_t)ids.n, NULL), i == 0);
        bt_free(ids.ids);
        answer = bt_json_next(doc, answer);
    }
    for (uint64_t i = 0; i < n_walks; i++) {
        print_follow(run, follow(run, m, (uint32_t)max_tokens, &seed),
                     (i == 0) && (n_answers == 0));
    }
}

static void run_case(run_t *run, const bt_json_doc_t *doc)
{
    const bt_json_node_t *root = bt_json_doc_root(doc);
    const bt_json_node_t *source = bt_json_get(doc, root, "source");
    const bt_json_node_t *compact = bt_json_get(doc, root, "compact");
    const bt_grammar_source_t what = {
        .kind = kind_of(bt_json_get(doc, root, "kind")),
        .compact = bt_json_is_kind(compact, BT_JSON_TRUE),
        .lenient = true,
        .text = (source != NULL) ? source->text : NULL,
        .bytes = (source != NULL) ? source->len : 0};
    bt_matcher_config_t config = {.trie = run->trie,
                                  .max_bytes = run->max_bytes};
    char why[512] = "";
    const char *why_load = "";
    uint8_t *program = NULL;
    size_t bytes = 0;
    bt_grammar_t *grammar = NULL;
    bt_matcher_t *m = NULL;
    const uint64_t begin = bt_thread_cpu_ns();
    bt_status_t status =
        bt_grammar_compile(&what, &program, &bytes, why, sizeof(why));
    const uint64_t compiled = bt_thread_cpu_ns();

    if (status == BT_OK) {
        status = bt_grammar_load(program, bytes, &why_load, &grammar);
        (void)snprintf(why, sizeof(why), "%s", why_load);
    }
    if (status == BT_OK) {
        config.grammar = grammar;
        status = bt_matcher_create(&config, &m);
    }
    if (status != BT_OK) {
        for (char *c = why; *c != '\0'; c++) {
            *c = ((*c == '"') || (*c == '\\') || ((uint8_t)*c < 32)) ? ' ' : *c;
        }
        printf("{\"error\": \"%s: %s\"}\n", bt_status_str(status), why);
    } else {
        printf("{\"compile_ns\": %" PRIu64 ", \"load_ns\": %" PRIu64
               ", \"program\": %zu, \"states\": %" PRIu32
               ", \"rules\": %" PRIu32,
               compiled - begin, bt_thread_cpu_ns() - compiled, bytes,
               grammar->n_states, grammar->n_rules);
        printf(", \"first_mask_ns\": %" PRIu64 ", \"runs\": [", first_mask(m));
        run_answers(run, m, doc);
        printf("], \"distances_ns\": %" PRIu64, run->distances_ns);
        printf(", \"resets\": %" PRIu64 ", \"steps\": %" PRIu64
               ", \"masks\": %" PRIu64 ", \"hits\": %" PRIu64 "}\n",
               bt_matcher_stats(m)->resets, bt_matcher_stats(m)->steps,
               bt_matcher_stats(m)->masks, bt_matcher_stats(m)->mask_hits);
    }
    (void)fflush(stdout);
    bt_matcher_destroy(m);
    bt_grammar_free(grammar);
    bt_free(program);
}

int main(int argc, char **argv)
{
    char why[512] = "";
    bt_gguf_t *gguf;
    bt_tokenizer_t *tok;
    run_t *run = bt_half_zeros(1, sizeof(*run));
    char *line = bt_half_zeros(MAX_LINE, 1);

    if (argc < 2) {
        bt_half_die(BT_OK, "usage: grammar-run MODEL.gguf [MAX_BYTES]");
    }
    bt_half_must(bt_gguf_open(argv[1], why, sizeof(why), &gguf), why);
    bt_half_must(bt_tokenizer_load(gguf, why, sizeof(why), &tok), why);
    run->tok = tok;
    run->trie = trie_of(tok);
    run->max_bytes =
        (argc > 2) ? bt_half_number(argv[2], 1, UINT32_MAX) : 16u << 20;
    while (fgets(line, MAX_LINE, stdin) != NULL) {
        bt_json_doc_t *doc;

        bt_half_must(
            bt_json_doc_parse(line, strlen(line), why, sizeof(why), &doc), why);
        run_case(run, doc);
        bt_json_doc_free(doc);
    }
    bt_token_trie_destroy(run->trie);
    bt_tokenizer_destroy(tok);
    bt_gguf_close(gguf);
    bt_free(run);
    bt_free(line);
    return 0;
}
