/* SPDX-License-Identifier: Apache-2.0 */
#include "worker/grammars.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/containers.h"
#include "common/grammar/grammar.h"
#include "common/wire/wire.h"
#include "inference/tokenizer/tokenizer.h"

#define N_BUCKETS   64
#define MAX_END_IDS 64
#define WHY_BYTES   256
/* Bytes of the vocabulary that one mask looks at, times this, at most, or what
 * grammars with many states take with a small one: some milliseconds. */
#define MASK_STEPS     64
#define MIN_MASK_STEPS 4000000u

_Static_assert(BT_WIRE_MAX_GRAMMAR == BT_GRAMMAR_MAX_BYTES,
               "a message has any program");

typedef struct grammar_key {
    bt_hash128_t space;
    const uint8_t *program;
    uint32_t bytes;
    bool completes;
} grammar_key_t;

struct bt_job_grammar {
    bt_list_t by_hash;
    bt_list_t idle; /* in bt_grammars_t.idle while no job has it */
    bt_grammars_t *grammars;
    grammar_key_t key;
    uint8_t *program; /* of the key */
    bt_grammar_t *loaded;
    bt_matcher_t *matcher;
    uint32_t n_refs;
};

struct bt_grammars {
    const bt_gguf_t *gguf; /* the thread's */
    uint32_t n_vocab;
    pthread_t thread;
    bool is_running;
    bt_status_t status; /* of the thread; it has ended */
    char why[WHY_BYTES];
    bt_token_trie_t *trie;
    uint64_t max_idle; /* matchers */
    uint64_t n_idle;
    bt_list_t idle; /* the least recently used first */
    bt_hmap_t by_hash;
    bt_list_t buckets[N_BUCKETS];
    uint64_t n_loaded;
};

/* ---- the vocabulary ---- */

static const uint8_t *bytes_of(void *tok, uint32_t id, size_t *n_p)
{
    bool is_special = false;
    const uint8_t *bytes = bt_token_bytes(tok, id, n_p, &is_special);

    if (is_special) {
        *n_p = 0;
    }
    return bytes;
}

static void *make_trie(void *ctx)
{
    bt_grammars_t *g = ctx;
    bt_tokenizer_t *tok = NULL;
    uint32_t end_ids[MAX_END_IDS];
    uint32_t n_end_ids;

    g->status = bt_tokenizer_load(g->gguf, g->why, sizeof(g->why), &tok);
    if (g->status != BT_OK) {
        return NULL;
    }
    n_end_ids = bt_tokenizer_end_ids(tok, end_ids, MAX_END_IDS);
    g->status = bt_token_trie_create(g->n_vocab, bytes_of, tok, end_ids,
                                     n_end_ids, &g->trie);
    bt_tokenizer_destroy(tok);
    return NULL;
}

bt_status_t bt_grammars_create(const bt_gguf_t *gguf, uint32_t n_vocab,
                               uint64_t max_bytes, bt_grammars_t **grammars_p)
{
    bt_grammars_t *g = bt_calloc(1, sizeof(*g));

    if (g == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    g->gguf = gguf;
    g->n_vocab = n_vocab;
    g->max_idle = max_bytes / BT_GRAMMARS_MATCHER_BYTES;
    bt_list_init(&g->idle);
    bt_hmap_init(&g->by_hash, g->buckets, N_BUCKETS);
    g->is_running = pthread_create(&g->thread, NULL, make_trie, g) == 0;
    if (!g->is_running) {
        bt_free(g);
        return BT_ERR_IO;
    }
    *grammars_p = g;
    return BT_OK;
}

static void join(bt_grammars_t *g)
{
    if (g->is_running) {
        (void)pthread_join(g->thread, NULL);
        g->is_running = false;
        g->gguf = NULL;
    }
}

bt_status_t bt_grammars_wait(bt_grammars_t *grammars, char *why,
                             size_t why_bytes)
{
    join(grammars);
    if (grammars->status != BT_OK) {
        snprintf(why, why_bytes, "%s",
                 (grammars->why[0] != '\0') ? grammars->why
                                            : bt_status_str(grammars->status));
    }
    return grammars->status;
}

const bt_token_trie_t *bt_grammars_trie(const bt_grammars_t *grammars)
{
    return grammars->trie;
}

uint64_t bt_grammars_n_loaded(const bt_grammars_t *grammars)
{
    return grammars->n_loaded;
}

/* ---- matchers ---- */

static void destroy(bt_job_grammar_t *grammar)
{
    bt_matcher_destroy(grammar->matcher);
    bt_grammar_free(grammar->loaded);
    bt_free(grammar->program);
    bt_free(grammar);
}

static void drop_oldest(bt_grammars_t *g)
{
    bt_job_grammar_t *oldest =
        BT_CONTAINER_OF(g->idle.next, bt_job_grammar_t, idle);

    bt_list_remove(&oldest->idle);
    bt_list_remove(&oldest->by_hash);
    g->n_idle--;
    destroy(oldest);
}

void bt_grammars_destroy(bt_grammars_t *grammars)
{
    if (grammars == NULL) {
        return;
    }
    join(grammars);
    while (grammars->n_idle > 0) {
        drop_oldest(grammars);
    }
    bt_token_trie_destroy(grammars->trie);
    bt_free(grammars);
}

static uint64_t hash_of(const grammar_key_t *key)
{
    return bt_hash64(key->program, key->bytes, key->space.lo ^ key->space.hi);
}

/* The program itself counts, not its hash. */
static bool is_equal(bt_list_t *link, const void *key)
{
    const grammar_key_t *a =
        &BT_CONTAINER_OF(link, bt_job_grammar_t, by_hash)->key;
    const grammar_key_t *b = key;

    return bt_hash128_equal(a->space, b->space) &&
           (a->completes == b->completes) && (a->bytes == b->bytes) &&
           (memcmp(a->program, b->program, a->bytes) == 0);
}

/* Loads the program of a new grammar. */
static bt_status_t load(bt_job_grammar_t *grammar, const char **why_p)
{
    const bt_grammars_t *g = grammar->grammars;
    const uint64_t all_steps =
        (uint64_t)g->trie->all.n_nodes * MASK_STEPS; /* of at most 2^32 bytes */
    const uint64_t steps =
        (all_steps > MIN_MASK_STEPS) ? all_steps : MIN_MASK_STEPS;
    bt_matcher_config_t config = {
        .trie = g->trie,
        .max_bytes = BT_GRAMMARS_MATCHER_BYTES,
        .max_mask_steps = (steps < UINT32_MAX) ? (uint32_t)steps : UINT32_MAX,
    };
    bt_status_t status = bt_grammar_load(grammar->program, grammar->key.bytes,
                                         why_p, &grammar->loaded);

    if (status != BT_OK) {
        return status;
    }
    config.grammar = grammar->loaded;
    status = bt_matcher_create(&config, &grammar->matcher);
    if ((status == BT_OK) && grammar->key.completes) {
        status = bt_matcher_know_distances(grammar->matcher);
    }
    if (status != BT_OK) {
        *why_p = "the grammar of the request cannot be followed here";
    }
    return status;
}

static bt_status_t make(bt_grammars_t *g, const grammar_key_t *key,
                        const char **why_p, bt_job_grammar_t **grammar_p)
{
    bt_job_grammar_t *grammar = bt_calloc(1, sizeof(*grammar));
    bt_status_t status = BT_ERR_NO_MEMORY;

    *why_p = "out of memory";
    if (grammar == NULL) {
        return status;
    }
    bt_list_init(&grammar->idle);
    bt_list_init(&grammar->by_hash);
    grammar->grammars = g;
    grammar->program = bt_memdup(key->program, key->bytes);
    grammar->key = *key;
    grammar->key.program = grammar->program;
    if (grammar->program != NULL) {
        status = load(grammar, why_p);
    }
    if (status != BT_OK) {
        destroy(grammar);
        return status;
    }
    g->n_loaded++;
    bt_hmap_insert(&g->by_hash, hash_of(&grammar->key), &grammar->by_hash);
    *grammar_p = grammar;
    return BT_OK;
}

bt_status_t bt_grammars_take(bt_grammars_t *grammars, bt_hash128_t space,
                             const uint8_t *program, uint32_t bytes,
                             bool completes, const char **why_p,
                             bt_job_grammar_t **grammar_p)
{
    const grammar_key_t key = {.space = space,
                               .program = program,
                               .bytes = bytes,
                               .completes = completes};
    bt_list_t *link =
        bt_hmap_find(&grammars->by_hash, hash_of(&key), is_equal, &key);
    bt_job_grammar_t *grammar = NULL;

    if (link == NULL) {
        const bt_status_t status = make(grammars, &key, why_p, &grammar);

        if (status != BT_OK) {
            return status;
        }
    } else {
        grammar = BT_CONTAINER_OF(link, bt_job_grammar_t, by_hash);
        if (grammar->n_refs == 0) {
            bt_list_remove(&grammar->idle);
            grammars->n_idle--;
        }
    }
    grammar->n_refs++;
    *grammar_p = grammar;
    return BT_OK;
}

void bt_job_grammar_release(bt_job_grammar_t *grammar)
{
    bt_grammars_t *g;

    if ((grammar == NULL) || (--grammar->n_refs > 0)) {
        return;
    }
    g = grammar->grammars;
    bt_list_push_back(&g->idle, &grammar->idle);
    g->n_idle++;
    if (g->n_idle > g->max_idle) {
        drop_oldest(g);
    }
}

bt_matcher_t *bt_job_grammar_matcher(const bt_job_grammar_t *grammar)
{
    return grammar->matcher;
}
