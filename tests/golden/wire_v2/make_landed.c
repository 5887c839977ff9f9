/* SPDX-License-Identifier: Apache-2.0 */
/* Prints tests/golden/wire_v2/landed.txt. Not part of any build: README.md
 * beside it tells with which sources. */
#include <stdio.h>

#include "common/wire/wire.h"

static void print(const char *name, const bt_msg_t *msg)
{
    bt_strbuf_t out;

    bt_strbuf_init(&out, BT_WIRE_MAX_BYTES);
    bt_wire_encode(msg, &out);
    printf("%s ", (bt_strbuf_status(&out) == BT_OK) ? name : "FAILED");
    for (size_t i = 0; i < out.len; i++) {
        printf("%02x", ((const unsigned char *)out.data)[i]);
    }
    printf("\n");
    bt_strbuf_fini(&out);
}

static void print_hello_and_request(void)
{
    static const uint32_t prompt[] = {1, 2, 3, 4, 49151};
    static const uint8_t blob[] = {1, 2, 3};
    static const bt_bad_word_t bad_words[] = {{2, {11, 12}}, {1, {13}}};
    bt_msg_t msg = {.type = BT_MSG_HELLO};

    msg.u.hello = (bt_msg_hello_t){.protocol = 2,
                                   .role = BT_ROLE_DECODE,
                                   .instance = 0x1122334455667788u,
                                   .name = "decode-0",
                                   .model = {.lo = 101, .hi = 102},
                                   .profile = "cpu-avx2",
                                   .kv_type = 1,
                                   .tokens_per_block = 16,
                                   .layout = {.lo = 103, .hi = 104},
                                   .context_tokens = 8192,
                                   .max_batch = 24,
                                   .n_blocks = 1024,
                                   .flags = 1,
                                   .kvt = blob,
                                   .kvt_bytes = 3};
    print("hello", &msg);
    msg = (bt_msg_t){.type = BT_MSG_REQUEST};
    msg.u.request = (bt_msg_request_t){.key = {42, 3},
                                       .kind = BT_REQUEST_GENERATE,
                                       .peer = 99,
                                       .n_prompt = 4,
                                       .n_tokens = 5,
                                       .tokens = prompt,
                                       .max_new = 128,
                                       .deadline_ms = 60000,
                                       .priority = 7,
                                       .sampling = {.temperature = 0.5f,
                                                    .top_k = 40,
                                                    .top_p = 0.75f,
                                                    .repetition_penalty = 1.25f,
                                                    .presence_penalty = 0.375f,
                                                    .frequency_penalty = -0.5f,
                                                    .seed = 0x8000000000000009u,
                                                    .min_tokens = 3,
                                                    .n_end_ids = 2,
                                                    .end_ids = {2, 49152},
                                                    .n_bad_words = 2,
                                                    .bad_words = bad_words}};
    print("request", &msg);
}

static void print_life(void)
{
    static const bt_token_t tokens[] = {{{42, 3}, 0, 5, BT_FINISH_NONE},
                                        {{43, 0}, 700, 49151, 2}};
    const bt_req_key_t key = {42, 3};
    bt_msg_t msg = {.type = BT_MSG_GRANT};

    msg.u.grant = (bt_msg_grant_t){key, 99, 64, (const uint8_t *)"window", 6};
    print("grant", &msg);
    msg = (bt_msg_t){.type = BT_MSG_CANCEL, .u.cancel = {key, BT_FINISH_STOP}};
    print("cancel", &msg);
    msg = (bt_msg_t){.type = BT_MSG_TOKENS, .u.tokens = {2, tokens}};
    print("tokens", &msg);
    msg = (bt_msg_t){.type = BT_MSG_PREFILLED,
                     .u.prefilled = {.key = key,
                                     .queue_us = 1000,
                                     .compute_us = 2000,
                                     .n_chunks = 5,
                                     .n_cached = 48}};
    print("prefilled", &msg);
    msg = (bt_msg_t){.type = BT_MSG_JOINED,
                     .u.joined = {.key = key,
                                  .grant_wait_us = 11,
                                  .transfer_us = 12,
                                  .transfer_bytes = 13,
                                  .n_descriptors = 14,
                                  .queue_us = 15,
                                  .handover_us = 16}};
    print("joined", &msg);
    msg = (bt_msg_t){.type = BT_MSG_FAILED,
                     .u.failed = {key, -65, "prefill: out of blocks"}};
    print("failed", &msg);
    msg = (bt_msg_t){.type = BT_MSG_ENDED,
                     .u.ended = {.key = key,
                                 .decode_us = 5000,
                                 .n_iterations = 12,
                                 .join_wait_us = 300,
                                 .transfer_tail_us = 900}};
    print("ended", &msg);
}

static void print_stats_and_peers(void)
{
    bt_msg_t msg = {.type = BT_MSG_STATS};

    msg.u.stats = (bt_msg_stats_t){.active_requests = 1001,
                                   .max_requests = 1002,
                                   .scheduled_requests = 1003,
                                   .context_requests = 1004,
                                   .generation_requests = 1005,
                                   .waiting_requests = 1006,
                                   .paused_requests = 1007,
                                   .blocks_max = 1008,
                                   .blocks_free = 1009,
                                   .blocks_used = 1010,
                                   .blocks_reused = 1011,
                                   .tokens_per_block = 1012,
                                   .total_context_tokens = 1013,
                                   .micro_batch_id = 1014,
                                   .leases = 1015,
                                   .quarantined_blocks = 1016,
                                   .open_fds = 1017,
                                   .iteration_counter = 1018,
                                   .memory_cpu_bytes = 1019,
                                   .memory_gpu_bytes = 1020,
                                   .memory_pinned_bytes = 1021,
                                   .kv_bytes_sent = 1022,
                                   .kv_bytes_received = 1023,
                                   .kv_stale_discarded = 1024,
                                   .kv_checksum_failures = 1025};
    print("stats", &msg);
    msg = (bt_msg_t){.type = BT_MSG_PEER,
                     .u.peer = {99, "decode-1", (const uint8_t *)"blob", 4}};
    print("peer", &msg);
    msg = (bt_msg_t){.type = BT_MSG_PEER_GONE, .u.peer_gone = {99}};
    print("peer_gone", &msg);
    msg = (bt_msg_t){.type = BT_MSG_DRAIN};
    print("drain", &msg);
}

int main(void)
{
    print_hello_and_request();
    print_life();
    print_stats_and_peers();
    return 0;
}
