/* SPDX-License-Identifier: Apache-2.0 */
/* Admission by latency targets: whether a request can be served in time, from
 * the work in progress (sched_slo.h), and corrections learned from past
 * forecasts (sched_cost.h). */
#include "router/core/core_priv.h"

#define MEAN_SHARE 0.05      /* weight of the newest in a mean */
#define MEAN_HALF  30000000u /* us: half-life of a mean without new values */
#define FIRST_MEAN 256u      /* tokens of an answer until one has ended */
#define ERROR_MOST 500u      /* thousandths */
/* A decode worker whose seats are all taken for this long is sent one more
 * request. */
#define SEATS_EVERY_US 60000000u
/* Iterations are forecast for the worker's own cores, and may always be faster:
 * then more seats keep the target. A prompt's forecast is never reduced. */
#define FIRST_FACTOR_LEAST   1000u
#define BETWEEN_FACTOR_LEAST 500u

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return (a < b) ? a : b;
}

void bt_core_note_lengths(bt_core_t *core, const bt_gen_t *gen, uint64_t now_us)
{
    const double output = gen->n_output;
    const double context = gen->prompt->n + output / 2;
    const double share = bt_sched_age_share(
        MEAN_SHARE, bt_sched_age_us(core->lengths_at_us, now_us), MEAN_HALF);

    if (core->mean_output <= 0) {
        core->mean_output = output;
        core->mean_context = context;
    } else {
        core->mean_output += share * (output - core->mean_output);
        core->mean_context += share * (context - core->mean_context);
    }
    core->lengths_at_us = now_us;
}

void bt_core_init_margins(bt_core_t *core)
{
    bt_sched_safety_factor_init(&core->first_margin, FIRST_FACTOR_LEAST);
    bt_sched_safety_factor_init(&core->between_margin, BETWEEN_FACTOR_LEAST);
}

/* Updates a safety factor; a probe counts separately (sched_cost.h).
 */
static void learn(bt_sched_safety_factor_t *margin, const bt_gen_t *gen,
                  uint64_t forecast_us, uint64_t us, uint64_t now_us)
{
    if (gen->was_probe) {
        bt_sched_safety_factor_probe(margin, forecast_us, us, now_us);
    } else {
        bt_sched_safety_factor_learn(margin, forecast_us, us, now_us);
    }
}

/* Learns from forecasts of at least half the target only: for short waits the
 * fixed costs dominate, which say nothing about long waits. */
void bt_core_note_promise(bt_core_t *core, const bt_gen_t *gen, uint64_t now_us)
{
    const uint64_t target_us = (uint64_t)gen->target.ttft_ms * 1000;

    if (gen->attempt.number > 1) { /* a worker was lost */
        return;
    }
    if ((target_us > 0) && (gen->forecast_first_us >= target_us / 2)) {
        learn(&core->first_margin, gen, gen->forecast_first_us,
              gen->first_token_at_us - gen->arrived_us + gen->ledger.parse_us +
                  gen->ledger.tokenize_us,
              now_us);
    }
    if ((gen->target.itl_ms > 0) && (gen->n_output > 1)) {
        learn(&core->between_margin, gen, gen->forecast_between_us,
              (gen->last_token_at_us - gen->first_token_at_us) /
                  (gen->n_output - 1),
              now_us);
    }
}

void bt_core_probe_over(bt_core_t *core, bt_gen_t *gen, uint64_t now_us)
{
    if (gen->is_probe) {
        gen->is_probe = false;
        bt_sched_probe_back(&core->probe, now_us);
    }
}

uint32_t bt_core_mean_context(const bt_core_t *core)
{
    return (uint32_t)core->mean_context;
}

/* Returns the most iterations per token: with static batches an answer may wait
 * for a running batch, about as long as it takes itself. */
static uint32_t rounds_of(const bt_instance_t *worker)
{
    return ((worker->hello.flags & BT_HELLO_STATIC_BATCHES) != 0) ? 2 : 1;
}

/* Allows one more seat from time to time. The cost of one more sequence is not
 * measured while no more are sent, so a limit that is too low would stay.
 * Applies until the next STATS, which set the limit anew. */
static uint32_t one_more(bt_instance_t *worker, uint32_t n_seats,
                         uint64_t now_us)
{
    if ((n_seats == worker->hello.max_batch) ||
        (worker->sched.seats < n_seats) || (worker->seats_tried_us == 0)) {
        worker->seats_tried_us = now_us;
        return n_seats;
    }
    if (bt_sched_age_us(worker->seats_tried_us, now_us) < SEATS_EVERY_US) {
        return n_seats;
    }
    worker->seats_tried_us = now_us;
    return n_seats + 1;
}

void bt_core_limit_seats(const bt_core_t *core, bt_instance_t *worker,
                         uint64_t now_us)
{
    const bt_sched_rates_t *rates = &worker->stats.rates;
    const uint32_t itl_ms = core->config.target.itl_ms;
    uint64_t times;

    if ((itl_ms == 0) || ((worker->roles & BT_ROLE_DECODE) == 0)) {
        worker->sched.max_seats = worker->hello.max_batch;
        worker->sched.holds_target = false;
        return;
    }
    /* Forecasts include their mean error and the safety factor; so does this.
     */
    times = (1000 + min_u64(rates->decode_error, ERROR_MOST)) *
            bt_sched_safety_factor_now(&core->between_margin, now_us) *
            rounds_of(worker);
    worker->sched.max_seats = one_more(
        worker,
        bt_sched_rates_seats(rates, bt_core_mean_context(core),
                             (uint64_t)itl_ms * UINT64_C(1000000000) / times,
                             worker->hello.max_batch),
        now_us);
    worker->sched.holds_target = true;
}

/* ---- the forecast ---- */

bt_core_ahead_t bt_core_ahead_at(const bt_instance_t *worker,
                                 const bt_sched_turn_t *turn)
{
    bt_core_ahead_t ahead = {0};

    BT_LIST_FOR_EACH_ENTRY(const bt_leg_t, leg, &worker->legs, link) {
        if ((leg->state == BT_LEG_IS_COMPUTING) && (leg->prefill_us > 0) &&
            !bt_sched_turn_before(turn, &leg->gen->turn)) {
            ahead.us += leg->prefill_us;
            ahead.n++;
        }
    }
    return ahead;
}

/* Returns the waiting prompts of a tenant that go before, up to @a most_us.
 * @param [in] turn  NULL: all go before */
static bt_core_ahead_t ahead_in(const bt_core_t *core,
                                const bt_core_flow_t *flow,
                                const bt_sched_turn_t *turn, uint64_t most_us)
{
    bt_core_ahead_t ahead = {0};

    for (unsigned i = 0; i < BT_NEED_N; i++) {
        const bt_list_t *queue = &flow->waiting[i];

        for (bt_list_t *pos = queue->next;
             (pos != queue) && (ahead.us < most_us); pos = pos->next) {
            const bt_gen_t *gen =
                BT_CONTAINER_OF(bt_sched_turn_of(pos), bt_gen_t, turn);

            if ((turn != NULL) && bt_sched_turn_before(turn, &gen->turn)) {
                break;
            }
            ahead.us += bt_core_prompt_us(core, NULL, bt_gen_n_tokens(gen));
            ahead.n++;
        }
    }
    return ahead;
}

/* Returns the waiting prompts that go before: of the own tenant by queue order,
 * of each other tenant its weighted share meanwhile. */
static bt_core_ahead_t ahead_here(bt_core_t *core, const bt_sched_turn_t *turn,
                                  const bt_gen_tenant_t *tenant,
                                  uint64_t prompt_us)
{
    const double weight = (tenant->weight > 0) ? tenant->weight : 1;
    bt_core_ahead_t all = {0};
    bt_list_t *head;

    BT_HMAP_FOR_EACH_BUCKET(head, &core->flows)
    {
        BT_LIST_FOR_EACH_ENTRY(const bt_core_flow_t, flow, head, by_id) {
            if (flow->id == tenant->id) {
                all = ahead_in(core, flow, turn, UINT64_MAX);
            }
        }
    }
    prompt_us += all.us;
    BT_HMAP_FOR_EACH_BUCKET(head, &core->flows)
    {
        BT_LIST_FOR_EACH_ENTRY(const bt_core_flow_t, flow, head, by_id) {
            const double share = (double)flow->fair.weight / weight;
            bt_core_ahead_t its;

            if ((flow->id == tenant->id) || (flow->n_waiting == 0)) {
                continue;
            }
            its = ahead_in(core, flow, NULL,
                           (uint64_t)(share * (double)prompt_us));
            all.us += its.us;
            all.n += its.n;
        }
    }
    return all;
}

/* Capacity of all workers together, for this request. */
typedef struct survey {
    uint32_t n_prefill;
    uint64_t ahead_us, prompt_us; /* at the best prefill worker */
    uint64_t prefill_error, decode_error;
    uint64_t seats, taken;
    double seats_per_us; /* seats per us of iteration, over all workers */
    uint64_t step_us;  /* shortest iteration of any worker, with this request */
    uint64_t full_us;  /* that worker's with all seats taken; 0: few are */
    bool idle_prefill; /* a prefill worker is idle */
    bool idle_decode;  /* a decode worker is idle */
} survey_t;

static void survey_prefill(const bt_core_t *core, const bt_instance_t *worker,
                           const bt_sched_turn_t *turn, uint32_t n_prompt,
                           survey_t *s)
{
    const uint64_t ahead_us = bt_core_ahead_at(worker, turn).us;
    const uint64_t prompt_us = bt_core_prompt_us(core, worker, n_prompt);

    if ((s->n_prefill == 0) ||
        (ahead_us + prompt_us < s->ahead_us + s->prompt_us)) {
        s->ahead_us = ahead_us;
        s->prompt_us = prompt_us;
        s->prefill_error = worker->stats.rates.prefill_error;
    }
    s->idle_prefill =
        s->idle_prefill || ((worker->sched.prefill_tokens == 0) &&
                            (worker->sched.reported_waiting == 0));
    s->n_prefill++;
}

static void survey_decode(const bt_core_t *core, const bt_instance_t *worker,
                          uint32_t n, survey_t *s)
{
    const bt_sched_worker_t *w = &worker->sched;
    const uint64_t taken =
        (w->seats > w->reported_seats) ? w->seats : w->reported_seats;
    const uint32_t running = (uint32_t)min_u64(taken, w->max_seats);
    const uint32_t context = bt_core_mean_context(core);
    const uint32_t rounds = (running > 0) ? rounds_of(worker) : 1;
    const uint64_t full_us =
        rounds *
        bt_sched_rates_step_us(&worker->stats.rates, w->max_seats, context);
    const uint64_t step_us =
        rounds * bt_sched_rates_step_us(
                     &worker->stats.rates,
                     (uint32_t)min_u64((uint64_t)running + n, w->max_seats),
                     context);

    s->seats += w->max_seats;
    s->taken += taken;
    s->idle_decode = s->idle_decode || (taken == 0);
    if (full_us > 0) {
        s->seats_per_us += (double)w->max_seats / (double)full_us;
    }
    if ((s->step_us == 0) || ((step_us > 0) && (step_us < s->step_us))) {
        s->step_us = step_us;
        /* The speed of a mostly idle worker says nothing about one with all
         * seats taken, which also has to return borrowed cores. */
        s->full_us =
            (4 * (uint64_t)running >= 3 * (uint64_t)w->max_seats) ? full_us : 0;
        s->decode_error = worker->stats.rates.decode_error;
    }
}

static survey_t survey_workers(const bt_core_t *core,
                               const bt_sched_turn_t *turn, uint32_t n_prompt,
                               uint32_t n)
{
    survey_t s = {0};

    BT_LIST_FOR_EACH_ENTRY(const bt_instance_t, worker, &core->table.workers,
                           link) {
        if (worker->sched.health != BT_SCHED_UP) {
            continue;
        }
        if ((worker->roles & BT_ROLE_PREFILL) != 0) {
            survey_prefill(core, worker, turn, n_prompt, &s);
        }
        if ((worker->roles & BT_ROLE_DECODE) != 0) {
            survey_decode(core, worker, n, &s);
        }
    }
    return s;
}

/* Builds the forecast, and stores its values without the safety factors. */
static bt_sched_forecast_t forecast_of(bt_core_t *core, const survey_t *s,
                                       const bt_sched_turn_t *turn,
                                       const bt_gen_spec_t *spec, uint32_t n,
                                       uint64_t now_us)
{
    const double tokens = (core->mean_output > 0)
                              ? core->mean_output
                              : (double)min_u64(spec->max_new, FIRST_MEAN);
    bt_sched_forecast_t o = {.prompt_us = s->prompt_us, .step_us = s->step_us};
    const uint64_t error = (s->prefill_error > s->decode_error)
                               ? s->prefill_error
                               : s->decode_error;
    const bt_core_ahead_t here =
        ahead_here(core, turn, &spec->tenant, s->prompt_us);
    const uint64_t n_ahead = s->taken + here.n + n;

    o.error = (uint32_t)min_u64(error, ERROR_MOST);
    o.ahead_us =
        s->ahead_us + ((s->n_prefill > 0) ? here.us / s->n_prefill : 0);
    if ((spec->max_new > 1) && (s->seats_per_us > 0)) {
        o.seat_us = (uint64_t)(tokens / s->seats_per_us);
        o.n_over = (n_ahead > s->seats)
                       ? (uint32_t)min_u64(n_ahead - s->seats, UINT32_MAX)
                       : 0;
    }
    core->forecast_first_us = bt_sched_forecast_ttft_us(&o);
    core->forecast_between_us = s->full_us * (1000 + o.error) / 1000;
    o.first_factor = bt_sched_safety_factor_now(&core->first_margin, now_us);
    o.between_factor =
        bt_sched_safety_factor_now(&core->between_margin, now_us);
    return o;
}

/* True when no request is ahead. Then only forecasts cause the rejection, and
 * meanwhile nothing is measured that could correct them. */
static bool workers_are_idle(const bt_core_t *core, const survey_t *s,
                             const bt_sched_forecast_t *forecast,
                             bt_sched_slo_verdict_t verdict)
{
    const bool has_seat = (forecast->n_over == 0) || s->idle_decode;

    return (core->n_waiting == 0) && s->idle_prefill &&
           ((verdict == BT_SCHED_TTFT_MISSED) ? has_seat : s->idle_decode);
}

bt_status_t bt_core_judge(bt_core_t *core, const bt_gen_spec_t *spec,
                          uint32_t n, uint64_t now_us)
{
    const bt_sched_slo_t target =
        bt_sched_slo_or(spec->target, core->config.target);
    bt_sched_forecast_t forecast;
    bt_sched_turn_t turn;
    uint32_t retry_s = 0;
    bt_sched_slo_verdict_t verdict;
    survey_t s;

    core->forecast_first_us = 0;
    core->forecast_between_us = 0;
    core->judged_probe = false;
    if (((target.ttft_ms == 0) && (target.itl_ms == 0)) ||
        (bt_sched_rates_prompt_us(&core->rates, 1, 1) == 0)) {
        return BT_OK;
    }
    bt_sched_turn_init(&turn, spec->priority, now_us);
    turn.slack_us =
        bt_core_slack_us(core, spec->prompt->n, now_us, UINT64_MAX, &target);
    s = survey_workers(core, &turn, spec->prompt->n, n);
    forecast = forecast_of(core, &s, &turn, spec, n, now_us);
    verdict = bt_sched_slo_check(&target, &forecast, &retry_s);
    if (verdict == BT_SCHED_SLO_MET) {
        return BT_OK;
    }
    if (workers_are_idle(core, &s, &forecast, verdict)) {
        if (bt_sched_probe_is_due(&core->probe, now_us)) {
            core->judged_probe = true;
            return BT_OK;
        }
        retry_s = 1; /* a probe is due by then */
    }
    core->late = (bt_core_late_t){
        .first = verdict == BT_SCHED_TTFT_MISSED,
        .retry_s = retry_s,
    };
    core->late.target_ms = core->late.first ? target.ttft_ms : target.itl_ms;
    core->late.forecast_ms =
        (core->late.first ? bt_sched_forecast_ttft_us(&forecast)
                          : bt_sched_forecast_itl_us(&forecast)) /
        1000;
    return BT_ERR_TIMED_OUT;
}

const bt_core_late_t *bt_core_late(const bt_core_t *core)
{
    return &core->late;
}
