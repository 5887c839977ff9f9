/* SPDX-License-Identifier: Apache-2.0 */
#include "imatrix/imatrix.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"

#define LEAST 1e-3f /* minimum weight of a column, for a mean of 1 */

void bt_imatrix_fini(bt_imatrix_t *m)
{
    for (uint32_t i = 0; i < m->n_entries; i++) {
        bt_free(m->entries[i].name);
        bt_free(m->entries[i].sums);
        bt_free(m->entries[i].counts);
    }
    bt_free(m->entries);
    bt_free(m->text);
    bt_free(m->source);
    *m = (bt_imatrix_t){0};
}

const bt_imatrix_entry_t *bt_imatrix_find(const bt_imatrix_t *m,
                                          bt_gguf_str_t name)
{
    for (uint32_t i = 0; i < m->n_entries; i++) {
        if ((strlen(m->entries[i].name) == name.len) &&
            (memcmp(m->entries[i].name, name.data, name.len) == 0)) {
            return &m->entries[i];
        }
    }
    return NULL;
}

bt_status_t bt_imatrix_add(bt_imatrix_t *m, const char *name, size_t name_len,
                           uint32_t n, uint32_t n_mats, uint32_t *i_p)
{
    bt_imatrix_entry_t e = {.n = n, .n_mats = n_mats};
    bt_imatrix_entry_t *grown;
    const uint32_t cap = (m->cap > 0) ? m->cap * 2 : 64;

    if (m->n_entries == m->cap) {
        grown = bt_realloc_array(m->entries, cap, sizeof(*grown));
        if (grown == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        m->entries = grown;
        m->cap = cap;
    }
    e.name = bt_memdup(name, name_len);
    e.sums = bt_calloc(n, sizeof(*e.sums));
    e.counts = bt_calloc(n_mats, sizeof(*e.counts));
    if ((e.name == NULL) || (e.sums == NULL) || (e.counts == NULL)) {
        bt_free(e.name);
        bt_free(e.sums);
        bt_free(e.counts);
        return BT_ERR_NO_MEMORY;
    }
    *i_p = m->n_entries;
    m->entries[m->n_entries++] = e;
    return BT_OK;
}

/* True when the entry has the columns of each matrix, or of one for all of
 * them. */
static bool fits(const bt_imatrix_entry_t *e, const bt_gguf_tensor_t *t)
{
    const uint64_t n_in = t->dims[0];
    const uint64_t n_mats = t->dims[2] * t->dims[3];

    return (n_in > 0) && ((e->n == n_in) || (e->n == n_in * n_mats)) &&
           ((e->n_mats == 1) || (e->n == n_in * e->n_mats));
}

bt_status_t bt_imatrix_check(const bt_imatrix_t *m, const bt_gguf_t *gguf,
                             uint64_t *n_p, char *why, size_t why_bytes)
{
    uint64_t n = 0;

    for (uint64_t i = 0; i < bt_gguf_n_tensors(gguf); i++) {
        const bt_gguf_tensor_t *const t = bt_gguf_tensor_at(gguf, i);
        const bt_imatrix_entry_t *const e = bt_imatrix_find(m, t->name);

        if (e == NULL) {
            continue;
        }
        if (!fits(e, t)) {
            snprintf(why, why_bytes,
                     "it is of another model: %.200s has %u columns there, and "
                     "%llu x %llu in the model",
                     e->name, e->n, (unsigned long long)t->dims[0],
                     (unsigned long long)(t->dims[2] * t->dims[3]));
            return BT_ERR_MISMATCH;
        }
        n++;
    }
    *n_p = n;
    return BT_OK;
}

void bt_imatrix_weights(const bt_imatrix_entry_t *entry, uint64_t mat,
                        uint32_t n_in, float *weights)
{
    const uint64_t i = (entry->n > n_in) ? mat : 0;
    const float *const sums = entry->sums + i * n_in;
    double mean = 0.0;

    for (uint32_t k = 0; k < n_in; k++) {
        mean += (double)sums[k] / (double)n_in;
    }
    for (uint32_t k = 0; k < n_in; k++) {
        weights[k] =
            (mean > 0.0) ? (float)((double)sums[k] / mean) + LEAST : 1.0f;
    }
}

bt_hash128_t bt_imatrix_hash(const bt_imatrix_t *m)
{
    bt_hash128_t hash = {0};

    for (uint32_t i = 0; i < m->n_entries; i++) {
        const bt_imatrix_entry_t *const e = &m->entries[i];
        const bt_hash128_t parts[] = {
            hash, bt_hash128(e->name, strlen(e->name), 0),
            bt_hash128(e->sums, e->n * sizeof(*e->sums), 0),
            bt_hash128(e->counts, e->n_mats * sizeof(*e->counts), 0)};

        hash = bt_hash128(parts, sizeof(parts), 0);
    }
    return hash;
}
