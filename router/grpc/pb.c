/* SPDX-License-Identifier: Apache-2.0 */
#include "router/grpc/pb.h"

#include <stddef.h>

#include "common/base/alloc.h"

/* Cost of an allocation besides its bytes. */
#define OVERHEAD 16

static void *budget_alloc(void *data, size_t bytes)
{
    bt_pb_budget_t *budget = data;
    void *ptr = NULL;

    if ((bytes <= budget->left) && (OVERHEAD <= budget->left - bytes)) {
        /* One byte more, since size 0 may return NULL. */
        ptr = bt_realloc_array(NULL, 1, bytes + 1);
    }
    if (ptr == NULL) {
        budget->refused = true;
        return NULL;
    }
    budget->left -= bytes + OVERHEAD;
    return ptr;
}

static void budget_free(void *data, void *ptr)
{
    (void)data;
    bt_free(ptr);
}

void bt_pb_budget_init(bt_pb_budget_t *budget, size_t message_bytes)
{
    *budget = (bt_pb_budget_t){.allocator = {.alloc = budget_alloc,
                                             .free = budget_free,
                                             .allocator_data = budget},
                               .left = message_bytes * BT_PB_BUDGET_FACTOR +
                                       BT_PB_BUDGET_BYTES};
}

bt_status_t bt_pb_read(bt_pb_budget_t *budget,
                       const ProtobufCMessageDescriptor *what, const void *data,
                       size_t bytes, ProtobufCMessage **message_p)
{
    /* An empty message may come with a NULL pointer. */
    static const uint8_t nothing;
    ProtobufCMessage *message = protobuf_c_message_unpack(
        what, &budget->allocator, bytes, (bytes > 0) ? data : &nothing);

    if (message == NULL) {
        return budget->refused ? BT_ERR_TOO_LARGE : BT_ERR_BAD_MESSAGE;
    }
    *message_p = message;
    return BT_OK;
}

void bt_pb_free(bt_pb_budget_t *budget, ProtobufCMessage *message)
{
    protobuf_c_message_free_unpacked(message, &budget->allocator);
}

/* ---- writing ---- */

char *bt_pb_text(const char *borrowed)
{
    union {
        const char *from;
        char *to;
    } cast = {.from = (borrowed == NULL) ? "" : borrowed};

    return cast.to;
}

typedef struct bt_pb_block {
    struct bt_pb_block *next;
    max_align_t data[];
} bt_pb_block_t;

void *bt_pb_scratch_take(bt_pb_scratch_t *scratch, size_t n, size_t size)
{
    bt_pb_block_t *block = NULL;
    size_t bytes;

    if (!scratch->failed && !__builtin_mul_overflow(n, size, &bytes)) {
        block = bt_calloc(1, sizeof(*block) + bytes);
    }
    if (block == NULL) {
        scratch->failed = true;
        return NULL;
    }
    block->next = scratch->blocks;
    scratch->blocks = block;
    return block->data;
}

void bt_pb_scratch_fini(bt_pb_scratch_t *scratch)
{
    while (scratch->blocks != NULL) {
        bt_pb_block_t *block = scratch->blocks;

        scratch->blocks = block->next;
        bt_free(block);
    }
}

void bt_pb_write(const ProtobufCMessage *message, bt_strbuf_t *out)
{
    const size_t bytes = protobuf_c_message_get_packed_size(message);

    if ((bytes == 0) || (bytes > out->limit - out->len)) {
        if (bytes > 0) {
            out->status = BT_ERR_TOO_LARGE;
        }
        return;
    }
    bt_strbuf_reserve(out, out->len + bytes);
    if (bt_strbuf_status(out) == BT_OK) {
        (void)protobuf_c_message_pack(message, (uint8_t *)out->data + out->len);
        out->len += bytes;
        out->data[out->len] = '\0';
    }
}
