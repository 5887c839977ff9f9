/* SPDX-License-Identifier: Apache-2.0 */
/* Decoder of a tokenizer.json. Whether tokens are bytes and whether a mark is a
 * space is already known; the decoder determines only what happens to leading
 * spaces of a text. */
#include <string.h>

#include "common/base/status.h"
#include "inference/hf/vocab.h"

#define FILE_NAME  "tokenizer.json"
#define SPACE_MARK "\xE2\x96\x81" /* U+2581 */

static bt_status_t read_bytes(bt_hf_t *hf, bt_hf_vocab_t *v,
                              const bt_json_node_t *step, bool is_last)
{
    (void)is_last;
    return (v->words == BT_HF_BYTES)
               ? BT_OK
               : bt_hf_not_supported(hf,
                                     "decoder, without a pre-tokenizer "
                                     "like it,",
                                     bt_hf_member(v, step, "type"));
}

/* Accepts a step that is implied by tokens that are text. */
static bt_status_t read_nothing(bt_hf_t *hf, bt_hf_vocab_t *v,
                                const bt_json_node_t *step, bool is_last)
{
    (void)hf;
    (void)v;
    (void)step;
    (void)is_last;
    return BT_OK;
}

static bt_status_t read_fuse(bt_hf_t *hf, bt_hf_vocab_t *v,
                             const bt_json_node_t *step, bool is_last)
{
    v->is_fused = true;
    return read_nothing(hf, v, step, is_last);
}

static bt_status_t read_replace(bt_hf_t *hf, bt_hf_vocab_t *v,
                                const bt_json_node_t *step, bool is_last)
{
    const bt_json_node_t *const pattern = bt_hf_member(v, step, "pattern");

    (void)is_last;
    if (!v->marks_spaces ||
        !bt_json_is(bt_hf_member(v, pattern, "String"), SPACE_MARK) ||
        !bt_json_is(bt_hf_member(v, step, "content"), " ")) {
        return bt_hf_not_supported(hf, "Replace of the decoder, of",
                                   bt_hf_member(v, pattern, "String"));
    }
    return BT_OK;
}

static bt_status_t read_metaspace(bt_hf_t *hf, bt_hf_vocab_t *v,
                                  const bt_json_node_t *step, bool is_last)
{
    const bt_json_node_t *const adds =
        bt_hf_member(v, step, "add_prefix_space");

    (void)is_last;
    if (!v->marks_spaces ||
        !bt_json_is(bt_hf_member(v, step, "replacement"), SPACE_MARK)) {
        return bt_hf_not_supported(hf, "Metaspace of the decoder, of",
                                   bt_hf_member(v, step, "replacement"));
    }
    if (!((adds != NULL) && (adds->kind == BT_JSON_FALSE)) &&
        !bt_json_is(bt_hf_member(v, step, "prepend_scheme"), "never")) {
        v->first_space = "drop_all";
    }
    return BT_OK;
}

static bt_status_t read_strip(bt_hf_t *hf, bt_hf_vocab_t *v,
                              const bt_json_node_t *step, bool is_last)
{
    uint64_t start = 0;
    uint64_t stop = 0;

    (void)is_last;
    if (!bt_json_as_u64(bt_hf_member(v, step, "start"), &start) ||
        !bt_json_as_u64(bt_hf_member(v, step, "stop"), &stop) || (start > 1) ||
        !v->is_fused || (stop != 0) ||
        !bt_json_is(bt_hf_member(v, step, "content"), " ")) {
        return bt_hf_fail(hf, BT_ERR_UNSUPPORTED,
                          FILE_NAME ": a Strip of the decoder of more than the "
                                    "first space is not supported");
    }
    if (start == 1) {
        v->first_space = "drop";
    }
    return BT_OK;
}

static bt_status_t read_step(bt_hf_t *hf, bt_hf_vocab_t *v,
                             const bt_json_node_t *step, bool is_last)
{
    static const struct {
        const char *type;
        bt_hf_step_fn read;
    } kinds[] = {
        {"ByteLevel", read_bytes},     {"ByteFallback", read_nothing},
        {"Fuse", read_fuse},           {"Replace", read_replace},
        {"Metaspace", read_metaspace}, {"Strip", read_strip},
    };
    const bt_json_node_t *const type = bt_hf_member(v, step, "type");

    for (size_t i = 0; i < BT_ARRAY_LEN(kinds); i++) {
        if (bt_json_is(type, kinds[i].type)) {
            return kinds[i].read(hf, v, step, is_last);
        }
    }
    return bt_hf_not_supported(hf, "decoder", type);
}

bt_status_t bt_hf_read_decoder(bt_hf_t *hf, bt_hf_vocab_t *v)
{
    v->first_space = "keep";
    return bt_hf_each_step(hf, v, bt_hf_member(v, v->root, "decoder"),
                           "decoders", read_step);
}
