/* SPDX-License-Identifier: Apache-2.0 */
/* Files of an adapter, from the disk to the matrices of a model. Input: a GGUF
 * file; model.lora_weights.npy and model.lora_config.npy; "PACK" and the
 * content of an adapter; or adapter_config.json, a zero byte and
 * adapter_model.safetensors. */
#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/status.h"
#include "inference/adapter/adapter.h"
#include "inference/adapter/adapter_tensors.h"
#include "inference/model/lora.h"
#include "tests/support/tiny_model.h"

#define MAX_RANK  8u
#define WHY_BYTES 200
#define NUMPY     "\x93NUMPY"
#define PACK      "PACK"

static char folder[] = "/tmp/baton-fuzz-adapter-XXXXXX";
static bt_model_t *model;
static bt_hf_modules_t sizes;

static const char *path_of(const char *name)
{
    static char path[128];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const uint8_t *data, size_t size)
{
    const int fd =
        open(path_of(name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

    BT_ASSERT_ALWAYS(fd >= 0);
    BT_ASSERT_ALWAYS(write(fd, data, size) == (ssize_t)size);
    close(fd);
}

static void remove_files(void)
{
    unlink(path_of("adapter_config.json"));
    unlink(path_of("adapter_model.safetensors"));
    unlink(path_of("adapter.gguf"));
    unlink(path_of("model.lora_weights.npy"));
    unlink(path_of("model.lora_config.npy"));
    rmdir(folder);
}

/* Two layers, 8 wide, with 2 query heads and 1 of keys and values. */
static void load_model(void)
{
    static bt_backend_t *be;
    const bt_backend_config_t be_config = {.n_threads = 1, .max_rows = 4};
    const bt_model_config_t config = {.max_rows = 4,
                                      .max_logit_rows = 1,
                                      .context_tokens = 16,
                                      .max_lora_rank = MAX_RANK};
    bt_tiny_model_t tiny = bt_tiny_model_default();
    bt_gguf_t *gguf = NULL;
    char why[256];

    BT_ASSERT_ALWAYS(mkdtemp(folder) != NULL);
    atexit(remove_files);
    tiny.dim = 8;
    tiny.n_heads = 2;
    tiny.n_kv_heads = 1;
    tiny.ffn_dim = 12;
    BT_ASSERT_ALWAYS(bt_tiny_model_write(&tiny, path_of("adapter.gguf")) ==
                     BT_OK);
    BT_ASSERT_ALWAYS(bt_gguf_open(path_of("adapter.gguf"), why, sizeof(why),
                                  &gguf) == BT_OK);
    BT_ASSERT_ALWAYS(bt_backend_open("cpu", &be_config, &be) == BT_OK);
    BT_ASSERT_ALWAYS(
        bt_model_load(gguf, be, &config, why, sizeof(why), &model) == BT_OK);
    BT_ASSERT_ALWAYS(bt_hf_modules_read(gguf, why, sizeof(why), &sizes) ==
                     BT_OK);
    bt_gguf_close(gguf);
}

/* @return the path of what the input is written to */
static const char *write_input(const uint8_t *data, size_t size)
{
    const uint8_t *const zero = memchr(data, 0, size);
    const size_t n = (zero != NULL) ? (size_t)(zero - data) : size;

    if ((size >= 4) && (memcmp(data, "GGUF", 4) == 0)) {
        write_file("adapter.gguf", data, size);
        return path_of("adapter.gguf");
    }
    write_file("adapter_config.json", data, n);
    write_file("adapter_model.safetensors", data + n + (n < size ? 1 : 0),
               size - n - (n < size ? 1 : 0));
    return folder;
}

/* What the readers promise of every adapter that they return. */
static void check_adapter(const bt_adapter_t *adapter)
{
    uint32_t max_rank = 0;

    BT_ASSERT_ALWAYS(adapter->n_parts > 0);
    for (uint32_t i = 0; i < adapter->n_parts; i++) {
        const bt_adapter_part_t *const p = &adapter->parts[i];

        BT_ASSERT_ALWAYS((p->rank > 0) && (p->rank <= BT_ADAPTER_MAX_RANK));
        BT_ASSERT_ALWAYS((p->n_in > 0) && (p->n_out > 0) &&
                         (p->layer < sizes.n_layers) &&
                         (p->product < BT_ADAPTER_N_PRODUCTS));
        BT_ASSERT_ALWAYS(p->scale - p->scale == 0.0f);
        BT_ASSERT_ALWAYS((i == 0) || (p->layer > p[-1].layer) ||
                         (p->product > p[-1].product));
        max_rank = (p->rank > max_rank) ? p->rank : max_rank;
    }
    BT_ASSERT_ALWAYS(adapter->max_rank == max_rank);
}

/* A model takes an adapter of its own shapes alone, in the memory foreseen. */
static void check_load(const bt_adapter_t *adapter)
{
    bt_lora_t *lora = NULL;
    char why[200] = "";

    if (bt_lora_load(model, adapter, why, sizeof(why), &lora) != BT_OK) {
        BT_ASSERT_ALWAYS((lora == NULL) && (why[0] != '\0'));
        return;
    }
    BT_ASSERT_ALWAYS(adapter->max_rank <= MAX_RANK);
    BT_ASSERT_ALWAYS(bt_lora_bytes(lora) == bt_lora_bytes_of(adapter));
    bt_lora_free(model, lora);
}

static void check_why(bt_status_t status, const bt_adapter_t *adapter,
                      const char why[WHY_BYTES])
{
    if (status != BT_OK) {
        BT_ASSERT_ALWAYS((adapter == NULL) && (strnlen(why, WHY_BYTES) > 0) &&
                         (strnlen(why, WHY_BYTES) < WHY_BYTES));
    }
}

/* Content of an adapter, from another process. */
static void run_unpack(const uint8_t *data, size_t size, bt_hash128_t *digest_p)
{
    bt_adapter_t *adapter = NULL;
    char why[WHY_BYTES];
    bt_status_t status;

    memset(why, 'x', sizeof(why));
    status = bt_adapter_unpack(data, size, &sizes, why, sizeof(why), &adapter);
    check_why(status, adapter, why);
    if (status == BT_OK) {
        check_adapter(adapter);
        check_load(adapter);
        *digest_p = adapter->digest;
    }
    bt_adapter_free(adapter);
}

/* An adapter goes to another process and is the same there. */
static void check_pack(const bt_adapter_t *adapter)
{
    const size_t bytes = bt_adapter_packed_bytes(adapter);
    uint8_t *const packed = bt_calloc(1, bytes);
    bt_hash128_t digest = {0};

    BT_ASSERT_ALWAYS(packed != NULL);
    bt_adapter_pack(adapter, packed);
    run_unpack(packed, bytes, &digest);
    BT_ASSERT_ALWAYS(bt_hash128_equal(digest, adapter->digest));
    bt_free(packed);
}

/* Two files of numpy, the second from the next magic number on. */
static void run_tensors(const uint8_t *data, size_t size)
{
    const uint8_t *const second =
        memmem(data + 1, size - 1, NUMPY, strlen(NUMPY));
    const size_t n = (second != NULL) ? (size_t)(second - data) : size;
    bt_adapter_tensors_t *tensors = NULL;
    bt_adapter_t *adapter = NULL;
    char why[WHY_BYTES];
    bt_status_t status;

    write_file("model.lora_weights.npy", data, n);
    write_file("model.lora_config.npy", data + n, size - n);
    memset(why, 'x', sizeof(why));
    status = bt_adapter_tensors_read(folder, why, sizeof(why), &tensors);
    check_why(status, NULL, why);
    if (status != BT_OK) {
        BT_ASSERT_ALWAYS(tensors == NULL);
        return;
    }
    memset(why, 'x', sizeof(why));
    status = bt_adapter_open_tensors(tensors, &sizes, MAX_RANK, why,
                                     sizeof(why), &adapter);
    check_why(status, adapter, why);
    if (status == BT_OK) {
        check_adapter(adapter);
        check_load(adapter);
        check_pack(adapter);
    }
    bt_adapter_free(adapter);
    bt_free(tensors);
}

static void run_files(const uint8_t *data, size_t size)
{
    const char *const path = write_input(data, size);
    bt_adapter_t *adapter = NULL;
    bt_adapter_t *only_sizes = NULL;
    char why[WHY_BYTES];
    bt_status_t status;

    memset(why, 'x', sizeof(why));
    status = bt_adapter_open_for(path, &sizes, why, sizeof(why), &adapter);
    check_why(status, adapter, why);
    if (bt_adapter_open_sizes(path, &sizes, why, sizeof(why), &only_sizes) !=
        BT_OK) {
        BT_ASSERT_ALWAYS((status != BT_OK) && (only_sizes == NULL));
    }
    if (status == BT_OK) {
        BT_ASSERT_ALWAYS((only_sizes->n_parts == adapter->n_parts) &&
                         (only_sizes->bytes == adapter->bytes));
        BT_ASSERT_ALWAYS((adapter->digest.lo | adapter->digest.hi) != 0);
        check_adapter(adapter);
        check_load(adapter);
        check_pack(adapter);
    }
    bt_adapter_free(only_sizes);
    bt_adapter_free(adapter);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bt_hash128_t digest;

    if (model == NULL) {
        load_model();
    }
    if ((size >= strlen(PACK)) && (memcmp(data, PACK, strlen(PACK)) == 0)) {
        run_unpack(data + strlen(PACK), size - strlen(PACK), &digest);
    } else if ((size >= strlen(NUMPY)) &&
               (memcmp(data, NUMPY, strlen(NUMPY)) == 0)) {
        run_tensors(data, size);
    } else {
        run_files(data, size);
    }
    return 0;
}
