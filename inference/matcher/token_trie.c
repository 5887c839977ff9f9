/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/matcher/token_trie.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/alloc.h"

#define MAX_NODES       (1u << 24) /* `skip` of a node */
#define MAX_TOKEN_BYTES 65536u

/* Bytes of the first character of UTF-8, above U+007F; 0: none. The range of
 * second bytes depends on the first one (RFC 3629, section 4). */
static size_t long_char(const uint8_t *bytes, size_t n)
{
    const uint8_t b = bytes[0];
    const size_t size = (b < 0xe0) ? 2 : (b < 0xf0) ? 3 : 4;
    const uint8_t lo = (b == 0xe0) ? 0xa0 : (b == 0xf0) ? 0x90 : 0x80;
    const uint8_t hi = (b == 0xed) ? 0x9f : (b == 0xf4) ? 0x8f : 0xbf;

    if ((b < 0xc2) || (b > 0xf4) || (n < size) || (bytes[1] < lo) ||
        (bytes[1] > hi)) {
        return 0;
    }
    for (size_t i = 2; i < size; i++) {
        if ((bytes[i] & 0xc0) != 0x80) {
            return 0;
        }
    }
    return size;
}

/* Bytes of the first plain character, 0: none. */
static size_t plain_char(const uint8_t *bytes, size_t n)
{
    const uint8_t b = bytes[0];

    if (b < 0x80) {
        const bool plain =
            (b >= 0x20) && (b != '"') && (b != '\\') && (b != 0x7f);

        return plain ? 1 : 0;
    }
    if ((n >= 3) && (b == 0xe2) && (bytes[1] == 0x80) &&
        ((bytes[2] & 0xfe) == 0xa8)) {
        return 0; /* U+2028 and U+2029 */
    }
    return long_char(bytes, n);
}

uint32_t bt_plain_chars(const uint8_t *bytes, size_t n)
{
    uint32_t n_chars = 0;

    for (size_t i = 0; i < n; n_chars++) {
        const size_t size = plain_char(&bytes[i], n - i);

        if (size == 0) {
            return 0;
        }
        i += size;
    }
    return n_chars;
}

bool bt_token_trie_is_end(const bt_token_trie_t *trie, uint32_t id)
{
    for (uint32_t i = 0; i < trie->n_end_ids; i++) {
        if (trie->end_ids[i] == id) {
            return true;
        }
    }
    return false;
}

static int compare_bytes(const bt_token_trie_t *trie, uint32_t a, uint32_t b)
{
    size_t n_a;
    size_t n_b;
    const uint8_t *bytes_a = bt_token_trie_bytes(trie, a, &n_a);
    const uint8_t *bytes_b = bt_token_trie_bytes(trie, b, &n_b);
    const int order = memcmp(bytes_a, bytes_b, (n_a < n_b) ? n_a : n_b);

    return (order != 0) ? order : (n_a > n_b) - (n_a < n_b);
}

static int compare_tokens(const void *a_p, const void *b_p, void *trie)
{
    const uint32_t a = *(const uint32_t *)a_p;
    const uint32_t b = *(const uint32_t *)b_p;
    const int order = compare_bytes(trie, a, b);

    return (order != 0) ? order : (a > b) - (a < b);
}

static int compare_chars(const void *a_p, const void *b_p)
{
    const bt_plain_token_t *a = a_p;
    const bt_plain_token_t *b = b_p;

    return (a->n_chars != b->n_chars) ? (a->n_chars > b->n_chars) * 2 - 1
                                      : (a->id > b->id) - (a->id < b->id);
}

static bt_status_t copy_bytes(bt_token_trie_t *trie,
                              bt_token_bytes_fn_t bytes_of, void *ctx)
{
    uint64_t total = 0;
    size_t n;

    trie->offsets = bt_calloc((size_t)trie->n_vocab + 1, sizeof(uint32_t));
    if (trie->offsets == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t id = 0; id < trie->n_vocab; id++) {
        (void)bytes_of(ctx, id, &n);
        n = bt_token_trie_is_end(trie, id) ? 0 : n;
        total += n;
        if ((n > MAX_TOKEN_BYTES) || (total >= MAX_NODES)) {
            return BT_ERR_TOO_LARGE;
        }
        trie->offsets[id + 1] = (uint32_t)total;
        trie->max_bytes = (n > trie->max_bytes) ? (uint32_t)n : trie->max_bytes;
    }
    trie->bytes = bt_calloc((size_t)total + 1, 1);
    if (trie->bytes == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t id = 0; id < trie->n_vocab; id++) {
        const uint32_t size = trie->offsets[id + 1] - trie->offsets[id];

        if (size > 0) {
            const uint8_t *bytes = bytes_of(ctx, id, &n);

            memcpy(&trie->bytes[trie->offsets[id]], bytes, size);
        }
    }
    return BT_OK;
}

/* Ids of the tokens of up to BT_TRIE_MAX_BYTES into @a ids, sorted; the others
 * into long_ids. */
static bt_status_t sort_tokens(bt_token_trie_t *trie, uint32_t *ids,
                               uint32_t *n_p)
{
    uint32_t n = 0;
    uint32_t n_long = 0;
    size_t size;

    for (uint32_t id = 0; id < trie->n_vocab; id++) {
        (void)bt_token_trie_bytes(trie, id, &size);
        if (size > BT_TRIE_MAX_BYTES) {
            n_long++;
        } else if (size > 0) {
            ids[n++] = id;
        }
    }
    trie->long_ids = bt_calloc((size_t)n_long + 1, sizeof(uint32_t));
    if (trie->long_ids == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t id = 0; id < trie->n_vocab; id++) {
        (void)bt_token_trie_bytes(trie, id, &size);
        if (size > BT_TRIE_MAX_BYTES) {
            trie->long_ids[trie->n_long++] = id;
        }
    }
    qsort_r(ids, n, sizeof(uint32_t), compare_tokens, trie);
    *n_p = n;
    return BT_OK;
}

/* End of the tokens that have the bytes of the i-th one. */
static uint32_t same_end(const bt_token_trie_t *trie, const uint32_t *ids,
                         uint32_t n, uint32_t i)
{
    uint32_t end = i + 1;

    while ((end < n) && (compare_bytes(trie, ids[i], ids[end]) == 0)) {
        end++;
    }
    return end;
}

static bt_status_t make_aliases(bt_token_trie_t *trie, const uint32_t *ids,
                                uint32_t n)
{
    uint32_t n_aliases = 0;
    uint32_t n_ids = 0;

    for (uint32_t i = 0, end; i < n; i = end) {
        end = same_end(trie, ids, n, i);
        n_aliases += (end - i > 1) ? 1 : 0;
        n_ids += (end - i > 1) ? end - i : 0;
    }
    trie->alias_first = bt_calloc((size_t)n_aliases + 1, sizeof(uint32_t));
    trie->alias_ids = bt_calloc((size_t)n_ids + 1, sizeof(uint32_t));
    if ((trie->alias_first == NULL) || (trie->alias_ids == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    n_ids = 0;
    for (uint32_t i = 0, end; i < n; i = end) {
        end = same_end(trie, ids, n, i);
        if (end - i > 1) {
            memcpy(&trie->alias_ids[n_ids], &ids[i],
                   (end - i) * sizeof(uint32_t));
            n_ids += end - i;
            trie->alias_first[++trie->n_aliases] = n_ids;
        }
    }
    return BT_OK;
}

static size_t common_bytes(const uint8_t *a, size_t n_a, const uint8_t *b,
                           size_t n_b)
{
    size_t n = 0;

    while ((n < n_a) && (n < n_b) && (a[n] == b[n])) {
        n++;
    }
    return n;
}

static uint32_t count_nodes(const bt_token_trie_t *trie, const uint32_t *ids,
                            uint32_t n)
{
    const uint8_t *before = NULL;
    size_t n_before = 0;
    uint32_t n_nodes = 0;

    for (uint32_t i = 0; i < n; i++) {
        size_t size;
        const uint8_t *bytes = bt_token_trie_bytes(trie, ids[i], &size);

        n_nodes +=
            (uint32_t)(size - common_bytes(before, n_before, bytes, size));
        before = bytes;
        n_before = size;
    }
    return n_nodes;
}

/* Trie of sorted tokens: aliases are met in their order. */
static bt_status_t make_part(const bt_token_trie_t *trie, const uint32_t *ids,
                             uint32_t n, bt_trie_part_t *part)
{
    uint32_t open[BT_TRIE_MAX_BYTES]; /* nodes that lead to the last token */
    const uint8_t *before = NULL;
    size_t n_before = 0;
    uint32_t alias = 0;
    uint32_t n_nodes = 0;

    part->nodes = bt_calloc((size_t)count_nodes(trie, ids, n) + 1,
                            sizeof(bt_trie_node_t));
    if (part->nodes == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0, end; i <= n; i = end) {
        size_t size = 0;
        const uint8_t *bytes =
            (i < n) ? bt_token_trie_bytes(trie, ids[i], &size) : NULL;
        const size_t common = common_bytes(before, n_before, bytes, size);

        for (size_t d = common; d < n_before; d++) {
            part->nodes[open[d]].skip = (n_nodes - open[d]) & (MAX_NODES - 1);
        }
        if (i == n) {
            break;
        }
        for (size_t d = common; d < size; d++) {
            open[d] = n_nodes;
            part->nodes[n_nodes++] = (bt_trie_node_t){
                .byte = bytes[d],
                .depth = (uint32_t)d & 0xff,
                .token = trie->no_token & (MAX_NODES - 1),
            };
        }
        end = same_end(trie, ids, n, i);
        if (end - i > 1) {
            while (trie->alias_ids[trie->alias_first[alias]] != ids[i]) {
                alias++;
            }
        }
        part->nodes[n_nodes - 1].token =
            ((end - i > 1) ? trie->no_token + 1 + alias : ids[i]) &
            (MAX_NODES - 1);
        before = bytes;
        n_before = size;
    }
    part->n_nodes = n_nodes;
    for (uint32_t i = 0; i < n_nodes; i += part->nodes[i].skip) {
        part->first[part->nodes[i].byte + 1] = i + part->nodes[i].skip;
    }
    for (uint32_t b = 1; b <= 256; b++) {
        if (part->first[b] == 0) {
            part->first[b] = part->first[b - 1];
        }
    }
    return BT_OK;
}

static uint64_t *plain_mask(bt_token_trie_t *trie, uint32_t n_chars)
{
    return &trie->plain[(size_t)n_chars * trie->n_words];
}

/* Bitmaps of the plain tokens of @a ids, which are left out of it. */
static bt_status_t make_plain(bt_token_trie_t *trie, uint32_t *ids,
                              uint32_t *n_p)
{
    const uint32_t n = *n_p;
    uint32_t n_others = 0;
    uint32_t n_long = 0;

    trie->plain = bt_calloc((size_t)(BT_TRIE_MAX_PLAIN + 1) * trie->n_words,
                            sizeof(uint64_t));
    trie->n_plain = bt_calloc(BT_TRIE_MAX_PLAIN + 1, sizeof(uint32_t));
    trie->plain_long = bt_calloc((size_t)n + 1, sizeof(bt_plain_token_t));
    if ((trie->plain == NULL) || (trie->n_plain == NULL) ||
        (trie->plain_long == NULL)) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < n; i++) {
        size_t size;
        const uint8_t *bytes = bt_token_trie_bytes(trie, ids[i], &size);
        const uint32_t n_chars = bt_plain_chars(bytes, size);

        if (n_chars == 0) {
            ids[n_others++] = ids[i];
            continue;
        }
        for (uint32_t k = n_chars; k < BT_TRIE_MAX_PLAIN; k++) {
            plain_mask(trie, k)[ids[i] / 64] |= 1ull << (ids[i] % 64);
            trie->n_plain[k]++;
        }
        plain_mask(trie, BT_TRIE_MAX_PLAIN)[ids[i] / 64] |= 1ull
                                                            << (ids[i] % 64);
        trie->n_plain[BT_TRIE_MAX_PLAIN]++;
        trie->max_plain =
            (n_chars > trie->max_plain) ? n_chars : trie->max_plain;
        if (n_chars >= BT_TRIE_MAX_PLAIN) {
            trie->plain_long[n_long++] =
                (bt_plain_token_t){.id = ids[i], .n_chars = n_chars};
        }
    }
    qsort(trie->plain_long, n_long, sizeof(bt_plain_token_t), compare_chars);
    trie->n_plain_long = n_long;
    *n_p = n_others;
    return BT_OK;
}

static bt_status_t build(bt_token_trie_t *trie, bt_token_bytes_fn_t bytes_of,
                         void *ctx)
{
    BT_CLEANUP(free) uint32_t *ids = NULL;
    bt_status_t status = copy_bytes(trie, bytes_of, ctx);
    uint32_t n;

    if (status != BT_OK) {
        return status;
    }
    ids = bt_calloc(trie->n_vocab, sizeof(uint32_t));
    if (ids == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    status = sort_tokens(trie, ids, &n);
    if (status == BT_OK) {
        status = make_aliases(trie, ids, n);
    }
    if (status == BT_OK) {
        status = make_part(trie, ids, n, &trie->all);
    }
    if (status == BT_OK) {
        status = make_plain(trie, ids, &n);
    }
    if (status == BT_OK) {
        status = make_part(trie, ids, n, &trie->others);
    }
    return status;
}

bt_status_t bt_token_trie_create(uint32_t n_vocab, bt_token_bytes_fn_t bytes_of,
                                 void *ctx, const uint32_t *end_ids,
                                 uint32_t n_end_ids, bt_token_trie_t **trie_p)
{
    bt_token_trie_t *trie;
    bt_status_t status;

    if (n_vocab == 0) {
        return BT_ERR_INVALID_PARAM;
    }
    if (n_vocab > BT_TRIE_MAX_VOCAB) {
        return BT_ERR_TOO_LARGE;
    }
    for (uint32_t i = 0; i < n_end_ids; i++) {
        if (end_ids[i] >= n_vocab) {
            return BT_ERR_INVALID_PARAM;
        }
    }
    trie = bt_calloc(1, sizeof(*trie));
    if (trie == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    trie->n_vocab = n_vocab;
    trie->n_words = (n_vocab + 63) / 64;
    trie->no_token = trie->n_words * 64;
    trie->end_ids = bt_calloc((size_t)n_end_ids + 1, sizeof(uint32_t));
    if (trie->end_ids == NULL) {
        status = BT_ERR_NO_MEMORY;
        goto err_destroy;
    }
    if (n_end_ids > 0) {
        memcpy(trie->end_ids, end_ids, n_end_ids * sizeof(uint32_t));
    }
    trie->n_end_ids = n_end_ids;
    status = build(trie, bytes_of, ctx);
    if (status != BT_OK) {
        goto err_destroy;
    }
    *trie_p = trie;
    return BT_OK;

err_destroy:
    bt_token_trie_destroy(trie);
    return status;
}

void bt_token_trie_destroy(bt_token_trie_t *trie)
{
    if (trie == NULL) {
        return;
    }
    bt_free(trie->end_ids);
    bt_free(trie->all.nodes);
    bt_free(trie->others.nodes);
    bt_free(trie->alias_first);
    bt_free(trie->alias_ids);
    bt_free(trie->long_ids);
    bt_free(trie->plain);
    bt_free(trie->n_plain);
    bt_free(trie->plain_long);
    bt_free(trie->offsets);
    bt_free(trie->bytes);
    bt_free(trie);
}
