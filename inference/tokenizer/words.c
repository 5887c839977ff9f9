/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/words.h"

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "common/base/task.h"
#include "inference/tokenizer/encode.h"
#include "inference/tokenizer/unicode.h"

_Static_assert(sizeof(bt_word_entry_t) == 64, "an entry is a cache line");

#define MIN_SLOTS 16u
#define MIN_SETS  8u
#define WAYS      2u

static uint32_t shift_for(uint64_t n)
{
    return 64u - (uint32_t)__builtin_ctzll(n);
}

bt_status_t bt_word_table_init(bt_word_table_t *table, uint64_t n)
{
    uint64_t n_slots = MIN_SLOTS;

    while (n_slots / 2 < n) {
        n_slots *= 2;
    }
    table->slots = bt_calloc_aligned(n_slots, sizeof(*table->slots));
    if (table->slots == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    table->mask = n_slots - 1;
    table->shift = shift_for(n_slots);
    return BT_OK;
}

void bt_word_table_fini(bt_word_table_t *table)
{
    bt_free(table->slots);
    memset(table, 0, sizeof(*table));
}

void bt_word_table_put(bt_word_table_t *table, const uint8_t *word,
                       size_t bytes, uint32_t id)
{
    uint8_t buf[16] = {0};
    uint64_t low;
    uint64_t high;
    uint64_t i;

    BT_ASSERT((bytes > 0) && (bytes <= BT_WORD_TABLE_BYTES) && (id < 1u << 24));
    memcpy(buf, word, bytes);
    low = bt_word_load(buf);
    high = bt_word_load(buf + 8) | (uint64_t)bytes << 32;
    i = bt_word_home(table, low, high);
    while (table->slots[i].high != 0) {
        i = (i + 1) & table->mask;
    }
    table->slots[i].low = low;
    table->slots[i].high = high | (uint64_t)id << 40;
}

static void make_key(uint64_t key[4], const uint8_t *word, size_t bytes)
{
    for (size_t i = 0; i < 4; i++) {
        key[i] = (bytes <= 8 * i)
                     ? 0
                     : bt_word_cut(bt_word_load(word + 8 * i), bytes - 8 * i);
    }
    key[3] |= (uint64_t)bytes << 56;
}

static bt_word_entry_t *set_of(const bt_word_cache_t *cache,
                               const uint64_t key[4])
{
    uint64_t hash = key[0] * 0x9E3779B97F4A7C15u;

    hash = (hash ^ hash >> 32 ^ key[1]) * 0x9FB21C651E98DF25u;
    hash = (hash ^ hash >> 32 ^ key[2]) * 0x9E3779B97F4A7C15u;
    hash = (hash ^ hash >> 32 ^ key[3]) * 0x9FB21C651E98DF25u;
    return &cache->entries[(hash >> cache->shift) * WAYS];
}

static bool same_key(const uint64_t a[4], const uint64_t b[4])
{
    return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3])) == 0;
}

const bt_word_entry_t *bt_word_cache_get(const bt_word_cache_t *cache,
                                         const uint8_t *word, size_t bytes)
{
    uint64_t key[4];
    const bt_word_entry_t *set;

    make_key(key, word, bytes);
    set = set_of(cache, key);
    for (size_t way = 0; way < WAYS; way++) {
        if (same_key(set[way].key, key)) {
            return &set[way];
        }
    }
    return NULL;
}

void bt_word_cache_put(bt_word_cache_t *cache, const uint8_t *word,
                       size_t bytes, const uint32_t *ids, size_t n)
{
    uint64_t key[4];
    bt_word_entry_t *set;

    BT_ASSERT(n <= BT_WORD_CACHE_IDS);
    make_key(key, word, bytes);
    set = set_of(cache, key);
    set[1] = set[0];
    memcpy(set[0].key, key, sizeof(key));
    set[0].n = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        set[0].ids[i] = ids[i];
    }
}

/* An entry is a cache line. */
static bt_word_entry_t *next_line(void *memory)
{
    const uintptr_t off = (uintptr_t)memory % sizeof(bt_word_entry_t);

    return (bt_word_entry_t *)((char *)memory + sizeof(bt_word_entry_t) - off);
}

bt_status_t bt_word_pool_init(bt_word_pool_t *pool, uint64_t n_words)
{
    uint64_t n_sets = MIN_SETS;

    memset(pool, 0, sizeof(*pool));
    while (n_sets * WAYS < n_words) {
        n_sets *= 2;
    }
    for (size_t i = 0; i < BT_WORD_POOL; i++) {
        bt_word_cache_t *cache = &pool->caches[i];

        /* Zeroed memory that is never written costs nothing: a router with one
         * tokenizing thread pays for one cache. */
        cache->memory = bt_calloc(n_sets * WAYS + 1, sizeof(*cache->entries));
        if (cache->memory == NULL) {
            bt_word_pool_fini(pool);
            return BT_ERR_NO_MEMORY;
        }
        cache->entries = next_line(cache->memory);
        cache->shift = shift_for(n_sets);
    }
    return BT_OK;
}

void bt_word_pool_fini(bt_word_pool_t *pool)
{
    for (size_t i = 0; i < BT_WORD_POOL; i++) {
        bt_free(pool->caches[i].memory);
    }
    memset(pool, 0, sizeof(*pool));
}

bt_word_cache_t *bt_word_pool_take(bt_word_pool_t *pool)
{
    for (uint32_t i = 0; i < BT_WORD_POOL; i++) {
        const uint32_t bit = 1u << i;

        if ((atomic_load_explicit(&pool->taken, memory_order_relaxed) & bit) !=
            0) {
            continue;
        }
        if ((atomic_fetch_or_explicit(&pool->taken, bit, memory_order_acquire) &
             bit) == 0) {
            return &pool->caches[i];
        }
    }
    return NULL;
}

void bt_word_pool_give(bt_word_pool_t *pool, bt_word_cache_t *cache)
{
    if (cache != NULL) {
        atomic_fetch_and_explicit(&pool->taken,
                                  ~(1u << (uint32_t)(cache - pool->caches)),
                                  memory_order_release);
    }
}

void bt_word_pool_clear(bt_word_pool_t *pool)
{
    for (size_t i = 0; i < BT_WORD_POOL; i++) {
        bt_word_cache_t *cache = &pool->caches[i];

        memset(cache->entries, 0,
               ((size_t)WAYS << (64u - cache->shift)) *
                   sizeof(*cache->entries));
        cache->n_table = cache->n_hits = cache->n_merged = cache->n_steps = 0;
    }
}

/* Encodes texts whose tokens are texts: merged from characters, or chosen by
 * Unigram. */

/* True when each byte of a character has a token. */
static bool has_bytes(const bt_tokenizer_t *tok, const uint8_t *bytes,
                      unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        if (tok->byte_ids[bytes[i]] == BT_TOKEN_NONE) {
            return false;
        }
    }
    return true;
}

bt_status_t bt_encode_bare_char(bt_encoder_t *enc, uint32_t cp)
{
    const bt_tokenizer_t *tok = enc->tok;
    bt_status_t status = BT_OK;
    uint8_t bytes[4];
    const unsigned n = bt_utf8_encode(cp, bytes);
    const bool have_all = has_bytes(tok, bytes, n);

    for (unsigned i = 0; have_all && (status == BT_OK) && (i < n); i++) {
        status = bt_encode_push(enc, tok->byte_ids[bytes[i]]);
    }
    if (!have_all && (tok->unk != BT_TOKEN_NONE) &&
        !(enc->in_unknown && tok->fuses)) {
        status = bt_encode_push(enc, tok->unk);
    }
    enc->in_unknown = !have_all;
    return status;
}

/* Merges the n symbols of a part of the text and appends the tokens. */
static bt_status_t merge_part(bt_encoder_t *enc, size_t n)
{
    bt_status_t status = bt_merge(&enc->work, &enc->tok->pairs, n, &n);

    for (size_t i = 0; (status == BT_OK) && (i < n); i++) {
        const uint32_t sym = enc->work.syms[i];

        if ((sym & BT_TOK_BARE_CHAR) != 0) {
            status = bt_encode_bare_char(enc, sym & ~BT_TOK_BARE_CHAR);
        } else {
            enc->in_unknown = false;
            status = bt_encode_push(enc, sym);
        }
    }
    return status;
}

/* SentencePiece has no words: it merges the whole text at once. Here the text
 * is split where no piece crosses, mostly before spaces. Pieces are stored with
 * plain spaces for U+2581, so it becomes a space here, too. */
static bt_status_t merge_text(bt_encoder_t *enc, const uint8_t *text,
                              size_t bytes, bool prefixed)
{
    static const uint8_t space[] = " ";
    const bt_tokenizer_t *tok = enc->tok;
    bt_status_t status = bt_merge_reserve(&enc->work, 1);
    uint8_t before = ' ';
    unsigned steps = 0;
    size_t n = 0;
    size_t at = 0;

    if ((status == BT_OK) && prefixed) {
        enc->work.syms[n++] = bt_tok_char_symbol(tok, space, 1, ' ');
    }
    while ((status == BT_OK) && (at < bytes)) {
        const uint8_t *p = text + at;
        uint32_t symbol;
        uint32_t cp;
        unsigned len = bt_utf8_decode(p, &cp);

        if (bt_task_poll_every(&steps)) {
            return BT_ERR_CANCELED;
        }
        at += len;
        if (tok->marks_spaces && (cp == 0x2581)) {
            p = space;
            len = 1;
            cp = ' ';
        }
        symbol = bt_tok_char_symbol(tok, p, len, cp);
        if (((symbol & BT_TOK_BARE_CHAR) != 0) && (tok->unk == BT_TOKEN_NONE) &&
            !has_bytes(tok, p, len)) {
            continue; /* gives nothing: what is around it are neighbours */
        }
        if ((n > 0) && !bt_joins_get(tok->joins, before, p[0])) {
            status = merge_part(enc, n);
            n = 0;
        }
        if (status == BT_OK) {
            status = bt_merge_reserve(&enc->work, n + 1);
        }
        if (status == BT_OK) {
            enc->work.syms[n++] = symbol;
            before = p[len - 1];
        }
    }
    return (status == BT_OK) ? merge_part(enc, n) : status;
}

/* With ignore_merges a piece that is a token as a whole is that token. */
static bool whole_token(const bt_tokenizer_t *tok, const uint8_t *text,
                        size_t bytes, uint32_t *id_p)
{
    uint8_t plain[BT_TOK_MAX_TOKEN_BYTES];

    return tok->ignore_merges && (bytes <= sizeof(plain)) &&
           bt_text_table_get(&tok->texts, plain,
                             bt_tok_plain_text(tok, text, bytes, plain), id_p);
}

static bt_status_t piece_text(bt_encoder_t *enc, const uint8_t *text,
                              size_t bytes, bool prefixed)
{
    size_t n_chars = prefixed ? 1 : 0;
    uint32_t id;

    enc->in_unknown = false;
    if (!prefixed && whole_token(enc->tok, text, bytes, &id)) {
        return bt_encode_push(enc, id);
    }
    for (size_t i = 0; i < bytes; i++) {
        n_chars += ((text[i] & 0xC0) != 0x80);
    }
    /* Any number of unknown characters in a row is one token. */
    if (enc->tok->has_all_bytes && bt_encode_too_many(enc, n_chars)) {
        return BT_ERR_TOO_LARGE;
    }
    return (enc->tok->model == BT_TOK_UNIGRAM)
               ? bt_encode_unigram(enc, text, bytes, prefixed)
               : merge_text(enc, text, bytes, prefixed);
}

bt_status_t bt_encode_pieces(bt_encoder_t *enc, const uint8_t *text,
                             size_t bytes)
{
    const bt_tokenizer_t *tok = enc->tok;
    bool prefixed = tok->add_space_prefix;
    unsigned steps = 0;
    bt_splits_scan_t scan;
    bt_status_t status = BT_OK;
    size_t from;
    size_t to;

    if (bytes == 0) {
        return BT_OK;
    }
    if (tok->splits == NULL) {
        return piece_text(enc, text, bytes, prefixed);
    }
    bt_splits_start(&scan, tok->splits, text, bytes);
    while ((status == BT_OK) && bt_splits_next(&scan, &from, &to)) {
        if (bt_task_poll_every(&steps)) {
            return BT_ERR_CANCELED;
        }
        status = piece_text(enc, text + from, to - from, prefixed);
        prefixed = false;
    }
    return status;
}
