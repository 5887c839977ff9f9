/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters in folders as hf_lora_convert.py of TensorRT-LLM writes them:
 * model.lora_weights.npy and model.lora_config.npy, each a matrix, perhaps in a
 * batch of one.
 * Source: numpy, numpy/lib/format.py (NEP 1). */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/containers.h"
#include "common/base/files.h"
#include "common/base/status.h"
#include "inference/adapter/adapter_tensors.h"

#define MAX_FILE_BYTES ((uint64_t)4 << 30)
#define MAX_HEAD_BYTES 4096u
#define PREFIX_BYTES   12u /* magic, version, length of the head */

/* File of one matrix. */
typedef struct npy {
    uint8_t *file; /* owned */
    size_t bytes;
    const uint8_t *data; /* n_rows x width elements */
    uint64_t n_rows, width;
    char type[8]; /* numpy's: "<f2" */
} npy_t;

static bt_status_t fail(const char *path, const char *what, char *why,
                        size_t why_bytes, bt_status_t status)
{
    snprintf(why, why_bytes, "%.300s %s", path, what);
    return status;
}

static bt_status_t read_whole(const char *path, npy_t *npy, char *why,
                              size_t why_bytes)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;
    bt_status_t status = BT_OK;

    if ((fd < 0) || (fstat(fd, &st) != 0) || !S_ISREG(st.st_mode)) {
        status = fail(path, "cannot be read", why, why_bytes, BT_ERR_NOT_FOUND);
    } else if ((uint64_t)st.st_size > MAX_FILE_BYTES) {
        status = fail(path, "is larger than 4 GiB", why, why_bytes,
                      BT_ERR_TOO_LARGE);
    }
    if (status == BT_OK) {
        npy->file = bt_calloc(1, (size_t)st.st_size + 1);
        status =
            (npy->file != NULL)
                ? bt_read_file(fd, npy->file, (size_t)st.st_size, &npy->bytes)
                : BT_ERR_NO_MEMORY;
        if (status != BT_OK) {
            status = fail(path, "cannot be read", why, why_bytes, status);
        }
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

/* Finds the value of a key: 'KEY': VALUE. @return NULL: there is none */
static const char *value_of(const char *head, const char *key)
{
    char quoted[32];
    const char *at;

    snprintf(quoted, sizeof(quoted), "'%s':", key);
    at = strstr(head, quoted);
    return (at != NULL) ? at + strlen(quoted) + strspn(at + strlen(quoted), " ")
                        : NULL;
}

/* Reads "(1, 14, 1536)" or "(14, 1536)". */
static bool read_shape(const char *text, npy_t *npy)
{
    uint64_t dims[3] = {0};
    uint32_t n = 0;

    if ((text == NULL) || (*text++ != '(')) {
        return false;
    }
    while ((*text >= '0') && (*text <= '9') && (n < BT_ARRAY_LEN(dims))) {
        char *end;

        dims[n++] = strtoull(text, &end, 10);
        text = end + strspn(end, ", ");
    }
    if ((*text != ')') || (n < 2) || ((n == 3) && (dims[0] != 1))) {
        return false;
    }
    npy->n_rows = dims[n - 2];
    npy->width = dims[n - 1];
    return (npy->n_rows > 0) && (npy->width > 0) &&
           (npy->n_rows <= BT_ADAPTER_MAX_TENSOR_ROWS) &&
           (npy->width <= MAX_FILE_BYTES);
}

static bool read_head(npy_t *npy)
{
    static const uint8_t magic[] = {0x93, 'N', 'U', 'M', 'P', 'Y'};
    char head[MAX_HEAD_BYTES + 1];
    const char *type;
    const char *order;
    uint32_t at = PREFIX_BYTES;
    uint32_t n = 0;

    if ((npy->bytes < PREFIX_BYTES) ||
        (memcmp(npy->file, magic, sizeof(magic)) != 0) || (npy->file[6] == 0) ||
        (npy->file[6] > 3)) {
        return false;
    }
    if (npy->file[6] == 1) { /* 16 bits in version 1, then 32 */
        at = PREFIX_BYTES - 2;
    }
    memcpy(&n, npy->file + 8, at - 8);
    if ((n > MAX_HEAD_BYTES) || (n > npy->bytes - at)) {
        return false;
    }
    memcpy(head, npy->file + at, n);
    head[n] = '\0';
    npy->data = npy->file + at + n;
    npy->bytes -= at + n;
    type = value_of(head, "descr");
    order = value_of(head, "fortran_order");
    if ((type == NULL) || (order == NULL) || (*type != '\'') ||
        (strncmp(order, "False", 5) != 0)) {
        return false;
    }
    type++;
    n = (uint32_t)strcspn(type, "'");
    if (n >= sizeof(npy->type)) {
        return false;
    }
    memcpy(npy->type, type, n);
    npy->type[n] = '\0';
    return read_shape(value_of(head, "shape"), npy);
}

/* @param elem  bytes of an element by its type; 0: it is not the type's file */
static bool has_all(const npy_t *npy, size_t elem)
{
    return (elem > 0) && (npy->bytes / elem / npy->n_rows == npy->width) &&
           (npy->bytes == npy->n_rows * npy->width * elem);
}

/* Element types of weights; numpy has no BF16, and keeps such as 2 bytes. */
static bool weights_type(const char *type, uint32_t *type_p, size_t *elem_p)
{
    static const struct {
        const char *name;
        uint32_t type;
        size_t elem;
    } types[] = {{"<f4", BT_ADAPTER_F32, 4},
                 {"<f2", BT_ADAPTER_F16, 2},
                 {"|V2", BT_ADAPTER_BF16, 2},
                 {"<V2", BT_ADAPTER_BF16, 2}};

    for (size_t i = 0; i < BT_ARRAY_LEN(types); i++) {
        if (strcmp(type, types[i].name) == 0) {
            *type_p = types[i].type;
            *elem_p = types[i].elem;
            return true;
        }
    }
    return false;
}

static bt_status_t open_npy(const char *folder, const char *name, npy_t *npy,
                            char path[], size_t path_bytes, char *why,
                            size_t why_bytes)
{
    bt_status_t status;

    snprintf(path, path_bytes, "%s/%s", folder, name);
    status = read_whole(path, npy, why, why_bytes);
    if ((status == BT_OK) && !read_head(npy)) {
        status =
            fail(path, "is no file of numpy with a matrix in the order of C",
                 why, why_bytes, BT_ERR_BAD_FILE);
    }
    return status;
}

bt_status_t bt_adapter_tensors_read(const char *folder, char *why,
                                    size_t why_bytes,
                                    bt_adapter_tensors_t **tensors_p)
{
    npy_t weights = {0};
    npy_t config = {0};
    bt_adapter_tensors_t shape = {0};
    size_t elem = 0;
    char path[4096];
    bt_status_t status = open_npy(folder, "model.lora_weights.npy", &weights,
                                  path, sizeof(path), why, why_bytes);

    if ((status == BT_OK) && (!weights_type(weights.type, &shape.type, &elem) ||
                              !has_all(&weights, elem))) {
        status = fail(path, "is no whole matrix of F32, F16 or BF16", why,
                      why_bytes, BT_ERR_BAD_FILE);
    }
    if (status == BT_OK) {
        status = open_npy(folder, "model.lora_config.npy", &config, path,
                          sizeof(path), why, why_bytes);
    }
    if ((status == BT_OK) && ((strcmp(config.type, "<i4") != 0) ||
                              !has_all(&config, sizeof(int32_t)) ||
                              ((config.width != 3) && (config.width != 4)) ||
                              (config.n_rows != weights.n_rows))) {
        status = fail(path,
                      "is no matrix of INT32 with 3 or 4 columns and a row for "
                      "each of lora_weights",
                      why, why_bytes, BT_ERR_BAD_FILE);
    }
    if (status == BT_OK) {
        shape.n_rows = (uint32_t)weights.n_rows;
        shape.n_columns = (uint32_t)config.width;
        shape.width = weights.width;
        shape.weights_bytes = weights.bytes;
        status = bt_adapter_tensors_create(&shape, config.data, weights.data,
                                           tensors_p);
    }
    bt_free(weights.file);
    bt_free(config.file);
    return status;
}
