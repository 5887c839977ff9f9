/* SPDX-License-Identifier: Apache-2.0 */
/** @file infer_call_priv.h  Shared by infer_call.c (a call's steps and rows)
 * and infer_tell.c (what it tells) only. */
#ifndef BT_ROUTER_TRITON_INFER_CALL_PRIV_H
#define BT_ROUTER_TRITON_INFER_CALL_PRIV_H

#include "router/frontend/intake.h"
#include "router/triton/infer_call.h"
#include "router/triton/lower.h"
#include "router/triton/outputs.h"
#include "router/triton/uses.h"

/** One row of the batch; its call's reply. */
typedef struct bt_infer_row {
    bt_reply_t reply; /* first: a call knows only this */
    bt_infer_call_t *call;
    uint32_t index;
    bool told;          /* a stream: a piece of it was */
    double cum_logprob; /* a stream: of what was told */
    uint32_t *prompt;   /* owned: ids in front of the answer's, or NULL */
    size_t n_prompt;
    /* Of a whole answer: a reference to the call that owns it, or NULL, and
     * its one choice. */
    bt_call_t *answered;
    const bt_api_choice_t *choice;
} bt_infer_row_t;

struct bt_infer_call {
    bt_work_t work;
    bool posted;     /* the job is not done */
    bool pinned;     /* a function of this file uses it: do not free */
    uint32_t n_refs; /* of doors that still write the response */
    bool is_inline;
    bool holds_place; /* of the queue, until its rows have their own */
    bt_pool_lane_t lane;
    size_t work_bytes; /* what it works on, for the pool's order */
    bt_work_client_t who;
    bt_frontend_t *front;
    bt_infer_reply_t *reply; /* NULL: it had its last word, or nobody waits */
    bt_account_t *account;   /* a reference; NULL: too small to be counted */
    bt_list_t stoppable;     /* in front->stoppable, or by itself */
    uint64_t step_us, parse_us;

    bt_infer_parse_t parse;
    uint8_t parse_ctx[BT_INFER_CTX_BYTES];
    bool may_stream;
    char *client, *traceparent; /* owned, or NULL */
    bt_tenant_t *tenant;        /* a reference, or NULL */
    bt_strbuf_t body;

    bt_status_t status; /* of the last step */
    bt_api_error_t error;
    bt_infer_request_t request;
    bt_uses_t *uses; /* owned; NULL: it has nothing in shared memory */
    const bt_model_spec_t *spec;
    bt_served_t *served;
    uint32_t context_tokens;
    bt_lowered_t lowered;
    bool stream;          /* tells pieces of a row as they come */
    bool row_by_row;      /* tells each row when it is whole */
    bool empty_final;     /* bt_infer_response_t.empty_final */
    bool final_told;      /* a piece of a stream was its last response */
    bt_infer_row_t *rows; /* owned */
    size_t n_rows, n_open;
    bt_call_tally_t tally; /* its rows are one request */
    bt_tensor_t outputs[BT_INFER_MAX_OUTPUTS];
    size_t n_outputs;
};

/* ---- infer_call.c ---- */

/** Whoever pins it frees it, unless somebody further up does. */
bool bt_infer_call_pin(bt_infer_call_t *call);
void bt_infer_call_unpin(bt_infer_call_t *call, bool was_pinned);
/** Run it on the pool, or here and now where the call is short. */
void bt_infer_call_post(bt_infer_call_t *call, void (*run)(bt_pool_job_t *),
                        void (*done)(bt_pool_job_t *));

/* ---- infer_tell.c ---- */

void bt_infer_call_free_outputs(bt_infer_call_t *call);
/** What comes after it is not told. */
bt_infer_reply_t *bt_infer_call_take_reply(bt_infer_call_t *call);
/** What a row came to, for the door's books. */
void bt_infer_call_add_facts(bt_infer_call_t *call, const bt_infer_row_t *row);
/** Gives up what still runs. */
void bt_infer_call_cancel_rows(bt_infer_call_t *call);
void bt_infer_call_fail(bt_infer_call_t *call, const bt_api_error_t *error);
void bt_infer_call_fail_for_memory(bt_infer_call_t *call);
/** Refused before it ran: that is counted. */
void bt_infer_call_refuse(bt_infer_call_t *call);
/** All went well: what call->outputs has is the last word. */
void bt_infer_call_finish(bt_infer_call_t *call);
/** Does the request have no response after this piece of a row? */
bool bt_infer_call_is_final(const bt_infer_call_t *call, bool ends_row);
void bt_infer_call_tell_piece(bt_infer_call_t *call,
                              const bt_infer_result_t *result, bool ends_row);
/** Lends what @a choice, a piece or the whole answer of the row, points to.
 *  @param choice  NULL: the row ends without an answer, or without more of it
 */
bt_infer_result_t bt_infer_call_result_of(const bt_infer_row_t *row,
                                          const bt_api_choice_t *choice);
/** All rows are one response, and the last word. */
void bt_infer_call_tell_whole(bt_infer_call_t *call);

#endif
