/* SPDX-License-Identifier: Apache-2.0 */
#include "common/wire/wire_fields.h"

#include "common/base/status.h"

#define ANY UINT32_MAX

#define U32(type, name, lo, hi)                                         \
    {                                                                   \
        .kind = FIELD_U32, .offset = offsetof(type, name), .min = (lo), \
        .max = (hi)                                                     \
    }
#define OF(k, type, name)                           \
    {                                               \
        .kind = (k), .offset = offsetof(type, name) \
    }
#define SIZED(k, type, name, hi)                                 \
    {                                                            \
        .kind = (k), .offset = offsetof(type, name), .max = (hi) \
    }
#define COUNTED(k, type, name, n, lo, hi)                    \
    {                                                        \
        .kind = (k), .offset = offsetof(type, name),         \
        .count = offsetof(type, n), .min = (lo), .max = (hi) \
    }
/* A field that came later and, when it was not sent, is like an earlier one. */
#define U32_LIKE(type, name, lo, hi, of)                                \
    {                                                                   \
        .kind = FIELD_U32, .offset = offsetof(type, name), .min = (lo), \
        .max = (hi), .like = (of)                                       \
    }
/* One that came later and is this number when it was not sent. */
#define U32_ELSE(type, name, lo, hi, value)                             \
    {                                                                   \
        .kind = FIELD_U32, .offset = offsetof(type, name), .min = (lo), \
        .max = (hi), .otherwise = (value)                               \
    }
#define LISTED(k, type, name, n, hi, list, item)                  \
    {                                                             \
        .kind = (k), .offset = offsetof(type, name),              \
        .count = offsetof(type, n), .max = (hi), .items = (list), \
        .item_bytes = sizeof(item)                                \
    }
#define RANKS(k, type)                                             \
    LISTED(k, type, ranks, n_ranks, BT_WIRE_MAX_RANKS, &rank_list, \
           bt_wire_rank_t)
#define WINDOWS(k)                                                     \
    LISTED(k, bt_msg_grant_t, regions, n_regions, BT_WIRE_MAX_REGIONS, \
           &region_list, bt_wire_region_t)
#define KEY(type) OF(FIELD_U64, type, key.id), U32(type, key.attempt, 0, ANY)

/* Number of fields of each list in its first version: those are required.
 * Never change a number; new fields are appended to a list. */
#define LIST(a, required)                \
    {                                    \
        (a), BT_ARRAY_LEN(a), (required) \
    }

static const field_t rank_fields[] = {
    OF(FIELD_U64, bt_wire_rank_t, block_bytes),
    COUNTED(FIELD_BLOB, bt_wire_rank_t, kvt, kvt_bytes, 0, BT_WIRE_MAX_BLOB),
};
static const field_list_t rank_list = LIST(rank_fields, 2);

static const field_t region_fields[] = {
    U32(bt_wire_region_t, to, 0, BT_WIRE_MAX_RANKS - 1),
    U32(bt_wire_region_t, from, 0, BT_WIRE_MAX_RANKS - 1),
    COUNTED(FIELD_BLOB, bt_wire_region_t, blob, blob_bytes, 0,
            BT_WIRE_MAX_BLOB),
};
static const field_list_t region_list = LIST(region_fields, 3);

static const field_t hello_fields[] = {
    U32(bt_msg_hello_t, protocol, 0, ANY),
    U32(bt_msg_hello_t, role, 0, BT_ROLE_DECODE),
    OF(FIELD_U64, bt_msg_hello_t, instance),
    SIZED(FIELD_NAME, bt_msg_hello_t, name, BT_WIRE_MAX_NAME),
    OF(FIELD_U64, bt_msg_hello_t, model.lo),
    OF(FIELD_U64, bt_msg_hello_t, model.hi),
    SIZED(FIELD_NAME, bt_msg_hello_t, profile, BT_WIRE_MAX_NAME),
    U32(bt_msg_hello_t, kv_type, 0, ANY),
    U32(bt_msg_hello_t, tokens_per_block, 0, ANY),
    OF(FIELD_U64, bt_msg_hello_t, layout.lo),
    OF(FIELD_U64, bt_msg_hello_t, layout.hi),
    U32(bt_msg_hello_t, context_tokens, 0, ANY),
    U32(bt_msg_hello_t, max_batch, 0, ANY),
    U32(bt_msg_hello_t, n_blocks, 0, ANY),
    U32(bt_msg_hello_t, flags, 0, ANY),
    RANKS(FIELD_ONLY, bt_msg_hello_t),
    /* later */
    U32_LIKE(bt_msg_hello_t, protocol_min, 0, ANY, &hello_fields[0]),
    SIZED(FIELD_NAME, bt_msg_hello_t, model_name, BT_WIRE_MAX_MODEL),
    SIZED(FIELD_NAME, bt_msg_hello_t, version_text, BT_WIRE_MAX_NAME),
    U32_ELSE(bt_msg_hello_t, tp, 1, BT_WIRE_MAX_RANKS, 1),
    U32_ELSE(bt_msg_hello_t, pp, 1, BT_WIRE_MAX_RANKS, 1),
    RANKS(FIELD_ITEMS, bt_msg_hello_t),
    U32_ELSE(bt_msg_hello_t, span_blocks, 0, ANY, 1),
    U32(bt_msg_hello_t, window_blocks, 0, ANY),
    U32(bt_msg_hello_t, window_spans, 0, ANY),
    OF(FIELD_U64, bt_msg_hello_t, weights.update),
    SIZED(FIELD_NAME, bt_msg_hello_t, weights.version, BT_WIRE_MAX_NAME),
    SIZED(FIELD_NAME, bt_msg_hello_t, weights.path, BT_WIRE_MAX_PATH),
    OF(FIELD_U64, bt_msg_hello_t, base.lo),
    OF(FIELD_U64, bt_msg_hello_t, base.hi),
    OF(FIELD_U64, bt_msg_hello_t, sleep_order),
#ifdef BT_WIRE_TEST_NEXT
    U32_ELSE(bt_msg_hello_t, test_next, 0, ANY, 7),
#endif
};

static const field_t request_fields[] = {
    KEY(bt_msg_request_t),
    U32(bt_msg_request_t, kind, 0, BT_REQUEST_LOCAL),
    OF(FIELD_U64, bt_msg_request_t, peer),
    U32(bt_msg_request_t, n_prompt, 1, BT_WIRE_MAX_TOKENS),
    COUNTED(FIELD_IDS, bt_msg_request_t, tokens, n_tokens, 0,
            BT_WIRE_MAX_TOKENS),
    U32(bt_msg_request_t, max_new, 1, BT_WIRE_MAX_TOKENS),
    U32(bt_msg_request_t, deadline_ms, 0, ANY),
    U32(bt_msg_request_t, priority, 0, ANY),
    OF(FIELD_SAMPLING, bt_msg_request_t, sampling),
    /* later */
    OF(FIELD_U64, bt_msg_request_t, space.lo),
    OF(FIELD_U64, bt_msg_request_t, space.hi),
    COUNTED(FIELD_BIASES, bt_msg_request_t, sampling.logit_biases,
            sampling.n_logit_biases, 0, BT_MAX_DENSE_BIASES),
    OF(FIELD_U64, bt_msg_request_t, fanout),
    U32(bt_msg_request_t, fanout_size, 0, BT_WIRE_MAX_FANOUT),
    U32(bt_msg_request_t, wants.what, 0, ANY),
    U32(bt_msg_request_t, wants.n_top, 0, ANY),
    OF(FIELD_F32, bt_msg_request_t, sampling.min_p),
    COUNTED(FIELD_MORE_IDS, bt_msg_request_t, sampling.end_ids,
            sampling.n_end_ids, 0, BT_MAX_END_IDS),
    U32(bt_msg_request_t, first_ms, 0, ANY),
    U32(bt_msg_request_t, itl_ms, 0, ANY),
    COUNTED(FIELD_DRAFTS, bt_msg_request_t, draft_ids, n_draft_ids, 0,
            BT_WIRE_MAX_TOKENS),
    U32_ELSE(bt_msg_request_t, max_drafts, 0, ANY, ANY),
    OF(FIELD_PROCESSORS, bt_msg_request_t, sampling.processors),
    U32(bt_msg_request_t, beams.width, 0, ANY),
    U32(bt_msg_request_t, beams.n_returned, 0, ANY),
    OF(FIELD_F32, bt_msg_request_t, beams.length_penalty),
    U32(bt_msg_request_t, beams.early_stopping, 0, ANY),
    COUNTED(FIELD_BLOB, bt_msg_request_t, grammar, grammar_bytes, 0,
            BT_WIRE_MAX_GRAMMAR),
    U32(bt_msg_request_t, complete_within, 0, ANY),
    U32(bt_msg_request_t, table.type, 0, ANY),
    U32(bt_msg_request_t, table.n, 0, ANY),
    COUNTED(FIELD_BLOB, bt_msg_request_t, table.data, table.bytes, 0,
            BT_TABLE_MAX_BYTES),
    OF(FIELD_U64, bt_msg_request_t, adapter.lo),
    OF(FIELD_U64, bt_msg_request_t, adapter.hi),
};

static const field_t sampling_fields[] = {
    OF(FIELD_F32, bt_sampling_t, temperature),
    U32(bt_sampling_t, top_k, 0, ANY),
    OF(FIELD_F32, bt_sampling_t, top_p),
    OF(FIELD_F32, bt_sampling_t, repetition_penalty),
    OF(FIELD_F32, bt_sampling_t, presence_penalty),
    OF(FIELD_F32, bt_sampling_t, frequency_penalty),
    OF(FIELD_U64, bt_sampling_t, seed),
    U32(bt_sampling_t, min_tokens, 0, ANY),
    COUNTED(FIELD_END_IDS, bt_sampling_t, end_ids, n_end_ids, 0,
            BT_WIRE_FIRST_END_IDS),
    COUNTED(FIELD_BAD, bt_sampling_t, bad_words, n_bad_words, 0,
            BT_MAX_BAD_WORDS),
};

static const field_t processor_fields[] = {
    U32(bt_processor_options_t, no_repeat_ngram_size, 0, ANY),
    U32(bt_processor_options_t, n_penalized_prompt, 0, ANY),
    OF(FIELD_F32, bt_processor_options_t, top_p_decay),
    OF(FIELD_F32, bt_processor_options_t, top_p_min),
    U32(bt_processor_options_t, top_p_reset_id, 0, ANY),
    OF(FIELD_F32, bt_processor_options_t, top_n_sigma),
    OF(FIELD_F32, bt_processor_options_t, typical_p),
    OF(FIELD_F32, bt_processor_options_t, xtc_probability),
    OF(FIELD_F32, bt_processor_options_t, xtc_threshold),
    OF(FIELD_F32, bt_processor_options_t, dry_multiplier),
    OF(FIELD_F32, bt_processor_options_t, dry_base),
    U32(bt_processor_options_t, dry_allowed_length, 0, ANY),
    U32(bt_processor_options_t, dry_last_n, 0, ANY),
    U32(bt_processor_options_t, thinking_budget, 0, ANY),
    U32(bt_processor_options_t, is_thinking, 0, 1),
    U32(bt_processor_options_t, n_allowed_ids, 0, BT_WIRE_MAX_TOKENS),
    U32(bt_processor_options_t, n_dry_breakers, 0, BT_WIRE_MAX_TOKENS),
    U32(bt_processor_options_t, n_think_open, 0, BT_WIRE_MAX_TOKENS),
    U32(bt_processor_options_t, n_think_close, 0, BT_WIRE_MAX_TOKENS),
    COUNTED(FIELD_LISTS, bt_processor_options_t, ids, n_ids, 0,
            BT_WIRE_MAX_TOKENS),
};

static const field_t grant_fields[] = {
    KEY(bt_msg_grant_t),
    OF(FIELD_U64, bt_msg_grant_t, instance),
    U32(bt_msg_grant_t, n_cached, 0, BT_WIRE_MAX_TOKENS),
    WINDOWS(FIELD_ONLY),
    /* later */
    WINDOWS(FIELD_ITEMS),
};

static const field_t cancel_fields[] = {
    KEY(bt_msg_cancel_t),
    U32(bt_msg_cancel_t, finish, 0, BT_FINISH_ERROR),
};

static const field_t tokens_fields[] = {
    COUNTED(FIELD_TOKENS, bt_msg_tokens_t, tokens, n, 0, BT_WIRE_MAX_BATCH),
    /* later */
    COUNTED(FIELD_SCORES, bt_msg_tokens_t, scores, n_scores, 0,
            BT_WIRE_MAX_BATCH),
    COUNTED(FIELD_IDS, bt_msg_tokens_t, drafts, n_drafts, 0,
            3 * BT_WIRE_MAX_BATCH),
};

static const field_t token_fields[] = {
    KEY(bt_token_t),
    U32(bt_token_t, index, 0, BT_WIRE_MAX_TOKENS),
    U32(bt_token_t, id, 0, ANY),
    U32(bt_token_t, finish, 0, BT_FINISH_ERROR),
};

static const field_t prefilled_fields[] = {
    KEY(bt_msg_prefilled_t),
    OF(FIELD_U64, bt_msg_prefilled_t, queue_us),
    OF(FIELD_U64, bt_msg_prefilled_t, compute_us),
    U32(bt_msg_prefilled_t, n_chunks, 0, ANY),
    U32(bt_msg_prefilled_t, n_cached, 0, BT_WIRE_MAX_TOKENS),
};

static const field_t joined_fields[] = {
    KEY(bt_msg_joined_t),
    OF(FIELD_U64, bt_msg_joined_t, grant_wait_us),
    OF(FIELD_U64, bt_msg_joined_t, transfer_us),
    OF(FIELD_U64, bt_msg_joined_t, transfer_bytes),
    U32(bt_msg_joined_t, n_descriptors, 0, ANY),
    OF(FIELD_U64, bt_msg_joined_t, queue_us),
    OF(FIELD_U64, bt_msg_joined_t, handover_us),
};

static const field_t failed_fields[] = {
    KEY(bt_msg_failed_t),
    OF(FIELD_I32, bt_msg_failed_t, status),
    SIZED(FIELD_TEXT, bt_msg_failed_t, text, BT_WIRE_MAX_TEXT),
};

static const field_t ended_fields[] = {
    KEY(bt_msg_ended_t),
    OF(FIELD_U64, bt_msg_ended_t, decode_us),
    U32(bt_msg_ended_t, n_iterations, 0, ANY),
    OF(FIELD_U64, bt_msg_ended_t, join_wait_us),
    OF(FIELD_U64, bt_msg_ended_t, transfer_tail_us),
    U32(bt_msg_ended_t, n_pauses, 0, ANY),
    OF(FIELD_U64, bt_msg_ended_t, paused_us),
    U32(bt_msg_ended_t, n_drafted, 0, ANY),
    U32(bt_msg_ended_t, n_accepted, 0, ANY),
};

#define ACCEPTED_AT(position) \
    OF(FIELD_U64, bt_msg_stats_t, accepted_at[position])

static const field_t stats_fields[] = {
    U32(bt_msg_stats_t, active_requests, 0, ANY),
    U32(bt_msg_stats_t, max_requests, 0, ANY),
    U32(bt_msg_stats_t, scheduled_requests, 0, ANY),
    U32(bt_msg_stats_t, context_requests, 0, ANY),
    U32(bt_msg_stats_t, generation_requests, 0, ANY),
    U32(bt_msg_stats_t, waiting_requests, 0, ANY),
    U32(bt_msg_stats_t, paused_requests, 0, ANY),
    U32(bt_msg_stats_t, blocks_max, 0, ANY),
    U32(bt_msg_stats_t, blocks_free, 0, ANY),
    U32(bt_msg_stats_t, blocks_used, 0, ANY),
    U32(bt_msg_stats_t, blocks_reused, 0, ANY),
    U32(bt_msg_stats_t, tokens_per_block, 0, ANY),
    U32(bt_msg_stats_t, total_context_tokens, 0, ANY),
    U32(bt_msg_stats_t, micro_batch_id, 0, ANY),
    U32(bt_msg_stats_t, leases, 0, ANY),
    U32(bt_msg_stats_t, quarantined_blocks, 0, ANY),
    U32(bt_msg_stats_t, open_fds, 0, ANY),
    OF(FIELD_U64, bt_msg_stats_t, iteration_counter),
    OF(FIELD_U64, bt_msg_stats_t, memory_cpu_bytes),
    OF(FIELD_U64, bt_msg_stats_t, memory_gpu_bytes),
    OF(FIELD_U64, bt_msg_stats_t, memory_pinned_bytes),
    OF(FIELD_U64, bt_msg_stats_t, kv_bytes_sent),
    OF(FIELD_U64, bt_msg_stats_t, kv_bytes_received),
    OF(FIELD_U64, bt_msg_stats_t, kv_stale_discarded),
    OF(FIELD_U64, bt_msg_stats_t, kv_checksum_failures),
    /* later */
    OF(FIELD_U64, bt_msg_stats_t, tokens_generated),
    OF(FIELD_U64, bt_msg_stats_t, prompt_tokens),
    OF(FIELD_U64, bt_msg_stats_t, tokens_reused),
    OF(FIELD_U64, bt_msg_stats_t, process_cpu_ms),
    OF(FIELD_U64, bt_msg_stats_t, resident_bytes),
    OF(FIELD_U64, bt_msg_stats_t, start_unix_s),
    U32(bt_msg_stats_t, blocks_cached, 0, ANY),
    OF(FIELD_U64, bt_msg_stats_t, kv_bytes_staged),
    OF(FIELD_U64, bt_msg_stats_t, kv_stage_waits),
    U32(bt_msg_stats_t, roles, 0, ANY),
    OF(FIELD_U64, bt_msg_stats_t, kv_foreign_pieces),
    OF(FIELD_U64, bt_msg_stats_t, log_lines_dropped),
    OF(FIELD_U64, bt_msg_stats_t, rates.prefill_step_ns),
    OF(FIELD_U64, bt_msg_stats_t, rates.prefill_token_ns),
    OF(FIELD_U64, bt_msg_stats_t, rates.prefill_kilopair_ns),
    OF(FIELD_U64, bt_msg_stats_t, rates.prefill_kiloread_ns),
    OF(FIELD_U64, bt_msg_stats_t, rates.decode_step_ns),
    OF(FIELD_U64, bt_msg_stats_t, rates.decode_seq_ns),
    OF(FIELD_U64, bt_msg_stats_t, rates.decode_kiloread_ns),
    OF(FIELD_U64, bt_msg_stats_t, rates.transfer_start_ns),
    OF(FIELD_U64, bt_msg_stats_t, rates.transfer_mib_ns),
    OF(FIELD_U64, bt_msg_stats_t, rates.prefill_error),
    OF(FIELD_U64, bt_msg_stats_t, rates.decode_error),
    OF(FIELD_U64, bt_msg_stats_t, rates.transfer_error),
    OF(FIELD_U64, bt_msg_stats_t, lent_pieces),
    OF(FIELD_U64, bt_msg_stats_t, lent_us),
    OF(FIELD_U64, bt_msg_stats_t, lent_again),
    OF(FIELD_U64, bt_msg_stats_t, pauses),
    OF(FIELD_U64, bt_msg_stats_t, resumes),
    OF(FIELD_U64, bt_msg_stats_t, tokens_recomputed),
    OF(FIELD_U64, bt_msg_stats_t, yielded_us),
    U32(bt_msg_stats_t, blocks_windowed, 0, ANY),
    OF(FIELD_U64, bt_msg_stats_t, blocks_slid),
    OF(FIELD_U64, bt_msg_stats_t, still_ms),
    U32(bt_msg_stats_t, duty, 0, ANY),
    OF(FIELD_U64, bt_msg_stats_t, kv_bytes_shared),
    OF(FIELD_U64, bt_msg_stats_t, overlapped_iterations),
    U32(bt_msg_stats_t, waiting_for_kv_requests, 0, ANY),
    OF(FIELD_U64, bt_msg_stats_t, draft_steps),
    OF(FIELD_U64, bt_msg_stats_t, drafted[0]),
    OF(FIELD_U64, bt_msg_stats_t, drafted[1]),
    OF(FIELD_U64, bt_msg_stats_t, accepted[0]),
    OF(FIELD_U64, bt_msg_stats_t, accepted[1]),
    ACCEPTED_AT(0),
    ACCEPTED_AT(1),
    ACCEPTED_AT(2),
    ACCEPTED_AT(3),
    ACCEPTED_AT(4),
    ACCEPTED_AT(5),
    ACCEPTED_AT(6),
    ACCEPTED_AT(7),
    ACCEPTED_AT(8),
    ACCEPTED_AT(9),
    ACCEPTED_AT(10),
    ACCEPTED_AT(11),
    ACCEPTED_AT(12),
    ACCEPTED_AT(13),
    ACCEPTED_AT(14),
    ACCEPTED_AT(15),
    OF(FIELD_U64, bt_msg_stats_t, drafted[2]),
    OF(FIELD_U64, bt_msg_stats_t, accepted[2]),
    OF(FIELD_U64, bt_msg_stats_t, drafted[3]),
    OF(FIELD_U64, bt_msg_stats_t, accepted[3]),
    OF(FIELD_U64, bt_msg_stats_t, grammar_masks),
    OF(FIELD_U64, bt_msg_stats_t, grammar_mask_hits),
    OF(FIELD_U64, bt_msg_stats_t, grammar_mask_us),
    OF(FIELD_U64, bt_msg_stats_t, grammars_loaded),
    OF(FIELD_U64, bt_msg_stats_t, drafted[4]),
    OF(FIELD_U64, bt_msg_stats_t, accepted[4]),
};

static const field_t peer_fields[] = {
    OF(FIELD_U64, bt_msg_peer_t, instance),
    SIZED(FIELD_NAME, bt_msg_peer_t, name, BT_WIRE_MAX_NAME),
    RANKS(FIELD_ONLY, bt_msg_peer_t),
    /* later */
    U32_ELSE(bt_msg_peer_t, tp, 1, BT_WIRE_MAX_RANKS, 1),
    U32_ELSE(bt_msg_peer_t, pp, 1, BT_WIRE_MAX_RANKS, 1),
    RANKS(FIELD_ITEMS, bt_msg_peer_t),
    OF(FIELD_U64, bt_msg_peer_t, layout.lo),
    OF(FIELD_U64, bt_msg_peer_t, layout.hi),
    U32(bt_msg_peer_t, sends, 0, 1),
};

static const field_t peer_gone_fields[] = {
    OF(FIELD_U64, bt_msg_peer_gone_t, instance),
};

static const field_t role_fields[] = {
    U32(bt_msg_role_t, roles, 0, ANY),
    /* later */
    U32(bt_msg_role_t, duty, 0, ANY),
};

static const field_t rows_fields[] = {
    KEY(bt_msg_rows_t),
    U32(bt_msg_rows_t, kind, 0, ANY),
    U32(bt_msg_rows_t, from, 0, BT_WIRE_MAX_TOKENS),
    U32(bt_msg_rows_t, n_top, 0, ANY),
    U32(bt_msg_rows_t, offset, 0, ANY),
    COUNTED(FIELD_BLOB, bt_msg_rows_t, data, data_bytes, 0, BT_WIRE_MAX_ROWS),
};

static const field_t kv_link_fields[] = {
    OF(FIELD_U64, bt_msg_kv_link_t, instance),
    U32(bt_msg_kv_link_t, state, 0, ANY),
    SIZED(FIELD_TEXT, bt_msg_kv_link_t, at, BT_WIRE_MAX_AT),
    SIZED(FIELD_TEXT, bt_msg_kv_link_t, why, BT_WIRE_MAX_WHY),
};

static const field_t beam_fields[] = {
    KEY(bt_msg_beam_t),
    U32(bt_msg_beam_t, index, 0, ANY),
    U32(bt_msg_beam_t, n, 1, ANY),
    U32(bt_msg_beam_t, finish, 0, BT_FINISH_ERROR),
    COUNTED(FIELD_IDS, bt_msg_beam_t, ids, n_ids, 1, BT_WIRE_MAX_TOKENS),
    COUNTED(FIELD_BLOB, bt_msg_beam_t, logprobs, logprobs_bytes, 0,
            BT_WIRE_MAX_BLOB),
};

static const field_t weights_fields[] = {
    OF(FIELD_U64, bt_msg_weights_t, weights.update),
    SIZED(FIELD_NAME, bt_msg_weights_t, weights.version, BT_WIRE_MAX_NAME),
    SIZED(FIELD_NAME, bt_msg_weights_t, weights.path, BT_WIRE_MAX_PATH),
    U32(bt_msg_weights_t, loads, 0, 1),
};

static const field_t weights_checked_fields[] = {
    OF(FIELD_U64, bt_msg_weights_checked_t, update),
    OF(FIELD_I32, bt_msg_weights_checked_t, status),
    OF(FIELD_U64, bt_msg_weights_checked_t, model.lo),
    OF(FIELD_U64, bt_msg_weights_checked_t, model.hi),
    SIZED(FIELD_TEXT, bt_msg_weights_checked_t, text, BT_WIRE_MAX_TEXT),
};

static const field_t adapter_fields[] = {
    OF(FIELD_U64, bt_msg_adapter_t, adapter.lo),
    OF(FIELD_U64, bt_msg_adapter_t, adapter.hi),
    U32(bt_msg_adapter_t, loads, 0, 1),
    SIZED(FIELD_NAME, bt_msg_adapter_t, name, BT_WIRE_MAX_MODEL),
    SIZED(FIELD_NAME, bt_msg_adapter_t, path, BT_WIRE_MAX_PATH),
    /* later */
    OF(FIELD_U64, bt_msg_adapter_t, bytes),
};

static const field_t adapter_want_fields[] = {
    OF(FIELD_U64, bt_msg_adapter_want_t, adapter.lo),
    OF(FIELD_U64, bt_msg_adapter_want_t, adapter.hi),
    OF(FIELD_U64, bt_msg_adapter_want_t, offset),
};

static const field_t adapter_part_fields[] = {
    OF(FIELD_U64, bt_msg_adapter_part_t, adapter.lo),
    OF(FIELD_U64, bt_msg_adapter_part_t, adapter.hi),
    OF(FIELD_U64, bt_msg_adapter_part_t, offset),
    COUNTED(FIELD_BLOB, bt_msg_adapter_part_t, data, data_bytes, 0,
            BT_WIRE_ADAPTER_PART),
};

static const field_t adapter_ready_fields[] = {
    OF(FIELD_U64, bt_msg_adapter_ready_t, adapter.lo),
    OF(FIELD_U64, bt_msg_adapter_ready_t, adapter.hi),
    OF(FIELD_I32, bt_msg_adapter_ready_t, status),
    SIZED(FIELD_TEXT, bt_msg_adapter_ready_t, text, BT_WIRE_MAX_TEXT),
};

static const field_t sleep_fields[] = {
    OF(FIELD_U64, bt_msg_sleep_t, order),
    U32(bt_msg_sleep_t, sleeps, 0, 1),
};

static const field_t cache_reset_fields[] = {
    OF(FIELD_U64, bt_msg_cache_reset_t, number),
};

static const field_t cache_is_empty_fields[] = {
    OF(FIELD_U64, bt_msg_cache_is_empty_t, number),
    U32(bt_msg_cache_is_empty_t, n_blocks, 0, ANY),
};

const field_list_t *bt_wire_fields(uint32_t type)
{
    static const field_list_t lists[] = {
        [BT_MSG_HELLO] = LIST(hello_fields, 16),
        [BT_MSG_REQUEST] = LIST(request_fields, 10),
        [BT_MSG_GRANT] = LIST(grant_fields, 5),
        [BT_MSG_CANCEL] = LIST(cancel_fields, 3),
        [BT_MSG_TOKENS] = LIST(tokens_fields, 1),
        [BT_MSG_PREFILLED] = LIST(prefilled_fields, 6),
        [BT_MSG_JOINED] = LIST(joined_fields, 8),
        [BT_MSG_FAILED] = LIST(failed_fields, 4),
        [BT_MSG_ENDED] = LIST(ended_fields, 6),
        [BT_MSG_STATS] = LIST(stats_fields, 25),
        [BT_MSG_PEER] = LIST(peer_fields, 3),
        [BT_MSG_PEER_GONE] = LIST(peer_gone_fields, 1),
        [BT_MSG_DRAIN] = {NULL, 0, 0},
        [BT_MSG_ROLE] = LIST(role_fields, 1),
        [BT_MSG_ROWS] = LIST(rows_fields, 7),
        [BT_MSG_KV_LINK] = LIST(kv_link_fields, 4),
        [BT_MSG_BEAM] = LIST(beam_fields, 7),
        [BT_MSG_WEIGHTS] = LIST(weights_fields, 4),
        [BT_MSG_WEIGHTS_CHECKED] = LIST(weights_checked_fields, 5),
        [BT_MSG_SLEEP] = LIST(sleep_fields, 2),
        [BT_MSG_CACHE_RESET] = LIST(cache_reset_fields, 1),
        [BT_MSG_CACHE_IS_EMPTY] = LIST(cache_is_empty_fields, 2),
        [BT_MSG_ADAPTER] = LIST(adapter_fields, 5),
        [BT_MSG_ADAPTER_READY] = LIST(adapter_ready_fields, 4),
        [BT_MSG_ADAPTER_WANT] = LIST(adapter_want_fields, 3),
        [BT_MSG_ADAPTER_PART] = LIST(adapter_part_fields, 4),
    };

    if ((type == 0) || (type >= BT_ARRAY_LEN(lists))) {
        return NULL;
    }
    return &lists[type];
}

const field_list_t *bt_wire_sampling_fields(void)
{
    static const field_list_t list = LIST(sampling_fields, 10);

    return &list;
}

const field_list_t *bt_wire_processor_fields(void)
{
    static const field_list_t list = LIST(processor_fields, 0);

    return &list;
}

const field_list_t *bt_wire_token_fields(void)
{
    static const field_list_t list = LIST(token_fields, 5);

    return &list;
}

const field_t *bt_wire_blob_of(const field_list_t *items)
{
    const field_t *field = items->fields;

    while (field->kind != FIELD_BLOB) {
        field++;
    }
    return field;
}

static int split_fits(uint32_t tp, uint32_t pp, uint32_t n_ranks)
{
    return (n_ranks == 0) || (n_ranks == tp * pp);
}

/* Requests behind the first of a fanout may omit their tokens. */
static int tokens_fit(const bt_msg_request_t *request)
{
    if (request->n_tokens == 0) {
        return (request->fanout_size > 1) && (request->fanout != 0) &&
               (request->fanout != request->key.id);
    }
    return request->n_prompt <= request->n_tokens;
}

static int table_fits(const bt_table_rows_t *table)
{
    return (table->bytes == 0) || (bt_table_width(table) > 0);
}

/* Each is of a token of the message, and no two of one. */
static int scores_fit(const bt_msg_tokens_t *tokens)
{
    for (uint32_t i = 0; i < tokens->n_scores; i++) {
        const bt_token_score_t *item = &tokens->scores[i];

        if ((item->token >= tokens->n) ||
            (item->score.n_top > BT_MAX_TOP_LOGPROBS) ||
            ((i > 0) && (item->token <= tokens->scores[i - 1].token))) {
            return 0;
        }
    }
    return 1;
}

int bt_wire_message_fits(const bt_msg_t *msg)
{
    const char *why;

    if (msg->type == BT_MSG_HELLO) {
        return split_fits(msg->u.hello.tp, msg->u.hello.pp,
                          msg->u.hello.n_ranks);
    }
    if (msg->type == BT_MSG_PEER) {
        return split_fits(msg->u.peer.tp, msg->u.peer.pp, msg->u.peer.n_ranks);
    }

    if (msg->type == BT_MSG_TOKENS) {
        return scores_fit(&msg->u.tokens);
    }
    if (msg->type == BT_MSG_REQUEST) {
        const bt_msg_request_t *request = &msg->u.request;

        return tokens_fit(request) && table_fits(&request->table) &&
               (bt_sampling_check(&request->sampling, &why) == BT_OK);
    }
    return 1;
}
