/* SPDX-License-Identifier: Apache-2.0 */
/* Beam search: its fields, and what a request may not ask beside it. */
#include <math.h>
#include <string.h>

#include "common/base/status.h"
#include "router/api/api_priv.h"

/* false, true or "never"; as TensorRT-LLM's number 0, 1 or any other. */
bt_status_t bt_api_read_early_stopping(bt_api_parse_t *parse,
                                       const bt_api_field_t *field,
                                       const bt_json_node_t *value)
{
    bt_api_beams_t *beams = &parse->request->beams;
    double real = 0.0;

    beams->has_early_stopping = true;
    if (bt_json_is_bool(value)) {
        beams->early_stopping = (value->kind == BT_JSON_TRUE)
                                    ? BT_SCHED_BEAM_STOP_FULL
                                    : BT_SCHED_BEAM_STOP_HEURISTIC;
        return BT_OK;
    }
    if (bt_json_is(value, "never")) {
        beams->early_stopping = BT_SCHED_BEAM_STOP_NEVER;
        return BT_OK;
    }
    if (!bt_api_real(value, &real) || (floor(real) != real)) {
        return bt_api_refuse(parse, field->name,
                             "%s must be true, false, \"never\" or an integer, "
                             "got %s",
                             field->name, BT_API_SHOW(value));
    }
    beams->early_stopping = bt_api_early_stopping(real);
    return BT_OK;
}

uint32_t bt_api_early_stopping(double number)
{
    if (fpclassify(number) == FP_ZERO) {
        return BT_SCHED_BEAM_STOP_HEURISTIC;
    }
    return (number == 1.0) ? BT_SCHED_BEAM_STOP_FULL : BT_SCHED_BEAM_STOP_NEVER;
}

bt_status_t bt_api_read_length_penalty(bt_api_parse_t *parse,
                                       const bt_api_field_t *field,
                                       const bt_json_node_t *value)
{
    parse->request->beams.has_length_penalty = true;
    return bt_api_read_float(parse, field, value);
}

/* Name of the field that asks for the search. */
static const char *asks(const bt_api_request_t *request)
{
    return (request->dialect == BT_API_GENERATE) ? "beam_width"
                                                 : "use_beam_search";
}

static bt_status_t refuse(const bt_api_request_t *request, const char *field,
                          const char *why, bt_api_error_t *error_p)
{
    return bt_api_error_invalid(error_p, field,
                                "%s does not go with a beam search (%s): %s",
                                field, asks(request), why);
}

bt_status_t bt_api_refuse_beam_stream(const bt_api_request_t *request,
                                      const char *field,
                                      bt_api_error_t *error_p)
{
    return refuse(request, field,
                  "until its end any token may be replaced, so the answers "
                  "come as a whole",
                  error_p);
}

/* Logits processors that are part of a draw, or of one answer. The others
 * change log-probs, of each beam by its own tokens. */
static bt_status_t check_processors(const bt_api_request_t *request,
                                    const char *why, bt_api_error_t *error_p)
{
    const bt_processor_options_t *o = &request->sampling.processors;

    if ((o->top_p_decay > 0.0f) && (o->top_p_decay < 1.0f)) {
        return refuse(request, request->beams.names->top_p_decay, why, error_p);
    }
    if (o->top_n_sigma > 0.0f) {
        return refuse(request, "top_n_sigma", why, error_p);
    }
    if ((o->typical_p > 0.0f) && (o->typical_p < 1.0f)) {
        return refuse(request, "typical_p", why, error_p);
    }
    if (o->xtc_probability > 0.0f) {
        return refuse(request, "xtc_probability", why, error_p);
    }
    if (request->thinking_budget >= 0) {
        return refuse(request, "thinking_token_budget",
                      "tokens cannot be forced into beams", error_p);
    }
    if (request->n_allowed_ids > 0) { /* there may be fewer than beams */
        return refuse(request, "allowed_token_ids",
                      "beams need as many tokens to choose from as there are "
                      "beams",
                      error_p);
    }
    if (request->grammar.field != NULL) { /* as few as one */
        return refuse(request, request->grammar.field,
                      "beams need as many tokens to choose from as there are "
                      "beams",
                      error_p);
    }
    if (request->repetition.max_pattern > 0) {
        return refuse(request, "repetition_detection",
                      "beams end with an end id or at their length", error_p);
    }
    return BT_OK;
}

/* Ways to draw: temperature 0 and 1, top_k 1 and top_p 0 ask for none. */
static bt_status_t check_sampling(const bt_api_request_t *request,
                                  bt_api_error_t *error_p)
{
    static const char why[] = "it draws no tokens, it keeps the most probable";
    const bt_sampling_t *sampling = &request->sampling;
    const bt_api_beam_names_t *names = request->beams.names;

    if (((request->given & BT_GIVEN_TEMPERATURE) != 0) &&
        (fpclassify(sampling->temperature) != FP_ZERO) &&
        (sampling->temperature != 1.0f)) {
        return refuse(request, "temperature", why, error_p);
    }
    if (sampling->top_k > 1) {
        return refuse(request, names->top_k, why, error_p);
    }
    if (sampling->top_p < 1.0f) {
        return refuse(request, names->top_p, why, error_p);
    }
    if (sampling->min_p > 0.0f) {
        return refuse(request, "min_p", why, error_p);
    }
    return check_processors(request, why, error_p);
}

/* Data beside the answers. */
static bt_status_t check_wants(const bt_api_request_t *request,
                               bt_api_error_t *error_p)
{
    static const char logits[] = "logits are not kept for each beam";
    const uint32_t what = request->wants.what;

    if ((what & BT_WANT_PROMPT_LOGITS) != 0) {
        return refuse(request, "return_context_logits", logits, error_p);
    }
    if ((what & BT_WANT_LOGITS) != 0) {
        return refuse(request, "return_generation_logits", logits, error_p);
    }
    if ((what & BT_WANT_PROMPT_LOGPROBS) != 0) {
        return refuse(request,
                      request->has_prompt_logprobs ? "prompt_logprobs" : "echo",
                      "log-probs of the prompt are not there", error_p);
    }
    if (request->wants.n_top > 0) {
        return refuse(request,
                      (request->dialect == BT_API_CHAT) ? "top_logprobs"
                                                        : "logprobs",
                      "there are log-probs, without alternatives (0)", error_p);
    }
    return BT_OK;
}

/* Everything that would have to be refused, or ignored. */
static bt_status_t check_others(const bt_api_request_t *request,
                                bt_api_error_t *error_p)
{
    static const char drafts[] = "there are no drafts of beams";
    const bt_api_beam_names_t *names = request->beams.names;

    if (request->stream && (request->dialect != BT_API_GENERATE)) {
        return bt_api_refuse_beam_stream(request, names->stream, error_p);
    }
    if ((request->n_stops > 0) || (request->n_stop_ids > 0)) {
        return refuse(request, names->stops,
                      "beams end with an end id or at their length", error_p);
    }
    if (request->draft_text != NULL) {
        return refuse(request, "prediction", drafts, error_p);
    }
    if (request->n_draft_ids > 0) {
        return refuse(request, "draft_input_ids", drafts, error_p);
    }
    if ((request->max_drafts > 0) && (request->max_drafts != UINT32_MAX)) {
        return refuse(request, "num_draft_tokens", drafts, error_p);
    }
    if (request->has_max_tokens && (request->max_tokens == 0)) {
        return refuse(request, "max_tokens", "0 asks for no answer", error_p);
    }
    return check_wants(request, error_p);
}

/* Sets the parameters, with the defaults of the door. */
static bt_status_t fill(bt_api_request_t *request, bt_api_error_t *error_p)
{
    const bool is_triton = request->dialect == BT_API_GENERATE;
    bt_api_beams_t *beams = &request->beams;
    bt_sched_beam_params_t *params = &beams->params;
    uint32_t n_returned = request->n;

    params->width = beams->width;
    if (!is_triton) {
        params->width =
            (request->best_of > request->n) ? request->best_of : request->n;
    } else if (beams->n_sequences > 0) {
        n_returned = beams->n_sequences;
    } else {
        n_returned = beams->width;
    }
    if (n_returned > params->width) {
        return bt_api_error_invalid(error_p, "num_return_sequences",
                                    "num_return_sequences %u is above "
                                    "beam_width %u",
                                    n_returned, params->width);
    }
    params->n_returned = n_returned;
    params->length_penalty = beams->has_length_penalty ? beams->length_penalty
                             : is_triton               ? 0.0f
                                                       : 1.0f;
    params->early_stopping = beams->has_early_stopping ? beams->early_stopping
                             : is_triton               ? BT_SCHED_BEAM_STOP_FULL
                                         : BT_SCHED_BEAM_STOP_HEURISTIC;
    return BT_OK;
}

bt_status_t bt_api_settle_beams(bt_api_request_t *request,
                                const bt_api_beam_names_t *names,
                                bt_api_error_t *error_p)
{
    bt_api_beams_t *beams = &request->beams;
    bt_sampling_t *sampling = &request->sampling;
    bt_status_t status;

    beams->names = names;
    if ((request->dialect == BT_API_GENERATE) && (beams->width < 2) &&
        (beams->n_sequences > 1)) {
        return bt_api_error_invalid(
            error_p, "num_return_sequences",
            "num_return_sequences above 1 needs a beam_width, got %u",
            beams->n_sequences);
    }
    beams->is_on = beams->is_asked || (beams->width > 1);
    if (!beams->is_on) {
        return BT_OK;
    }
    status = check_sampling(request, error_p);
    if (status == BT_OK) {
        status = check_others(request, error_p);
    }
    if (status == BT_OK) {
        status = fill(request, error_p);
    }
    if (status != BT_OK) {
        return status;
    }
    sampling->temperature = 0.0f;
    sampling->top_k = 0;
    sampling->top_p = 1.0f;
    request->given |= BT_GIVEN_A_DISTRIBUTION;
    request->n = beams->params.n_returned;
    request->best_of = 0;
    request->max_drafts = 0;
    if (beams->params.width == 1) { /* one beam is the greedy answer */
        beams->params = (bt_sched_beam_params_t){.width = 0};
        request->max_drafts = UINT32_MAX;
    }
    return BT_OK;
}
