/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/packed/packed.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define MAX_THREADS 16u

_Static_assert(sizeof(bt_packed_key_t) == 64, "no padding in the file");
_Static_assert(sizeof(bt_packed_origin_t) == 40, "no padding in the file");
_Static_assert(sizeof(bt_packed_head_t) == 168, "no padding in the file");
_Static_assert(sizeof(bt_packed_entry_t) == 40, "no padding in the file");

/* Returns the number of chunks of a file whose data ends at table_at. */
static uint64_t n_chunks_of(uint64_t table_at)
{
    return table_at / BT_PACKED_CHUNK_BYTES +
           (table_at % BT_PACKED_CHUNK_BYTES != 0);
}

bt_hash128_t bt_packed_head_sum(const void *page)
{
    uint8_t copy[BT_PACKED_DATA_AT];

    memcpy(copy, page, sizeof(copy));
    memset(copy + offsetof(bt_packed_head_t, head_sum), 0,
           sizeof(bt_hash128_t));
    return bt_hash128(copy, sizeof(copy), 0);
}

bool bt_packed_key_equal(const bt_packed_key_t *a, const bt_packed_key_t *b)
{
    return (memcmp(a->profile, b->profile, sizeof(a->profile)) == 0) &&
           (a->pack_version == b->pack_version) &&
           (a->model_bytes == b->model_bytes) &&
           bt_hash128_equal(a->model_id, b->model_id);
}

static bt_status_t refuse(char *why, size_t why_bytes, const char *text)
{
    snprintf(why, why_bytes, "%s", text);
    return BT_ERR_BAD_FILE;
}

/* Checks the head and the position of the table. */
static bt_status_t check_head(const uint8_t *base, size_t bytes, char *why,
                              size_t why_bytes)
{
    const bt_packed_head_t *const head = (const void *)base;

    if (bytes < BT_PACKED_DATA_AT) {
        return refuse(why, why_bytes, "it is too short");
    }
    if (head->magic != BT_PACKED_MAGIC) {
        return refuse(why, why_bytes, "it is no file of packed weights");
    }
    if (head->format != BT_PACKED_FORMAT) {
        return refuse(why, why_bytes, "its format has another version");
    }
    if (!bt_hash128_equal(head->head_sum, bt_packed_head_sum(base))) {
        return refuse(why, why_bytes, "its head does not match its checksum");
    }
    if ((head->table_at < BT_PACKED_DATA_AT) ||
        (head->table_at % BT_PACKED_ALIGN != 0) || (head->table_at > bytes) ||
        (head->table_bytes != bytes - head->table_at)) {
        return refuse(why, why_bytes, "its length is not what its head says");
    }
    return BT_OK;
}

static bool entry_fits(const bt_packed_entry_t *e, uint64_t table_at,
                       uint64_t names_bytes)
{
    return (e->at >= BT_PACKED_DATA_AT) && (e->at % BT_PACKED_ALIGN == 0) &&
           (e->at <= table_at) && (e->bytes > 0) &&
           (e->bytes <= table_at - e->at) && (e->name_len > 0) &&
           (e->name_len <= BT_PACKED_MAX_NAME) && (e->name_at <= names_bytes) &&
           (e->name_len <= names_bytes - e->name_at);
}

bt_status_t bt_packed_check(const void *base, size_t bytes, char *why,
                            size_t why_bytes, bt_packed_file_t *file_p)
{
    bt_packed_file_t file = {.base = base, .bytes = bytes, .head = base};
    bt_status_t status = check_head(base, bytes, why, why_bytes);
    uint64_t fixed; /* entries and sums */
    uint64_t sums_bytes;

    if (status != BT_OK) {
        return status;
    }
    file.n_chunks = n_chunks_of(file.head->table_at);
    if (__builtin_mul_overflow(file.n_chunks, sizeof(*file.sums),
                               &sums_bytes) ||
        __builtin_add_overflow((uint64_t)file.head->n_pieces *
                                   sizeof(*file.entries),
                               sums_bytes, &fixed) ||
        (fixed > file.head->table_bytes)) {
        return refuse(why, why_bytes, "its table is too short");
    }
    file.entries = (const void *)(file.base + file.head->table_at);
    file.sums = (const void *)(file.entries + file.head->n_pieces);
    file.names = (const char *)(file.sums + file.n_chunks);
    file.names_bytes = (size_t)(file.head->table_bytes - fixed);
    if (!bt_hash128_equal(
            file.head->table_sum,
            bt_hash128(file.entries, (size_t)file.head->table_bytes, 0))) {
        return refuse(why, why_bytes, "its table does not match its checksum");
    }
    for (uint32_t i = 0; i < file.head->n_pieces; i++) {
        if (!entry_fits(&file.entries[i], file.head->table_at,
                        file.names_bytes)) {
            return refuse(why, why_bytes, "a piece lies outside of it");
        }
    }
    *file_p = file;
    return BT_OK;
}

const void *bt_packed_find(const bt_packed_file_t *file, const char *name,
                           uint32_t type, uint32_t n_out, uint32_t n_in,
                           size_t *bytes_p)
{
    const size_t len = strlen(name);

    for (uint32_t i = 0; i < file->head->n_pieces; i++) {
        const bt_packed_entry_t *const e = &file->entries[i];

        if ((e->name_len == len) && (e->type == type) && (e->n_out == n_out) &&
            (e->n_in == n_in) &&
            (memcmp(file->names + e->name_at, name, len) == 0)) {
            *bytes_p = (size_t)e->bytes;
            return file->base + e->at;
        }
    }
    return NULL;
}

typedef struct verify_job {
    const bt_packed_file_t *file;
    _Atomic uint64_t next;
    atomic_bool bad;
} verify_job_t;

static void *verify_chunks(void *arg)
{
    verify_job_t *const job = arg;
    const bt_packed_file_t *const file = job->file;
    const uint64_t end = file->head->table_at;

    for (;;) {
        const uint64_t i = atomic_fetch_add(&job->next, 1);
        uint64_t from = i * BT_PACKED_CHUNK_BYTES;
        uint64_t to = from + BT_PACKED_CHUNK_BYTES;
        bt_hash128_t sum;

        if ((i >= file->n_chunks) || atomic_load(&job->bad)) {
            return NULL;
        }
        from = (i == 0) ? BT_PACKED_DATA_AT : from;
        to = (to > end) ? end : to;
        sum = bt_hash128(file->base + from, (size_t)(to - from), 0);
        if (!bt_hash128_equal(file->sums[i], sum)) {
            atomic_store(&job->bad, true);
        }
    }
}

bt_status_t bt_packed_verify(const bt_packed_file_t *file, uint32_t n_threads)
{
    verify_job_t job = {.file = file};
    pthread_t threads[MAX_THREADS];
    uint32_t n_started = 0;

    n_threads = (n_threads > MAX_THREADS) ? MAX_THREADS : n_threads;
    while (
        (n_started + 1 < n_threads) && (n_started + 1 < file->n_chunks) &&
        (pthread_create(&threads[n_started], NULL, verify_chunks, &job) == 0)) {
        n_started++; /* a thread that cannot be started is not needed */
    }
    verify_chunks(&job);
    for (uint32_t i = 0; i < n_started; i++) {
        pthread_join(threads[i], NULL);
    }
    return atomic_load(&job.bad) ? BT_ERR_CORRUPT : BT_OK;
}
