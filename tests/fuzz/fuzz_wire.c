/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "common/base/status.h"
#include "common/wire/wire.h"

static volatile uint64_t sink;

static void touch(const void *data, size_t n)
{
    BT_ASSERT_ALWAYS((n == 0) || (data != NULL));
    for (size_t i = 0; i < n; i++) {
        sink += ((const uint8_t *)data)[i];
    }
}

static void touch_sampling(const bt_sampling_t *s)
{
    const char *why = "";

    BT_ASSERT_ALWAYS(bt_sampling_check(s, &why) == BT_OK);
    touch(s->bad_words, s->n_bad_words * sizeof(*s->bad_words));
    touch(s->logit_biases, s->n_logit_biases * sizeof(*s->logit_biases));
}

static void touch_ranks(const bt_wire_rank_t *ranks, uint32_t n)
{
    BT_ASSERT_ALWAYS(n <= BT_WIRE_MAX_RANKS);
    for (uint32_t i = 0; i < n; i++) {
        BT_ASSERT_ALWAYS(ranks[i].kvt_bytes > 0);
        touch(ranks[i].kvt, ranks[i].kvt_bytes);
    }
}

/* Everything that a message points to must be there. */
static void touch_message(const bt_msg_t *m)
{
    switch (m->type) {
    case BT_MSG_HELLO:
        BT_ASSERT_ALWAYS(strnlen(m->u.hello.name, BT_WIRE_MAX_NAME) <
                         BT_WIRE_MAX_NAME);
        touch_ranks(m->u.hello.ranks, m->u.hello.n_ranks);
        break;
    case BT_MSG_REQUEST:
        touch(m->u.request.tokens,
              m->u.request.n_tokens * sizeof(*m->u.request.tokens));
        touch_sampling(&m->u.request.sampling);
        break;
    case BT_MSG_GRANT:
        for (uint32_t i = 0; i < m->u.grant.n_regions; i++) {
            touch(m->u.grant.regions[i].blob, m->u.grant.regions[i].blob_bytes);
        }
        break;
    case BT_MSG_TOKENS:
        touch(m->u.tokens.tokens, m->u.tokens.n * sizeof(*m->u.tokens.tokens));
        break;
    case BT_MSG_FAILED:
        BT_ASSERT_ALWAYS(strnlen(m->u.failed.text, BT_WIRE_MAX_TEXT) <
                         BT_WIRE_MAX_TEXT);
        break;
    case BT_MSG_PEER:
        touch_ranks(m->u.peer.ranks, m->u.peer.n_ranks);
        break;
    default:
        break;
    }
}

static bt_wire_decoder_t *decoder(void)
{
    bt_wire_decoder_t *dec;

    BT_ASSERT_ALWAYS(bt_wire_decoder_create(&dec) == BT_OK);
    return dec;
}

/* What is taken can be sent, and what is sent is taken and sent as the same
 * bytes: the encoding of a message is one. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bt_wire_decoder_t *first = decoder();
    bt_wire_decoder_t *second = decoder();
    bt_strbuf_t once;
    bt_strbuf_t twice;
    bt_msg_t msg;
    bt_msg_t again;

    bt_strbuf_init(&once, BT_WIRE_MAX_BYTES);
    bt_strbuf_init(&twice, BT_WIRE_MAX_BYTES);
    if (bt_wire_decode(first, data, size, &msg) == BT_OK) {
        touch_message(&msg);
        bt_wire_encode(&msg, &once);
        BT_ASSERT_ALWAYS(bt_strbuf_status(&once) == BT_OK);
        BT_ASSERT_ALWAYS(bt_wire_decode(second, once.data, once.len, &again) ==
                         BT_OK);
        bt_wire_encode(&again, &twice);
        BT_ASSERT_ALWAYS((bt_strbuf_status(&twice) == BT_OK) &&
                         (once.len == twice.len) &&
                         (memcmp(once.data, twice.data, once.len) == 0));
    }
    bt_strbuf_fini(&twice);
    bt_strbuf_fini(&once);
    bt_wire_decoder_destroy(second);
    bt_wire_decoder_destroy(first);
    return 0;
}
