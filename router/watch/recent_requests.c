/* SPDX-License-Identifier: Apache-2.0 */
#include "router/watch/recent_requests.h"

#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"

bt_status_t bt_recent_requests_init(bt_recent_requests_t *past)
{
    bt_recent_request_t *ring = bt_calloc(BT_PAST_KEPT, sizeof(*ring));

    if (ring == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    *past = (bt_recent_requests_t){.ring = ring};
    return BT_OK;
}

void bt_recent_requests_fini(bt_recent_requests_t *past)
{
    for (uint32_t i = 0; (past->ring != NULL) && (i < BT_PAST_KEPT); i++) {
        bt_free(past->ring[i].prompt);
        bt_free(past->ring[i].answer);
    }
    bt_free(past->ring);
    *past = (bt_recent_requests_t){0};
}

void bt_recent_requests_add(bt_recent_requests_t *past, const char *model,
                            const bt_gen_record_t *record,
                            int64_t unix_minus_core_ns,
                            bt_recent_requests_texts_t texts)
{
    bt_recent_request_t *one = &past->ring[past->n_ever++ % BT_PAST_KEPT];
    const bt_ledger_t *l = record->ledger;
    const uint64_t begin_us = record->arrived_us - l->parse_us - l->tokenize_us;
    const uint32_t n = (record->n_attempts < BT_GEN_MAX_ATTEMPTS)
                           ? record->n_attempts
                           : BT_GEN_MAX_ATTEMPTS;

    bt_free(one->prompt);
    bt_free(one->answer);
    one->prompt = texts.prompt;
    one->answer = texts.answer;
    snprintf(one->model, sizeof(one->model), "%s", model);
    one->begin_us = begin_us;
    one->begin_unix_ms =
        (uint64_t)(unix_minus_core_ns / 1000 + (int64_t)begin_us) / 1000;
    one->ledger = *l;
    one->origin = *record->origin;
    one->finish = record->finish;
    one->http_status = record->http_status;
    snprintf(one->trouble, sizeof(one->trouble), "%s", record->trouble);
    one->n_tries = n;
    for (uint32_t i = 0; i < n; i++) {
        const char *ended = record->attempts[i].ended;

        one->tries[i] = record->attempts[i];
        one->tries[i].ended = NULL; /* freed soon */
        snprintf(one->ended[i], sizeof(one->ended[i]), "%s",
                 (ended != NULL) ? ended : "");
    }
}

/* Returns the i-th generation kept, the latest first. */
static const bt_recent_request_t *nth(const bt_recent_requests_t *past,
                                      uint64_t i)
{
    return &past->ring[(past->n_ever - 1 - i) % BT_PAST_KEPT];
}

static uint64_t n_kept(const bt_recent_requests_t *past)
{
    return (past->n_ever < BT_PAST_KEPT) ? past->n_ever : BT_PAST_KEPT;
}

/* Parses a number as printed: digits only, no leading 0. @return 0: invalid */
static uint64_t number_of(const char *id)
{
    uint64_t number = 0;

    return ((id[0] != '0') && (strlen(id) <= 19) && bt_parse_u64(id, &number))
               ? number
               : 0;
}

const bt_recent_request_t *
bt_recent_requests_find(const bt_recent_requests_t *past, const char *id)
{
    const uint64_t number = number_of(id);

    for (uint64_t i = 0; (id[0] != '\0') && (i < n_kept(past)); i++) {
        const bt_recent_request_t *one = nth(past, i);
        const bt_gen_origin_t *o = &one->origin;

        if (((number != 0) && (o->number == number)) ||
            ((o->choice == 0) && (strcmp(o->answer_id, id) == 0))) {
            return one;
        }
    }
    return NULL;
}

static bool passes(const bt_recent_request_t *one,
                   const bt_recent_requests_filter_t *filter)
{
    return ((filter->model == NULL) ||
            (strcmp(filter->model, one->model) == 0)) &&
           (one->ledger.total_us >= filter->slow_us) &&
           (!filter->missed || bt_recent_requests_missed(one)) &&
           (!filter->failed || (one->finish == BT_FINISH_ERROR));
}

void bt_recent_requests_write(const bt_recent_requests_t *past,
                              const bt_recent_requests_filter_t *filter,
                              bt_json_t *json)
{
    bool is_behind = filter->before == 0;
    uint32_t n = 0;

    bt_json_u64(json, "kept", n_kept(past));
    bt_json_array(json, "requests");
    for (uint64_t i = 0; i < n_kept(past); i++) {
        const bt_recent_request_t *one = nth(past, i);

        if ((filter->limit > 0) && (n == filter->limit)) {
            break;
        }
        if (is_behind && passes(one, filter)) {
            bt_json_object(json, NULL);
            bt_recent_requests_write_fields(one, json);
            bt_json_end_object(json);
            n++;
        }
        is_behind = is_behind || (one->origin.number == filter->before);
    }
    bt_json_end_array(json);
}
