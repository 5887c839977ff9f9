/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include <msgpack.h>

#include "common/wire/wire_fields.h"

/* Ids travel as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "the wire format is little endian");
_Static_assert(sizeof(bt_logit_bias_t) == 8, "they travel as they lie, too");

static int to_strbuf(void *data, const char *bytes, size_t n)
{
    bt_strbuf_append(data, bytes, n);
    return 0; /* errors stick in the buffer */
}

static void refuse(bt_strbuf_t *out)
{
    if (out->status == BT_OK) {
        out->status = BT_ERR_INVALID_PARAM;
    }
}

static uint32_t load_u32(const char *base, size_t offset)
{
    uint32_t value;

    memcpy(&value, base + offset, sizeof(value));
    return value;
}

static const void *load_ptr(const char *base, size_t offset)
{
    const void *ptr;

    memcpy(&ptr, base + offset, sizeof(ptr));
    return ptr;
}

static void pack_bin(msgpack_packer *pk, const void *data, size_t bytes)
{
    msgpack_pack_bin(pk, bytes);
    msgpack_pack_bin_body(pk, data, bytes);
}

static void pack_str(msgpack_packer *pk, bt_strbuf_t *out, const char *text,
                     const field_t *field)
{
    const size_t n = strnlen(text, field->max);
    char clean[BT_WIRE_MAX_TEXT];

    if ((n >= field->max) || (n > sizeof(clean))) {
        refuse(out);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];

        clean[i] = text[i];
        if ((c < ' ') || (c == 0x7f)) {
            clean[i] = ' ';
            if (field->kind == FIELD_NAME) {
                refuse(out);
            }
        }
    }
    msgpack_pack_str(pk, n);
    msgpack_pack_str_body(pk, clean, n);
}

static void pack_bad_words(msgpack_packer *pk, const bt_bad_word_t *words,
                           uint32_t n)
{
    msgpack_pack_array(pk, n);
    for (uint32_t i = 0; i < n; i++) {
        pack_bin(pk, words[i].ids, words[i].n * sizeof(words[i].ids[0]));
    }
}

static void pack_field(msgpack_packer *pk, bt_strbuf_t *out,
                       const field_t *field, const char *base);
static void pack_list(msgpack_packer *pk, bt_strbuf_t *out,
                      const field_list_t *list, const char *base);

static void pack_tokens(msgpack_packer *pk, bt_strbuf_t *out,
                        const bt_token_t *tokens, uint32_t n)
{
    const field_list_t *list = bt_wire_token_fields();

    msgpack_pack_array(pk, n);
    for (uint32_t i = 0; i < n; i++) {
        msgpack_pack_array(pk, list->n);
        pack_list(pk, out, list, (const char *)&tokens[i]);
    }
}

static void pack_scores(msgpack_packer *pk, const bt_token_score_t *scores,
                        uint32_t n)
{
    uint8_t bytes[BT_SCORE_BYTES(BT_MAX_TOP_LOGPROBS)];

    msgpack_pack_array(pk, n);
    for (uint32_t i = 0; i < n; i++) {
        bt_score_put(&scores[i].score, bytes);
        msgpack_pack_array(pk, 2);
        msgpack_pack_uint32(pk, scores[i].token);
        pack_bin(pk, bytes, BT_SCORE_BYTES(scores[i].score.n_top));
    }
}

static int blobs_fit(const field_t *field, const char *items, uint32_t n)
{
    const field_t *blob = bt_wire_blob_of(field->items);

    for (uint32_t i = 0; i < n; i++) {
        const char *item = items + i * field->item_bytes;
        const uint32_t bytes = load_u32(item, blob->count);

        if ((bytes == 0) || (bytes > blob->max) ||
            (load_ptr(item, blob->offset) == NULL)) {
            return 0;
        }
    }
    return 1;
}

/* A list of one has its blob only in the older field for single items. */
static void pack_items(msgpack_packer *pk, bt_strbuf_t *out,
                       const field_t *field, const char *items, uint32_t n)
{
    const field_t *blob = bt_wire_blob_of(field->items);

    if (!blobs_fit(field, items, n)) {
        refuse(out);
        return;
    }
    if (field->kind == FIELD_ONLY) {
        pack_bin(pk, (n == 1) ? load_ptr(items, blob->offset) : NULL,
                 (n == 1) ? load_u32(items, blob->count) : 0);
        return;
    }
    msgpack_pack_array(pk, n);
    for (uint32_t i = 0; i < n; i++) {
        msgpack_pack_array(pk, field->items->n);
        for (size_t k = 0; k < field->items->n; k++) {
            const field_t *part = &field->items->fields[k];

            if ((n == 1) && (part == blob)) {
                pack_bin(pk, NULL, 0);
            } else {
                pack_field(pk, out, part, items + i * field->item_bytes);
            }
        }
    }
}

/* Part of one list: the first items, or those after them. */
static void pack_end_ids(msgpack_packer *pk, bt_strbuf_t *out,
                         const field_t *field, const char *base)
{
    const uint32_t n = load_u32(base, field->count);
    const uint32_t first =
        (n < BT_WIRE_FIRST_END_IDS) ? n : BT_WIRE_FIRST_END_IDS;
    const uint32_t from = (field->kind == FIELD_MORE_IDS) ? first : 0;
    const uint32_t to = (field->kind == FIELD_MORE_IDS) ? n : first;

    if (n > BT_MAX_END_IDS) {
        refuse(out);
        return;
    }
    pack_bin(pk, base + field->offset + from * sizeof(uint32_t),
             (to - from) * sizeof(uint32_t));
}

static void pack_counted(msgpack_packer *pk, bt_strbuf_t *out,
                         const field_t *field, const char *base)
{
    const uint32_t n = load_u32(base, field->count);
    const void *items = load_ptr(base, field->offset);

    if ((n < field->min) || (n > field->max) || ((n > 0) && (items == NULL))) {
        refuse(out);
        return;
    }
    switch (field->kind) {
    case FIELD_BLOB:
        pack_bin(pk, items, n);
        break;
    case FIELD_IDS:
    case FIELD_DRAFTS:
    case FIELD_LISTS:
        pack_bin(pk, items, n * sizeof(uint32_t));
        break;
    case FIELD_BIASES:
        pack_bin(pk, items, n * sizeof(bt_logit_bias_t));
        break;
    case FIELD_BAD:
        pack_bad_words(pk, items, n);
        break;
    case FIELD_ONLY:
    case FIELD_ITEMS:
        pack_items(pk, out, field, items, n);
        break;
    case FIELD_SCORES:
        pack_scores(pk, items, n);
        break;
    default:
        pack_tokens(pk, out, items, n);
        break;
    }
}

static void pack_processors(msgpack_packer *pk, bt_strbuf_t *out,
                            const char *base)
{
    static const bt_processor_options_t off;

    if (memcmp(base, &off, sizeof(off)) == 0) {
        msgpack_pack_array(pk, 0);
        return;
    }
    msgpack_pack_array(pk, bt_wire_processor_fields()->n);
    pack_list(pk, out, bt_wire_processor_fields(), base);
}

static void pack_field(msgpack_packer *pk, bt_strbuf_t *out,
                       const field_t *field, const char *base)
{
    uint64_t u64;
    int32_t i32;
    float f32;

    switch (field->kind) {
    case FIELD_U32:
        if ((load_u32(base, field->offset) < field->min) ||
            (load_u32(base, field->offset) > field->max)) {
            refuse(out);
            return;
        }
        msgpack_pack_uint32(pk, load_u32(base, field->offset));
        break;
    case FIELD_U64:
        memcpy(&u64, base + field->offset, sizeof(u64));
        msgpack_pack_uint64(pk, u64);
        break;
    case FIELD_I32:
        memcpy(&i32, base + field->offset, sizeof(i32));
        msgpack_pack_int32(pk, i32);
        break;
    case FIELD_F32:
        memcpy(&f32, base + field->offset, sizeof(f32));
        msgpack_pack_float(pk, f32);
        break;
    case FIELD_NAME:
    case FIELD_TEXT:
        pack_str(pk, out, base + field->offset, field);
        break;
    case FIELD_SAMPLING:
        msgpack_pack_array(pk, bt_wire_sampling_fields()->n);
        pack_list(pk, out, bt_wire_sampling_fields(), base + field->offset);
        break;
    case FIELD_PROCESSORS:
        pack_processors(pk, out, base + field->offset);
        break;
    case FIELD_END_IDS:
    case FIELD_MORE_IDS:
        pack_end_ids(pk, out, field, base);
        break;
    case FIELD_BLOB:
    case FIELD_IDS:
    case FIELD_DRAFTS:
    case FIELD_LISTS:
    case FIELD_BAD:
    case FIELD_BIASES:
    case FIELD_TOKENS:
    case FIELD_SCORES:
    case FIELD_ONLY:
    case FIELD_ITEMS:
        pack_counted(pk, out, field, base);
        break;
    }
}

static void pack_list(msgpack_packer *pk, bt_strbuf_t *out,
                      const field_list_t *list, const char *base)
{
    for (size_t i = 0; (i < list->n) && (out->status == BT_OK); i++) {
        pack_field(pk, out, &list->fields[i], base);
    }
}

void bt_wire_encode(const bt_msg_t *msg, bt_strbuf_t *out)
{
    const field_list_t *list = bt_wire_fields(msg->type);
    msgpack_packer pk;

    if ((list == NULL) || !bt_wire_message_fits(msg)) {
        refuse(out);
        return;
    }
    msgpack_packer_init(&pk, out, to_strbuf);
    msgpack_pack_array(&pk, list->n + 1);
    msgpack_pack_uint32(&pk, msg->type);
    pack_list(&pk, out, list, (const char *)&msg->u);
}
