/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/convert/convert.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"

#define COMPARE_BYTES 65536u

bt_status_t bt_part_file_write(bt_part_file_t *file, const void *data, size_t n)
{
    const char *at = data;

    while (n > 0) {
        const ssize_t done = pwrite(file->fd, at, n, (off_t)file->bytes);

        if ((done < 0) && (errno == EINTR)) {
            continue;
        }
        if (done <= 0) {
            return BT_ERR_IO;
        }
        at += done;
        n -= (size_t)done;
        file->bytes += (uint64_t)done;
    }
    return BT_OK;
}

bt_status_t bt_part_file_cut(bt_part_file_t *file, uint64_t bytes)
{
    if (ftruncate(file->fd, (off_t)bytes) != 0) {
        return BT_ERR_IO;
    }
    file->bytes = bytes;
    return BT_OK;
}

/* True when the file begins with these bytes. An unreadable file does not. */
static bool begins_with(int fd, const char *head, size_t n)
{
    char *const piece = bt_calloc(1, COMPARE_BYTES);
    size_t at = 0;

    while ((piece != NULL) && (at < n)) {
        const size_t most = (n - at < COMPARE_BYTES) ? n - at : COMPARE_BYTES;
        const ssize_t got = pread(fd, piece, most, (off_t)at);

        if ((got <= 0) || (memcmp(piece, head + at, (size_t)got) != 0)) {
            break;
        }
        at += (size_t)got;
    }
    bt_free(piece);
    return at == n;
}

static bt_status_t begin(bt_part_file_t *file, const void *head,
                         size_t head_bytes)
{
    struct stat st;
    bt_status_t status;

    if (fstat(file->fd, &st) != 0) {
        return BT_ERR_IO;
    }
    if ((st.st_size >= (off_t)head_bytes) &&
        begins_with(file->fd, head, head_bytes)) {
        file->bytes = (uint64_t)st.st_size;
        return BT_OK;
    }
    status = bt_part_file_cut(file, 0);
    return (status == BT_OK) ? bt_part_file_write(file, head, head_bytes)
                             : status;
}

static bool has_name(const bt_part_file_t *file)
{
    struct stat own;
    struct stat named;

    return (fstat(file->fd, &own) == 0) && (lstat(file->part, &named) == 0) &&
           (own.st_dev == named.st_dev) && (own.st_ino == named.st_ino);
}

bt_status_t bt_part_file_open(const char *name, const void *head,
                              size_t head_bytes, char *why, size_t why_bytes,
                              bt_part_file_t *file)
{
    const size_t n = strlen(name) + sizeof(".part");
    bt_part_file_t made = {.fd = -1};
    bt_status_t status = BT_ERR_NO_MEMORY;

    made.name = bt_strdup(name);
    made.part = bt_calloc(1, n);
    if ((made.name == NULL) || (made.part == NULL)) {
        snprintf(why, why_bytes, "out of memory");
        goto err_close;
    }
    snprintf(made.part, n, "%s.part", name);
    status = BT_ERR_IO;
    made.fd =
        open(made.part, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
             0666);
    if (made.fd < 0) {
        snprintf(why, why_bytes, "%s: %m", made.part);
        goto err_close;
    }
    /* The process that held the lock may have renamed the file meanwhile: then
     * it is complete. */
    if ((flock(made.fd, LOCK_EX | LOCK_NB) != 0) || !has_name(&made)) {
        status = BT_ERR_BUSY;
        snprintf(why, why_bytes, "%s is being written by another process",
                 made.part);
        goto err_close;
    }
    status = begin(&made, head, head_bytes);
    if (status != BT_OK) {
        snprintf(why, why_bytes, "%s: %m", made.part);
        goto err_close;
    }
    *file = made;
    return BT_OK;

err_close:
    bt_part_file_close(&made);
    return status;
}

/* The name itself is on disk only when its folder is synced. */
static bt_status_t sync_folder(const char *name)
{
    char *const copy = bt_strdup(name);
    int fd;
    bt_status_t status = BT_ERR_IO;

    if (copy == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bt_free(copy);
    if (fd >= 0) {
        status = (fsync(fd) == 0) ? BT_OK : BT_ERR_IO;
        close(fd);
    }
    return status;
}

bt_status_t bt_part_file_finish(bt_part_file_t *file)
{
    if ((fsync(file->fd) != 0) || (rename(file->part, file->name) != 0)) {
        return BT_ERR_IO;
    }
    return sync_folder(file->name);
}

void bt_part_file_close(bt_part_file_t *file)
{
    if (file->fd >= 0) {
        close(file->fd);
    }
    bt_free(file->name);
    bt_free(file->part);
    *file = (bt_part_file_t){.fd = -1};
}

#define GGUF_VERSION 3u
/* Version of the block layouts: general.quantization_version
 * (GGML_QNT_VERSION). */
#define QUANTIZATION_VERSION 2u

/* Keys that llama.cpp's quantizer writes for an importance matrix. */
#define KEY_IMATRIX_TEXT    "quantize.imatrix.dataset"
#define KEY_IMATRIX_ENTRIES "quantize.imatrix.entries_count"
#define KEY_IMATRIX_WINDOWS "quantize.imatrix.chunks_count"

/* Keys that are written anew, or describe the old file and not the new one. */
static const char *const replaced[] = {
    "general.alignment",
    "general.quantization_version",
    "split.no",
    "split.count",
    "split.tensors.count",
    BT_CONVERT_KEY_SOURCE,
    KEY_IMATRIX_TEXT,
    KEY_IMATRIX_ENTRIES,
    KEY_IMATRIX_WINDOWS,
    "quantize.imatrix.file",
};
#define KEY_FILE_TYPE   "general.file_type" /* unless it stays */
#define N_NEW_PAIRS     2u
#define N_IMATRIX_PAIRS 3u

static bool is_called(bt_gguf_str_t key, const char *text)
{
    return (key.len == strlen(text)) && (memcmp(key.data, text, key.len) == 0);
}

static bool is_replaced(bt_gguf_str_t key, bool has_file_type)
{
    if (is_called(key, KEY_FILE_TYPE)) {
        return has_file_type;
    }
    for (size_t i = 0; i < BT_ARRAY_LEN(replaced); i++) {
        if (is_called(key, replaced[i])) {
            return true;
        }
    }
    return false;
}

static void put_u32(bt_strbuf_t *out, uint32_t value)
{
    bt_strbuf_append(out, &value, sizeof(value));
}

static void put_u64(bt_strbuf_t *out, uint64_t value)
{
    bt_strbuf_append(out, &value, sizeof(value));
}

static void put_str(bt_strbuf_t *out, const char *data, size_t n)
{
    put_u64(out, n);
    bt_strbuf_append(out, data, n);
}

static void put_pair(bt_strbuf_t *out, const bt_gguf_pair_t *pair)
{
    put_str(out, pair->key.data, pair->key.len);
    if (pair->is_array) {
        put_u32(out, BT_GGUF_ARRAY);
    }
    put_u32(out, pair->type);
    if (pair->is_array) {
        put_u64(out, pair->n);
    }
    bt_strbuf_append(out, pair->value, pair->bytes);
}

static void put_number(bt_strbuf_t *out, const char *key, uint32_t value)
{
    put_str(out, key, strlen(key));
    put_u32(out, BT_GGUF_U32);
    put_u32(out, value);
}

static void put_text(bt_strbuf_t *out, const char *key, const char *text)
{
    put_str(out, key, strlen(key));
    put_u32(out, BT_GGUF_STRING);
    put_str(out, text, strlen(text));
}

static void put_new_pairs(bt_strbuf_t *out, const bt_gguf_t *gguf,
                          const bt_quantize_mix_t *mix,
                          const bt_imatrix_t *imatrix)
{
    const bt_hash128_t id = bt_gguf_identity(gguf);
    char source[128];
    int n = snprintf(source, sizeof(source), "%016" PRIx64 "%016" PRIx64 " %u",
                     id.hi, id.lo, BT_QUANTIZE_VERSION);

    if (bt_quantize_mix_file_type(mix) != BT_QUANTIZE_TYPES_STAY) {
        put_number(out, KEY_FILE_TYPE, bt_quantize_mix_file_type(mix));
    }
    put_number(out, "general.quantization_version", QUANTIZATION_VERSION);
    if (imatrix != NULL) {
        const bt_hash128_t hash = bt_imatrix_hash(imatrix);

        snprintf(source + n, sizeof(source) - (size_t)n,
                 " %016" PRIx64 "%016" PRIx64, hash.hi, hash.lo);
        put_text(out, KEY_IMATRIX_TEXT,
                 (imatrix->text != NULL) ? imatrix->text : "");
        put_number(out, KEY_IMATRIX_ENTRIES, imatrix->n_entries);
        put_number(out, KEY_IMATRIX_WINDOWS, imatrix->n_windows);
    }
    put_text(out, BT_CONVERT_KEY_SOURCE, source);
}

void bt_convert_header(const bt_gguf_t *gguf, const bt_quantize_mix_t *mix,
                       const bt_imatrix_t *imatrix,
                       const bt_quantize_plan_t *plan, bt_strbuf_t *out)
{
    static const char zeros[BT_QUANTIZE_ALIGNMENT] = {0};
    const bool has_file_type =
        bt_quantize_mix_file_type(mix) != BT_QUANTIZE_TYPES_STAY;
    uint64_t n_pairs = N_NEW_PAIRS + (has_file_type ? 1 : 0) +
                       ((imatrix != NULL) ? N_IMATRIX_PAIRS : 0);

    for (uint64_t i = 0; i < bt_gguf_n_pairs(gguf); i++) {
        n_pairs +=
            is_replaced(bt_gguf_pair_at(gguf, i).key, has_file_type) ? 0 : 1;
    }
    bt_strbuf_append(out, "GGUF", 4);
    put_u32(out, GGUF_VERSION);
    put_u64(out, plan->n);
    put_u64(out, n_pairs);
    for (uint64_t i = 0; i < bt_gguf_n_pairs(gguf); i++) {
        const bt_gguf_pair_t pair = bt_gguf_pair_at(gguf, i);

        if (!is_replaced(pair.key, has_file_type)) {
            put_pair(out, &pair);
        }
    }
    put_new_pairs(out, gguf, mix, imatrix);
    for (uint64_t i = 0; i < plan->n; i++) {
        const bt_quantize_step_t *const step = &plan->steps[i];

        put_str(out, step->tensor->name.data, step->tensor->name.len);
        put_u32(out, step->tensor->n_dims);
        for (uint32_t d = 0; d < step->tensor->n_dims; d++) {
            put_u64(out, step->tensor->dims[d]);
        }
        put_u32(out, step->type);
        put_u64(out, step->at);
    }
    if (out->len % BT_QUANTIZE_ALIGNMENT != 0) {
        bt_strbuf_append(out, zeros,
                         BT_QUANTIZE_ALIGNMENT -
                             out->len % BT_QUANTIZE_ALIGNMENT);
    }
}
