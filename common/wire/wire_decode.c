/* SPDX-License-Identifier: Apache-2.0 */
#include <limits.h>
#include <string.h>

#include <msgpack.h>

#include "common/base/alloc.h"
#include "common/wire/wire_fields.h"

#define ZONE_CHUNK_BYTES 8192
#define MAX_UNKNOWN      16 /* types counted apart */

/* Memory that grows and is used again; no message needs two of a kind. */
typedef struct scratch {
    void *data;
    size_t cap;
} scratch_t;

/* Messages of a type that is not known here. */
typedef struct unknown {
    uint32_t type;
    uint64_t n;
    uint64_t next_said; /* 1, 10, 100 … */
} unknown_t;

struct bt_wire_decoder {
    msgpack_zone *zone;
    scratch_t blobs;   /* of one message, side by side */
    size_t blobs_used; /* bytes */
    size_t message_bytes;
    scratch_t items;
    scratch_t ids;
    scratch_t drafts;
    scratch_t lists;
    scratch_t bad_words;
    scratch_t biases;
    scratch_t tokens;
    scratch_t scores;
    unknown_t unknown[MAX_UNKNOWN];
    bt_wire_skip_t skipped;
};

bt_status_t bt_wire_decoder_create(bt_wire_decoder_t **dec_p)
{
    bt_wire_decoder_t *dec = bt_calloc(1, sizeof(*dec));

    if (dec == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    dec->zone = msgpack_zone_new(ZONE_CHUNK_BYTES);
    if (dec->zone == NULL) {
        bt_free(dec);
        return BT_ERR_NO_MEMORY;
    }
    *dec_p = dec;
    return BT_OK;
}

void bt_wire_decoder_destroy(bt_wire_decoder_t *dec)
{
    if (dec == NULL) {
        return;
    }
    bt_free(dec->scores.data);
    bt_free(dec->tokens.data);
    bt_free(dec->biases.data);
    bt_free(dec->bad_words.data);
    bt_free(dec->lists.data);
    bt_free(dec->drafts.data);
    bt_free(dec->ids.data);
    bt_free(dec->items.data);
    bt_free(dec->blobs.data);
    msgpack_zone_free(dec->zone);
    bt_free(dec);
}

static bt_status_t scratch_take(scratch_t *scratch, size_t n, size_t size,
                                void **data_p)
{
    const size_t bytes = n * size; /* both are bounded by the field table */

    if (bytes > scratch->cap) {
        void *data = bt_calloc(n, size);

        if (data == NULL) {
            return BT_ERR_NO_MEMORY;
        }
        bt_free(scratch->data);
        scratch->data = data;
        scratch->cap = bytes;
    }
    *data_p = (bytes == 0) ? NULL : scratch->data;
    return BT_OK;
}

static void store(char *base, size_t offset, const void *value, size_t size)
{
    memcpy(base + offset, value, size);
}

static bt_status_t read_u32(const msgpack_object *obj, uint32_t min,
                            uint32_t max, uint32_t *value_p)
{
    if ((obj->type != MSGPACK_OBJECT_POSITIVE_INTEGER) ||
        (obj->via.u64 < min) || (obj->via.u64 > max)) {
        return BT_ERR_BAD_MESSAGE;
    }
    *value_p = (uint32_t)obj->via.u64;
    return BT_OK;
}

static bt_status_t read_i32(const msgpack_object *obj, int32_t *value_p)
{
    if ((obj->type == MSGPACK_OBJECT_POSITIVE_INTEGER) &&
        (obj->via.u64 <= INT32_MAX)) {
        *value_p = (int32_t)obj->via.u64;
        return BT_OK;
    }
    if ((obj->type == MSGPACK_OBJECT_NEGATIVE_INTEGER) &&
        (obj->via.i64 >= INT32_MIN)) {
        *value_p = (int32_t)obj->via.i64;
        return BT_OK;
    }
    return BT_ERR_BAD_MESSAGE;
}

static bt_status_t read_str(const msgpack_object *obj, const field_t *field,
                            char *base)
{
    char *text = base + field->offset;
    const uint32_t n = obj->via.str.size;

    if ((obj->type != MSGPACK_OBJECT_STR) || (n >= field->max)) {
        return BT_ERR_BAD_MESSAGE;
    }
    for (uint32_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)obj->via.str.ptr[i];

        /* names and texts are logged: a line break would forge a line */
        if ((c < ' ') || (c == 0x7f)) {
            if (field->kind == FIELD_NAME) {
                return BT_ERR_BAD_MESSAGE;
            }
            text[i] = ' ';
        } else {
            text[i] = (char)c;
        }
    }
    text[n] = '\0';
    return BT_OK;
}

/* Token ids into memory of our own, which unlike the input is aligned. */
static bt_status_t read_ids(const msgpack_object *obj, uint32_t min,
                            uint32_t max, scratch_t *scratch, uint32_t *fixed,
                            uint32_t **ids_p, uint32_t *n_p)
{
    void *ids = fixed;
    bt_status_t status;
    uint32_t n;

    if ((obj->type != MSGPACK_OBJECT_BIN) ||
        (obj->via.bin.size % sizeof(uint32_t) != 0)) {
        return BT_ERR_BAD_MESSAGE;
    }
    n = obj->via.bin.size / (uint32_t)sizeof(uint32_t);
    if ((n < min) || (n > max)) {
        return BT_ERR_BAD_MESSAGE;
    }
    if (fixed == NULL) {
        status = scratch_take(scratch, n, sizeof(uint32_t), &ids);
        if (status != BT_OK) {
            return status;
        }
    }
    if (n > 0) {
        memcpy(ids, obj->via.bin.ptr, n * sizeof(uint32_t));
    }
    if (ids_p != NULL) {
        *ids_p = ids;
    }
    *n_p = n;
    return BT_OK;
}

static bt_status_t read_blob(bt_wire_decoder_t *dec, const msgpack_object *obj,
                             const field_t *field, char *base)
{
    const uint32_t n = obj->via.bin.size;
    uint8_t *data = NULL;

    if ((obj->type != MSGPACK_OBJECT_BIN) || (n < field->min) ||
        (n > field->max)) {
        return BT_ERR_BAD_MESSAGE;
    }
    if (n > 0) {
        void *all = dec->blobs.data;

        if (dec->blobs_used == 0) {
            /* All blobs of a message are no longer than it. */
            const bt_status_t status =
                scratch_take(&dec->blobs, dec->message_bytes, 1, &all);

            if (status != BT_OK) {
                return status;
            }
        }
        data = (uint8_t *)all + dec->blobs_used;
        dec->blobs_used += n;
        memcpy(data, obj->via.bin.ptr, n);
    }
    store(base, field->offset, &data, sizeof(data));
    store(base, field->count, &n, sizeof(n));
    return BT_OK;
}

/* Zeroed memory for the n elements of a field, to which it points. */
static bt_status_t take_items(scratch_t *scratch, const field_t *field,
                              uint32_t n, size_t size, char *base,
                              void *items_p)
{
    void *data = NULL;
    const bt_status_t status = scratch_take(scratch, n, size, &data);

    if (status != BT_OK) {
        return status;
    }
    if (n > 0) {
        memset(data, 0, n * size);
    }
    store(base, field->offset, &data, sizeof(data));
    store(base, field->count, &n, sizeof(n));
    memcpy(items_p, &data, sizeof(data));
    return BT_OK;
}

/* Zeroed memory for the elements of an array object. @param [out] items_p  a
 * pointer to the first */
static bt_status_t take_array(scratch_t *scratch, const msgpack_object *obj,
                              const field_t *field, size_t size, char *base,
                              void *items_p)
{
    return ((obj->type != MSGPACK_OBJECT_ARRAY) ||
            (obj->via.array.size > field->max))
               ? BT_ERR_BAD_MESSAGE
               : take_items(scratch, field, obj->via.array.size, size, base,
                            items_p);
}

static bt_status_t read_bad_words(bt_wire_decoder_t *dec,
                                  const msgpack_object *obj,
                                  const field_t *field, char *base)
{
    bt_bad_word_t *words = NULL;
    bt_status_t status =
        take_array(&dec->bad_words, obj, field, sizeof(*words), base, &words);

    for (uint32_t i = 0; (status == BT_OK) && (i < obj->via.array.size); i++) {
        status = read_ids(&obj->via.array.ptr[i], 1, BT_MAX_BAD_WORD_TOKENS,
                          NULL, words[i].ids, NULL, &words[i].n);
    }
    return status;
}

static bt_status_t read_biases(bt_wire_decoder_t *dec,
                               const msgpack_object *obj, const field_t *field,
                               char *base)
{
    const size_t size = sizeof(bt_logit_bias_t);
    bt_logit_bias_t *biases = NULL;
    bt_status_t status;

    if ((obj->type != MSGPACK_OBJECT_BIN) || (obj->via.bin.size % size != 0) ||
        (obj->via.bin.size / size > field->max)) {
        return BT_ERR_BAD_MESSAGE;
    }
    status = take_items(&dec->biases, field, obj->via.bin.size / (uint32_t)size,
                        size, base, &biases);
    if ((status == BT_OK) && (obj->via.bin.size > 0)) {
        memcpy(biases, obj->via.bin.ptr, obj->via.bin.size);
    }
    return status;
}

static bt_status_t read_list(bt_wire_decoder_t *dec, const msgpack_object *objs,
                             uint32_t n_objs, const field_list_t *list,
                             char *base);

static uint32_t load_u32(const char *base, size_t offset)
{
    uint32_t value;

    memcpy(&value, base + offset, sizeof(value));
    return value;
}

/* The blob of a list of one, of which the rest may follow or not. */
static bt_status_t read_only(bt_wire_decoder_t *dec, const msgpack_object *obj,
                             const field_t *field, char *base)
{
    char *item = NULL;
    bt_status_t status;

    if ((obj->type == MSGPACK_OBJECT_BIN) && (obj->via.bin.size == 0)) {
        return BT_OK; /* none or several: the list will say */
    }
    status = take_items(&dec->items, field, 1, field->item_bytes, base, &item);
    return (status == BT_OK)
               ? read_blob(dec, obj, bt_wire_blob_of(field->items), item)
               : status;
}

static bt_status_t read_items(bt_wire_decoder_t *dec, const msgpack_object *obj,
                              const field_t *field, char *base)
{
    const bool has_only = load_u32(base, field->count) == 1;
    const field_t *blob = bt_wire_blob_of(field->items);
    const uint32_t n = obj->via.array.size;
    const void *only = NULL;
    uint32_t only_bytes = 0;
    char *items = NULL;
    bt_status_t status;

    if ((obj->type != MSGPACK_OBJECT_ARRAY) || (n > field->max) ||
        (has_only && (n > 1))) {
        return BT_ERR_BAD_MESSAGE;
    }
    if (n == 0) {
        return BT_OK; /* list of one, from a peer that did not fill it, or
                         empty */
    }
    if (has_only) {
        const char *item = dec->items.data;

        memcpy(&only, item + blob->offset, sizeof(only));
        only_bytes = load_u32(item, blob->count);
    }
    status = take_items(&dec->items, field, n, field->item_bytes, base, &items);
    for (uint32_t i = 0; (status == BT_OK) && (i < n); i++) {
        const msgpack_object *item = &obj->via.array.ptr[i];
        char *at = items + i * field->item_bytes;

        if (item->type != MSGPACK_OBJECT_ARRAY) {
            return BT_ERR_BAD_MESSAGE;
        }
        status = read_list(dec, item->via.array.ptr, item->via.array.size,
                           field->items, at);
        /* The list is in one field or the other. */
        if ((status == BT_OK) &&
            ((load_u32(at, blob->count) == 0) != has_only)) {
            status = BT_ERR_BAD_MESSAGE;
        }
    }
    if ((status == BT_OK) && has_only) {
        store(items, blob->offset, &only, sizeof(only));
        store(items, blob->count, &only_bytes, sizeof(only_bytes));
    }
    return status;
}

static bt_status_t read_tokens(bt_wire_decoder_t *dec,
                               const msgpack_object *obj, const field_t *field,
                               char *base)
{
    bt_token_t *tokens = NULL;
    bt_status_t status =
        take_array(&dec->tokens, obj, field, sizeof(*tokens), base, &tokens);

    for (uint32_t i = 0; (status == BT_OK) && (i < obj->via.array.size); i++) {
        const msgpack_object *item = &obj->via.array.ptr[i];

        if (item->type != MSGPACK_OBJECT_ARRAY) {
            return BT_ERR_BAD_MESSAGE;
        }
        status = read_list(dec, item->via.array.ptr, item->via.array.size,
                           bt_wire_token_fields(), (char *)&tokens[i]);
    }
    return status;
}

/* Score with its alternatives: their number follows from its length. */
static bt_status_t read_score(const msgpack_object *item, bt_score_t *score,
                              uint32_t *token_p)
{
    const msgpack_object *bin = item->via.array.ptr + 1;
    uint32_t n_top;

    if ((item->type != MSGPACK_OBJECT_ARRAY) || (item->via.array.size < 2) ||
        (bin->type != MSGPACK_OBJECT_BIN) ||
        (bin->via.bin.size < BT_SCORE_BYTES(0))) {
        return BT_ERR_BAD_MESSAGE;
    }
    n_top = (bin->via.bin.size - BT_SCORE_BYTES(0)) /
            (BT_SCORE_BYTES(1) - BT_SCORE_BYTES(0));
    if ((n_top > BT_MAX_TOP_LOGPROBS) ||
        (bin->via.bin.size != BT_SCORE_BYTES(n_top))) {
        return BT_ERR_BAD_MESSAGE;
    }
    bt_score_get((const uint8_t *)bin->via.bin.ptr, n_top, score);
    return read_u32(item->via.array.ptr, 0, UINT32_MAX, token_p);
}

static bt_status_t read_scores(bt_wire_decoder_t *dec,
                               const msgpack_object *obj, const field_t *field,
                               char *base)
{
    bt_token_score_t *scores = NULL;
    bt_status_t status =
        take_array(&dec->scores, obj, field, sizeof(*scores), base, &scores);

    for (uint32_t i = 0; (status == BT_OK) && (i < obj->via.array.size); i++) {
        status = read_score(&obj->via.array.ptr[i], &scores[i].score,
                            &scores[i].token);
    }
    return status;
}

static bt_status_t read_number(const msgpack_object *obj, const field_t *field,
                               char *base)
{
    bt_status_t status;
    uint32_t u32;
    int32_t i32;
    float f32;

    if (field->kind == FIELD_U32) {
        status = read_u32(obj, field->min, field->max, &u32);
        if (status == BT_OK) {
            store(base, field->offset, &u32, sizeof(u32));
        }
        return status;
    }
    if (field->kind == FIELD_I32) {
        status = read_i32(obj, &i32);
        if (status == BT_OK) {
            store(base, field->offset, &i32, sizeof(i32));
        }
        return status;
    }
    if (field->kind == FIELD_U64) {
        if (obj->type != MSGPACK_OBJECT_POSITIVE_INTEGER) {
            return BT_ERR_BAD_MESSAGE;
        }
        store(base, field->offset, &obj->via.u64, sizeof(obj->via.u64));
        return BT_OK;
    }
    if (obj->type != MSGPACK_OBJECT_FLOAT32) {
        return BT_ERR_BAD_MESSAGE;
    }
    f32 = (float)obj->via.f64; /* exact: it came from 32 bits */
    store(base, field->offset, &f32, sizeof(f32));
    return BT_OK;
}

/* Appended to existing ones: there are more only if the first field is full. */
static bt_status_t read_end_ids(const msgpack_object *obj, const field_t *field,
                                char *base)
{
    const bool is_first = field->kind == FIELD_END_IDS;
    uint32_t ids[BT_MAX_END_IDS] = {0};
    uint32_t before = 0;
    bt_status_t status;
    uint32_t n;

    if (!is_first) {
        memcpy(&before, base + field->count, sizeof(before));
    }
    status = read_ids(obj, 0, field->max - before, NULL, ids, NULL, &n);
    if (status != BT_OK) {
        return status;
    }
    if (!is_first && (n > 0) && (before != BT_WIRE_FIRST_END_IDS)) {
        return BT_ERR_BAD_MESSAGE;
    }
    store(base, field->offset + before * sizeof(ids[0]), ids,
          n * sizeof(ids[0]));
    n += before;
    store(base, field->count, &n, sizeof(n));
    return BT_OK;
}

static bt_status_t read_field(bt_wire_decoder_t *dec, const msgpack_object *obj,
                              const field_t *field, char *base)
{
    bt_status_t status;
    uint32_t *ids = NULL;
    uint32_t n;

    switch (field->kind) {
    case FIELD_NAME:
    case FIELD_TEXT:
        return read_str(obj, field, base);
    case FIELD_BLOB:
        return read_blob(dec, obj, field, base);
    case FIELD_IDS:
    case FIELD_DRAFTS:
    case FIELD_LISTS:
        status = read_ids(obj, field->min, field->max,
                          (field->kind == FIELD_IDS)      ? &dec->ids
                          : (field->kind == FIELD_DRAFTS) ? &dec->drafts
                                                          : &dec->lists,
                          NULL, &ids, &n);
        if (status == BT_OK) {
            store(base, field->offset, &ids, sizeof(ids));
            store(base, field->count, &n, sizeof(n));
        }
        return status;
    case FIELD_END_IDS:
    case FIELD_MORE_IDS:
        return read_end_ids(obj, field, base);
    case FIELD_BAD:
        return read_bad_words(dec, obj, field, base);
    case FIELD_BIASES:
        return read_biases(dec, obj, field, base);
    case FIELD_TOKENS:
        return read_tokens(dec, obj, field, base);
    case FIELD_SCORES:
        return read_scores(dec, obj, field, base);
    case FIELD_ONLY:
        return read_only(dec, obj, field, base);
    case FIELD_ITEMS:
        return read_items(dec, obj, field, base);
    case FIELD_PROCESSORS:
        return (obj->type != MSGPACK_OBJECT_ARRAY)
                   ? BT_ERR_BAD_MESSAGE
                   : read_list(dec, obj->via.array.ptr, obj->via.array.size,
                               bt_wire_processor_fields(),
                               base + field->offset);
    case FIELD_SAMPLING:
        if (obj->type != MSGPACK_OBJECT_ARRAY) {
            return BT_ERR_BAD_MESSAGE;
        }
        return read_list(dec, obj->via.array.ptr, obj->via.array.size,
                         bt_wire_sampling_fields(), base + field->offset);
    default:
        return read_number(obj, field, base);
    }
}

/* List from an older peer: fields that were not sent are zero already,
 * except those with another default. */
static void fill_rest(const field_list_t *list, size_t n_sent, char *base)
{
    for (size_t i = n_sent; i < list->n; i++) {
        const field_t *field = &list->fields[i];

        if (field->like != NULL) {
            memcpy(base + field->offset, base + field->like->offset,
                   sizeof(uint32_t));
        } else if (field->otherwise != 0) {
            store(base, field->offset, &field->otherwise,
                  sizeof(field->otherwise));
        }
    }
}

/* The structure at @a base must be zero. */
static bt_status_t read_list(bt_wire_decoder_t *dec, const msgpack_object *objs,
                             uint32_t n_objs, const field_list_t *list,
                             char *base)
{
    if (n_objs < list->n_required) {
        return BT_ERR_BAD_MESSAGE;
    }
    for (size_t i = 0; (i < list->n) && (i < n_objs); i++) {
        const bt_status_t status =
            read_field(dec, &objs[i], &list->fields[i], base);

        if (status != BT_OK) {
            return status;
        }
    }
    fill_rest(list, n_objs, base);
    return BT_OK;
}

static void count_unknown(bt_wire_decoder_t *dec, uint32_t type)
{
    unknown_t *u = dec->unknown;

    while ((u->n > 0) && (u->type != type) &&
           (u < &dec->unknown[MAX_UNKNOWN - 1])) {
        u++;
    }
    if (u->n == 0) {
        u->type = type;
        u->next_said = 1;
    }
    u->n++;
    dec->skipped = (bt_wire_skip_t){
        .type = type, .n = u->n, .say = (u->n == u->next_said)};
    if (dec->skipped.say) {
        u->next_said *= 10;
    }
}

bt_wire_skip_t bt_wire_skipped(const bt_wire_decoder_t *dec)
{
    return dec->skipped;
}

bt_status_t bt_wire_decode(bt_wire_decoder_t *dec, const void *data,
                           size_t bytes, bt_msg_t *msg_p)
{
    const field_list_t *list;
    msgpack_object root;
    bt_status_t status;
    bt_msg_t msg;
    uint32_t type;
    size_t offset = 0;

    /* Objects take some 20 times the memory of their bytes, so their number
     * and nesting are checked before msgpack-c builds any. */
    if (bytes > BT_WIRE_MAX_BYTES) {
        return BT_ERR_BAD_MESSAGE;
    }
    status = bt_wire_scan(data, bytes);
    if (status != BT_OK) {
        return status;
    }
    dec->message_bytes = bytes;
    dec->blobs_used = 0;
    msgpack_zone_clear(dec->zone);
    switch (msgpack_unpack(data, bytes, &offset, dec->zone, &root)) {
    case MSGPACK_UNPACK_SUCCESS:
        break;
    case MSGPACK_UNPACK_NOMEM_ERROR:
        return BT_ERR_NO_MEMORY;
    default:
        return BT_ERR_BAD_MESSAGE;
    }
    if ((root.type != MSGPACK_OBJECT_ARRAY) || (root.via.array.size == 0) ||
        (read_u32(&root.via.array.ptr[0], 1, UINT32_MAX, &type) != BT_OK)) {
        return BT_ERR_BAD_MESSAGE;
    }
    list = bt_wire_fields(type);
    if (list == NULL) {
        count_unknown(dec, type);
        return BT_ERR_UNSUPPORTED;
    }
    memset(&msg, 0, sizeof(msg));
    msg.type = (bt_msg_type_t)type;
    status = read_list(dec, root.via.array.ptr + 1, root.via.array.size - 1,
                       list, (char *)&msg.u);
    if (status != BT_OK) {
        return status;
    }
    if (!bt_wire_message_fits(&msg)) {
        return BT_ERR_BAD_MESSAGE;
    }
    *msg_p = msg;
    return BT_OK;
}
