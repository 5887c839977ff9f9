/* SPDX-License-Identifier: Apache-2.0 */
/* Adapters in GGUF, as llama.cpp's convert_lora_to_gguf.py writes them:
 * general.type "adapter", adapter.type "lora", and for each tensor of the model
 * NAME.lora_a (rank, n_in) and NAME.lora_b (n_out, rank), whose rows have the
 * model's order. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/text.h"
#include "inference/adapter/adapter_priv.h"

#define NAME_BYTES 128
#define A_TAIL     ".lora_a"
#define B_TAIL     ".lora_b"

static bool is_text(const bt_gguf_t *gguf, const char *key, const char *text)
{
    bt_gguf_str_t value;

    return (bt_gguf_get_str(gguf, key, &value) == BT_OK) &&
           bt_gguf_str_is(value, text);
}

static bt_status_t check_kind(bt_adapter_build_t *build, const bt_gguf_t *gguf)
{
    if (!is_text(gguf, "general.type", "adapter") ||
        !is_text(gguf, "adapter.type", "lora")) {
        return bt_adapter_fail(build, BT_ERR_UNSUPPORTED,
                               "the file is not a LoRA adapter (general.type "
                               "adapter, adapter.type lora)");
    }
    if (!is_text(gguf, "general.architecture", build->model.arch)) {
        return bt_adapter_fail(build, BT_ERR_MISMATCH,
                               "the adapter is for another architecture than "
                               "the model's, %s",
                               build->model.arch);
    }
    if (bt_gguf_has(gguf, "adapter.alora.invocation_tokens")) {
        return bt_adapter_fail(build, BT_ERR_UNSUPPORTED,
                               "adapter.alora.invocation_tokens: activated "
                               "LoRA is not supported");
    }
    return BT_OK;
}

static bool ends_with(bt_gguf_str_t name, const char *tail)
{
    const size_t n = strlen(tail);

    return (name.len > n) && (memcmp(name.data + name.len - n, tail, n) == 0);
}

/* "blk.3.attn_q.weight.lora_a" → layer 3, "attn_q". */
static bool read_name(bt_gguf_str_t name, bt_hf_module_part_t *part)
{
    char text[NAME_BYTES];
    char *end;
    char *at = text + strlen("blk.");
    size_t n;

    if (name.len >= sizeof(text)) {
        return false;
    }
    memcpy(text, name.data, name.len);
    text[name.len - strlen(A_TAIL)] = '\0';
    *part = (bt_hf_module_part_t){0};
    if ((strncmp(text, "blk.", strlen("blk.")) != 0) || (*at < '0') ||
        (*at > '9')) {
        return false;
    }
    part->layer = (uint32_t)strtoul(at, &end, 10);
    if ((end - at > 6) || (*end != '.')) {
        return false;
    }
    at = end + 1;
    n = strlen(at);
    if ((n <= strlen(".weight")) ||
        (strcmp(at + n - strlen(".weight"), ".weight") != 0)) {
        return false;
    }
    n -= strlen(".weight");
    if (n >= sizeof(part->product)) {
        return false;
    }
    memcpy(part->product, at, n);
    return true;
}

static bool is_number(const bt_gguf_tensor_t *t)
{
    return (t->n_dims <= 2) &&
           ((t->type == BT_ADAPTER_F32) || (t->type == BT_ADAPTER_F16) ||
            (t->type == BT_ADAPTER_BF16));
}

static bt_status_t add_pair(bt_adapter_build_t *build, const bt_gguf_t *gguf,
                            const bt_gguf_tensor_t *a, double alpha)
{
    const bt_printable_t shown = bt_printable(a->name.data, a->name.len);
    bt_hf_module_part_t part;
    char name[NAME_BYTES];
    const bt_gguf_tensor_t *b;
    bt_adapter_source_t source;

    if (!read_name(a->name, &part)) {
        return bt_adapter_fail(build, BT_ERR_UNSUPPORTED,
                               "tensor %s: adapters of it are not computed",
                               shown.text);
    }
    snprintf(name, sizeof(name), "%.*s%s", (int)(a->name.len - strlen(A_TAIL)),
             a->name.data, B_TAIL);
    b = bt_gguf_tensor(gguf, name);
    if ((b == NULL) || !is_number(a) || !is_number(b) ||
        (a->dims[1] != b->dims[0])) {
        return bt_adapter_fail(build, BT_ERR_BAD_FILE,
                               "tensor %s and its lora_b are not two matrices "
                               "of F32, F16 or BF16 with one rank",
                               shown.text);
    }
    source = (bt_adapter_source_t){
        .name = a->name.data,
        .len = a->name.len,
        .a = a->data,
        .b = b->data,
        .a_type = a->type,
        .b_type = b->type,
        .rank = a->dims[1],
        .n_in = a->dims[0],
        .n_out = b->dims[1],
        .scale = (alpha != 0.0) ? (float)(alpha / (double)a->dims[1]) : 1.0f,
    };
    return bt_adapter_add(build, &source, &part);
}

static bt_status_t check_pair(bt_adapter_build_t *build, const bt_gguf_t *gguf,
                              const bt_gguf_tensor_t *b)
{
    char name[NAME_BYTES];

    snprintf(name, sizeof(name), "%.*s%s", (int)(b->name.len - strlen(B_TAIL)),
             b->name.data, A_TAIL);
    return (bt_gguf_tensor(gguf, name) != NULL)
               ? BT_OK
               : bt_adapter_fail(build, BT_ERR_BAD_FILE,
                                 "tensor %s has no lora_a",
                                 bt_printable(b->name.data, b->name.len).text);
}

static bt_status_t read_all(bt_adapter_build_t *build, const bt_gguf_t *gguf)
{
    float alpha = 0.0f;
    bt_status_t status = check_kind(build, gguf);

    if ((status == BT_OK) && (bt_gguf_get_f32(gguf, "adapter.lora.alpha",
                                              &alpha) == BT_ERR_BAD_FILE)) {
        status = bt_adapter_fail(build, BT_ERR_BAD_FILE,
                                 "adapter.lora.alpha is not a number");
    }
    for (uint64_t i = 0; (status == BT_OK) && (i < bt_gguf_n_tensors(gguf));
         i++) {
        const bt_gguf_tensor_t *const t = bt_gguf_tensor_at(gguf, i);

        if (ends_with(t->name, A_TAIL)) {
            status = add_pair(build, gguf, t, (double)alpha);
        } else if (ends_with(t->name, B_TAIL)) {
            status = check_pair(build, gguf, t);
        } else {
            status = bt_adapter_fail(
                build, BT_ERR_UNSUPPORTED,
                "tensor %s is no matrix of LoRA; its effect would be missing",
                bt_printable(t->name.data, t->name.len).text);
        }
    }
    return status;
}

bt_status_t bt_adapter_read_gguf(bt_adapter_build_t *build, const char *path)
{
    bt_gguf_t *gguf = NULL;
    bt_status_t status =
        bt_gguf_open(path, build->why, build->why_bytes, &gguf);

    if (status != BT_OK) {
        return status;
    }
    status = read_all(build, gguf);
    bt_gguf_close(gguf);
    return status;
}
