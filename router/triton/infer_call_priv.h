/* SPDX-License-Identifier: Apache-2.0 */
/** @file infer_call_priv.h
 *
 * Shared by infer_call.c (a call's steps and rows) and infer_tell.c (delivery
 * of results) only.
 */
#ifndef BT_ROUTER_TRITON_INFER_CALL_PRIV_H
#define BT_ROUTER_TRITON_INFER_CALL_PRIV_H

#include "router/frontend/intake.h"
#include "router/triton/infer_call.h"
#include "router/triton/outputs.h"
#include "router/triton/shm_tensors.h"
#include "router/triton/tensors_to_requests.h"

/** One row of the batch, as the reply of the row's own call. */
typedef struct bt_infer_row {
    bt_reply_t reply; /* first: the call knows only this */
    bt_infer_call_t *call;
    uint32_t index;
    bool told;          /* stream: a piece of the row was delivered */
    double cum_logprob; /* stream: of the delivered tokens */
    uint32_t *prompt;   /* owned: ids before the output's, or NULL */
    size_t n_prompt;
    /* Without streaming: a reference to the call that owns the answer, or
     * NULL, and the answer's single choice. */
    bt_call_t *answered;
    const bt_api_choice_t *choice;
} bt_infer_row_t;

struct bt_infer_call {
    bt_work_t work;
    bool posted;     /* the pool job is not done */
    bool pinned;     /* in use further up the stack: do not free */
    uint32_t n_refs; /* handlers that still write the response */
    bool is_inline;
    bool holds_place; /* counted as arriving until its rows are queued */
    bt_pool_lane_t lane;
    size_t work_bytes; /* bytes to process, for the pool's order */
    bt_work_client_t who;
    bt_frontend_t *front;
    bt_infer_reply_t *reply; /* NULL: the call ended, or the client left */
    bt_account_t *account;   /* a reference; NULL: too small to be counted */
    bt_list_t stoppable;     /* in front->stoppable, or unlinked */
    uint64_t step_us, parse_us;

    bt_infer_parse_t parse;
    uint8_t parse_ctx[BT_INFER_CTX_BYTES];
    bool may_stream;
    char *client, *traceparent; /* owned, or NULL */
    bt_tenant_t *tenant;        /* a reference, or NULL */
    bt_strbuf_t body;

    bt_status_t status; /* result of the last step */
    bt_api_error_t error;
    bt_infer_request_t request;
    bt_shm_tensors_t *uses; /* owned; NULL: no tensor is in shared memory */
    const bt_model_spec_t *spec;
    bt_served_t *served;
    uint32_t context_tokens;
    bt_tensor_requests_t lowered;
    bool stream;          /* delivers pieces of a row as they come */
    bool row_by_row;      /* delivers each row when it is complete */
    bool empty_final;     /* bt_infer_response_t.empty_final */
    bool final_told;      /* the last response of the stream was delivered */
    bt_infer_row_t *rows; /* owned */
    size_t n_rows, n_open;
    bt_call_tally_t tally; /* counts all rows as one request */
    bt_tensor_t outputs[BT_INFER_MAX_OUTPUTS];
    size_t n_outputs;
};

/* ---- infer_call.c ---- */

/** Protects a call from being freed until bt_infer_call_unpin().
 *  @return whether the call was pinned before, for bt_infer_call_unpin(),
 *          which frees an ended call only for the outermost pin */
bool bt_infer_call_pin(bt_infer_call_t *call);
void bt_infer_call_unpin(bt_infer_call_t *call, bool was_pinned);
/** Runs a step on the pool, or immediately when the call is short. */
void bt_infer_call_post(bt_infer_call_t *call, void (*run)(bt_pool_job_t *),
                        void (*done)(bt_pool_job_t *));

/* ---- infer_tell.c ---- */

void bt_infer_call_free_outputs(bt_infer_call_t *call);
/** Detaches the reply: nothing is delivered after this. */
bt_infer_reply_t *bt_infer_call_take_reply(bt_infer_call_t *call);
/** Adds the facts of a row's call to those of the whole reply, for the log. */
void bt_infer_call_add_facts(bt_infer_call_t *call, const bt_infer_row_t *row);
/** Cancels the rows that still run. */
void bt_infer_call_cancel_rows(bt_infer_call_t *call);
void bt_infer_call_fail(bt_infer_call_t *call, const bt_api_error_t *error);
void bt_infer_call_fail_for_memory(bt_infer_call_t *call);
/** Fails a call that was rejected before it ran, and counts the rejection. */
void bt_infer_call_refuse(bt_infer_call_t *call);
/** Finishes a successful call with call->outputs. */
void bt_infer_call_finish(bt_infer_call_t *call);
/** True when the request has no response after this piece of a row. */
bool bt_infer_call_is_final(const bt_infer_call_t *call, bool ends_row);
void bt_infer_call_tell_piece(bt_infer_call_t *call,
                              const bt_infer_result_t *result, bool ends_row);
/** Returns a view of @a choice, a piece or the whole answer of the row; all
 *  pointers are borrowed.
 *  @param choice  NULL: the row ends without an answer, or without more of
 *                 it */
bt_infer_result_t bt_infer_call_result_of(const bt_infer_row_t *row,
                                          const bt_api_choice_t *choice);
/** Finishes a call with one response that has all rows. */
void bt_infer_call_tell_whole(bt_infer_call_t *call);

#endif
