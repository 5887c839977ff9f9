/* SPDX-License-Identifier: Apache-2.0 */
/** @file call_priv.h
 *
 * Shared by call*.c only.
 */
#ifndef BT_ROUTER_FRONTEND_CALL_PRIV_H
#define BT_ROUTER_FRONTEND_CALL_PRIV_H

#include "router/frontend/call.h"
#include "router/frontend/intake.h"
#include "router/frontend/scores.h"
#include "router/text/reasoning_parser.h"
#include "router/text/tools.h"

#define BT_CALL_ID_BYTES 64

typedef struct bt_choice {
    bt_call_t *call;
    bt_gen_t *gen; /* NULL: not begun, or ended */
    uint32_t index;
    bool first; /* nothing of the choice was streamed yet */
    bt_finish_t finish;
    uint32_t n_prompt, n_output, n_cached, n_kept;
    uint32_t max_new, n_used; /* token limit, and tokens used */
    bt_strbuf_t text;         /* not streamed: the answer so far */
    bt_reason_t reason;
    bt_tools_t tools;      /* finds tool calls in the text */
    uint32_t n_calls_told; /* streamed: calls that were sent */
    size_t args_told;      /* ... bytes of the last sent call's arguments */
    bt_strbuf_t thought;   /* reasoning; streamed: the part not sent yet */
    bt_strbuf_t thoughts;  /* streamed response: all reasoning */
    uint32_t n_thought;    /* tokens up to the end of reasoning */
    char *echo; /* stream: beginning of the first piece (the prompt); owned */
    size_t echo_bytes;
    uint32_t *ids;  /* owned: n_output token ids, when requested */
    bool by_end_id; /* last token is an end id */
    /* Streamed: number of ids sent, and all ids while a piece is sent. */
    uint32_t n_told;
    const uint32_t *told_from;
    bt_gen_rows_t *rows;  /* a reference, once it has ended; NULL: none */
    bt_score_walk_t walk; /* position in the received log-probs */
    uint32_t n_scored;    /* tokens whose log-probs were streamed */
} bt_choice_t;

struct bt_call {
    bt_frontend_t *front;
    bt_intake_t *intake;   /* owned until the call runs or is refused */
    bt_served_t *served;   /* model of a running call */
    bt_tenant_t *tenant;   /* a reference, of a running call */
    bt_account_t *account; /* a reference, or NULL */
    bt_name_t name;        /* model name used by the client */
    uint32_t n_pieces;     /* stream pieces sent so far */
    uint64_t piece_us;     /* time of the last piece, or of the start */
    bt_reply_t *reply;     /* NULL: it was answered, or the client left */
    bt_api_answer_t answer;
    char id[BT_CALL_ID_BYTES];
    char *given_id;      /* id of a generate call; owned or NULL */
    char *model;         /* printed model name; owned */
    bt_strbuf_t opening; /* opening of a stream's events */
    bool stream;
    bool want_ids;    /* the answer lists token ids */
    bool is_echo;     /* max_tokens 0: generated text is not returned */
    bool pinned;      /* in use by a function of this file: do not free */
    bool accumulates; /* each piece repeats all text so far */
    bt_list_t held;   /* link in front->held, until the batch is complete */
    /* Stream: link in front->waiting until placed, then in front->placed until
     * bt_reply_ops_t.begin. */
    bt_list_t unbegun;
    bool is_placed;  /* one of the choices was sent to workers */
    bt_list_t paced; /* link in front->paced, until tell_us */
    uint64_t tell_us;
    bt_api_error_t *refusal; /* error to send then; owned */
    uint64_t ready_us;       /* time at which the call could begin */
    uint64_t n_prompt_tokens;
    uint32_t n_choices, n_open;
    uint32_t n_of_prompt,
        n_told; /* choices per prompt: computed, and returned */
    bool hides_logprobs;
    char *tool_names;              /* owned or NULL; see bt_tools_spec_t */
    char *instructions, *metadata; /* of a response; owned or NULL */
    bt_choice_t *choices;          /* owned */
    bt_api_choice_t *whole; /* owned: choices of a finished whole answer */
    bt_strbuf_t text;       /* tokenize, detokenize: the answer ... */
    bt_token_vec_t tokens;  /* ... and its ids, owned */
    uint32_t n_refs; /* references of protocols that still write the answer */
    bt_call_tally_t own_tally;
    bt_call_tally_t *tally; /* tally of the request: own_tally, or one shared by
                               several calls */
};

/** Fills the answer properties that the writers need. */
void bt_call_fill_answer(bt_call_t *call, const bt_api_request_t *request);
/** Creates the choices of the call. @return false when memory is short. */
bool bt_call_make_choices(bt_call_t *call, const bt_intake_t *in);
/** Submits all generations of the call, or as many as possible; then it fails.
 *  @retval others  from bt_core_submit_group() */
BT_MUST_CHECK bt_status_t bt_call_submit_all(bt_call_t *call,
                                             const bt_intake_t *in);

/** Begins a submitted stream now if one choice is placed, else later. The
 *  client may be gone afterwards: check call->reply. */
void bt_call_begin_stream(bt_call_t *call);
/** Begins a stream in front->waiting or front->placed. Afterwards the client
 *  may be gone, and so may the call unless it is pinned. */
void bt_call_begin_now(bt_call_t *call);

/** Frees the parts of a call that its answers are made from. */
void bt_call_free_parts(bt_call_t *call);
/** Frees the call when nothing refers to it any more. */
void bt_call_release(bt_call_t *call);
/** Returns the reply, for its final finish() or error() or for none, and
 *  detaches it from the call. */
bt_reply_t *bt_call_take_reply(bt_call_t *call);
/** Delays an error if the tenant's reject delay requires it; frees everything
 *  else of the call. @return false: send the error now */
bool bt_call_hold_refusal(bt_call_t *call, bt_tenant_t *tenant,
                          const bt_api_error_t *error);

#endif
