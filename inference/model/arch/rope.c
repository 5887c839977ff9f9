/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/model/arch/rope.h"

#include <math.h>

#include "common/base/alloc.h"

#define DEFAULT_BASE 10000.0f

bt_status_t bt_rope_read(const bt_keys_t *keys, bt_hparams_t *hp)
{
    bt_gguf_str_t scaling = {.data = "none", .len = 4};
    bt_rope_t *const rope = &hp->rope;
    float factor = 1.0f;
    char key[BT_KEY_BYTES];
    bt_status_t status;

    rope->base = DEFAULT_BASE;
    rope->dims = hp->head_dim;
    status = bt_keys_positive(keys, "rope.freq_base", &rope->base);
    if ((status != BT_OK) && (status != BT_ERR_NOT_FOUND)) {
        return status;
    }
    status = bt_keys_number_if(keys, "rope.dimension_count", 0, UINT32_MAX,
                               &rope->dims);
    if (status != BT_OK) {
        return status;
    }
    if (rope->dims != hp->head_dim) {
        return bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                              "the model rotates %u of %u dimensions of a "
                              "head; all of them are supported",
                              rope->dims, hp->head_dim);
    }
    bt_key_name(keys, "rope.scaling.type", key);
    if ((bt_gguf_get_str(keys->gguf, key, &scaling) == BT_OK) &&
        !bt_str_is(scaling, "none") && !bt_str_is(scaling, "linear")) {
        return bt_keys_refuse(keys, BT_ERR_UNSUPPORTED,
                              "the model's positions are scaled in the way "
                              "%.*s; none and linear are supported",
                              (scaling.len > 64) ? 64 : (int)scaling.len,
                              scaling.data);
    }
    status = bt_keys_positive(keys, "rope.scale_linear", &factor);
    if (bt_str_is(scaling, "linear")) {
        status = bt_keys_positive(keys, "rope.scaling.factor", &factor);
    }
    if ((status != BT_OK) && (status != BT_ERR_NOT_FOUND)) {
        return status;
    }
    rope->scale = 1.0f / factor;
    return BT_OK;
}

/* cos and sin of position * base^(-2 i / D) / factor[i], in double. */
static void fill(const bt_rope_t *rope, uint32_t n_positions,
                 const float *factors, float *table)
{
    const uint32_t half = rope->dims / 2;

    for (uint32_t i = 0; i < half; i++) {
        const double exponent = -2.0 * i / (double)rope->dims;
        double frequency =
            pow((double)rope->base, exponent) * (double)rope->scale;

        if (factors != NULL) {
            frequency /= (double)factors[i];
        }
        for (uint32_t p = 0; p < n_positions; p++) {
            float *const pair = &table[((size_t)p * half + i) * 2];

            pair[0] = (float)cos(p * frequency);
            pair[1] = (float)sin(p * frequency);
        }
    }
}

bt_status_t bt_rope_load(bt_loader_t *loader, float **ptr_p)
{
    const char *const name = "rope_freqs.weight";
    const bt_rope_t *const rope = &loader->hp->rope;
    const uint32_t n_positions = loader->config->context_tokens;
    float *factors = NULL;
    float *table = NULL;
    bt_status_t status = BT_OK;

    if (bt_gguf_tensor(loader->gguf, name) != NULL) {
        status = bt_loader_values(loader, name, rope->dims / 2, &factors);
    }
    for (uint32_t i = 0; (factors != NULL) && (i < rope->dims / 2); i++) {
        if (!(factors[i] > 0.0f) || !isfinite(factors[i])) {
            status = bt_loader_fail(loader, BT_ERR_BAD_FILE,
                                    "factor %u of tensor %s is %g", i, name,
                                    (double)factors[i]);
        }
    }
    if (status == BT_OK) {
        status = bt_loader_buffer(loader, n_positions, rope->dims, ptr_p);
    }
    if ((status != BT_OK) || loader->dry) {
        goto out;
    }
    table = bt_calloc((size_t)n_positions * rope->dims, sizeof(*table));
    if (table == NULL) {
        status = bt_loader_fail(loader, BT_ERR_NO_MEMORY,
                                "out of memory for %u positions", n_positions);
        goto out;
    }
    fill(rope, n_positions, factors, table);
    status = loader->be->ops->copy_in(loader->be, *ptr_p, table,
                                      (size_t)n_positions * rope->dims *
                                          sizeof(*table));
    if (status != BT_OK) {
        bt_loader_fail(loader, status, "the position table: %s",
                       bt_status_str(status));
    }
out:
    bt_free(table);
    bt_free(factors);
    return status;
}
