/* SPDX-License-Identifier: Apache-2.0 */
#include "router/tenants/tenants.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/alloc.h"
#include "common/base/log.h"

/* ---- one ---- */

const char *bt_tenant_space(const bt_tenant_t *tenant)
{
    return ((tenant != NULL) && tenant->is_named) ? tenant->name : "";
}

bt_tenant_t *bt_tenant_ref(bt_tenant_t *tenant)
{
    tenant->refs++;
    return tenant;
}

void bt_tenant_unref(bt_tenant_t *tenant)
{
    if ((tenant != NULL) && (--tenant->refs == 0)) {
        bt_list_remove(&tenant->link);
        (void)pthread_mutex_destroy(&tenant->grammar_lock);
        bt_free(tenant);
    }
}

static void set_limits(bt_tenant_t *tenant, const bt_tenant_limits_t *limits,
                       uint64_t now_us)
{
    const uint32_t burst = (limits->rate > 0) ? limits->burst : 1;
    const uint32_t us = limits->grammar_ms * 1000; /* per minute */

    tenant->limits = *limits;
    bt_sched_bucket_change(&tenant->bucket, limits->rate, burst, now_us);
    (void)pthread_mutex_lock(&tenant->grammar_lock);
    bt_sched_bucket_change(&tenant->grammar_bucket, (us + 59) / 60,
                           (us > 0) ? us : 1, now_us);
    (void)pthread_mutex_unlock(&tenant->grammar_lock);
}

/* @return a tenant with one reference, in no list; NULL: out of memory */
static bt_tenant_t *make(bt_tenants_t *tenants, const char *name, bool is_named)
{
    bt_tenant_t *tenant = bt_calloc(1, sizeof(*tenant));

    if (tenant == NULL) {
        return NULL;
    }
    bt_list_init(&tenant->link);
    (void)pthread_mutex_init(&tenant->grammar_lock, NULL);
    tenant->refs = 1;
    tenant->is_named = is_named;
    tenant->id = is_named ? ++tenants->next_id : 0;
    snprintf(tenant->name, sizeof(tenant->name), "%s", name);
    bt_tenant_limits_init(&tenant->limits);
    if (tenants->metrics != NULL) {
        tenant->metrics = bt_router_metrics_tenant(tenants->metrics, name);
    }
    return tenant;
}

/* ---- all ---- */

bool bt_tenants_are_keyed(const bt_tenants_t *tenants)
{
    return (tenants->path != NULL) && (tenants->path[0] != '\0');
}

bool bt_tenants_are_many(const bt_tenants_t *tenants)
{
    return bt_tenants_are_keyed(tenants) || (tenants->header[0] != '\0');
}

/* Finds a tenant by name. @return NULL: there is none */
static bt_tenant_t *find_name(const bt_tenants_t *tenants, const char *name)
{
    for (bt_list_t *at = tenants->all.prev; at != &tenants->all;
         at = at->prev) {
        bt_tenant_t *tenant = BT_CONTAINER_OF(at, bt_tenant_t, link);

        if (strcmp(tenant->name, name) == 0) {
            return tenant;
        }
    }
    return NULL;
}

static void drop_list(bt_tenant_t **list, uint32_t n)
{
    for (uint32_t i = 0; (list != NULL) && (i < n); i++) {
        bt_tenant_unref(list[i]);
    }
    bt_free(list);
}

/* Makes references to the tenants of a file: existing ones by name, and new
 * ones. Existing tenants are not changed. */
static bt_status_t match(bt_tenants_t *tenants, const bt_keys_file_t *file,
                         bt_tenant_t ***list_p)
{
    bt_tenant_t **list = bt_calloc((size_t)file->n_tenants + 1, sizeof(*list));

    if (list == NULL) {
        return BT_ERR_NO_MEMORY;
    }
    for (uint32_t i = 0; i < file->n_tenants; i++) {
        bt_tenant_t *old = find_name(tenants, file->tenants[i].name);

        list[i] = (old != NULL) ? bt_tenant_ref(old)
                                : make(tenants, file->tenants[i].name, true);
        if (list[i] == NULL) {
            drop_list(list, file->n_tenants);
            return BT_ERR_NO_MEMORY;
        }
    }
    *list_p = list;
    return BT_OK;
}

/* Activates the file. */
static void take_over(bt_tenants_t *tenants, const bt_keys_file_t *file,
                      bt_tenant_t **list, uint64_t now_us)
{
    /* A tenant in no list is not found any more. */
    while (!bt_list_empty(&tenants->all)) {
        bt_list_remove(tenants->all.next);
    }
    for (uint32_t i = 0; i < file->n_tenants; i++) {
        bt_list_push_back(&tenants->all, &list[i]->link);
        set_limits(list[i], &file->tenants[i].limits, now_us);
    }
    drop_list(tenants->of_file, tenants->file.n_tenants);
    bt_keys_file_fini(&tenants->file);
    tenants->file = *file;
    tenants->of_file = list;
}

static bt_status_t read_keys(bt_tenants_t *tenants, const char *else_text,
                             uint64_t now_us)
{
    char warning[BT_KEYS_WHY_BYTES], why[BT_KEYS_WHY_BYTES];
    bt_keys_file_t file = {0};
    bt_tenant_t **list = NULL;
    bt_status_t status = bt_keys_file_read(tenants->path, &file, warning, why);

    if (status == BT_OK) {
        status = match(tenants, &file, &list);
        snprintf(why, sizeof(why), "%s", bt_status_str(status));
    }
    if (status != BT_OK) {
        BT_LOG_ERROR("API keys %s: %s%s", tenants->path, why, else_text);
        bt_keys_file_fini(&file);
        return status;
    }
    if (warning[0] != '\0') {
        BT_LOG_WARN("API keys %s: %s", tenants->path, warning);
    }
    BT_LOG_INFO("API keys %s: %u keys of %u tenants", tenants->path,
                file.n_keys, file.n_tenants);
    take_over(tenants, &file, list, now_us);
    return BT_OK;
}

bt_status_t bt_tenants_open(bt_tenants_t *tenants, const char *path,
                            const char *header, bt_router_metrics_t *metrics,
                            uint64_t now_us)
{
    *tenants = (bt_tenants_t){.path = path, .metrics = metrics};
    for (size_t i = 0; (header[i] != '\0') && (i + 1 < sizeof(tenants->header));
         i++) {
        tenants->header[i] = (char)tolower((unsigned char)header[i]);
    }
    bt_list_init(&tenants->all);
    tenants->plain = make(tenants, BT_TENANT_PLAIN_NAME, false);
    if (tenants->plain == NULL) {
        BT_LOG_ERROR("out of memory");
        return BT_ERR_NO_MEMORY;
    }
    return bt_tenants_are_keyed(tenants) ? read_keys(tenants, "", now_us)
                                         : BT_OK;
}

void bt_tenants_reload(bt_tenants_t *tenants, uint64_t now_us)
{
    if (bt_tenants_are_keyed(tenants)) {
        /* A failure is logged. */
        const bt_status_t status =
            read_keys(tenants, "; those before stay in force", now_us);

        (void)status;
    }
}

void bt_tenants_close(bt_tenants_t *tenants)
{
    if (tenants->plain == NULL) {
        return;
    }
    drop_list(tenants->of_file, tenants->file.n_tenants);
    bt_keys_file_fini(&tenants->file);
    while (!bt_list_empty(&tenants->all)) { /* tenants named by a header */
        bt_tenant_t *tenant =
            BT_CONTAINER_OF(tenants->all.next, bt_tenant_t, link);

        bt_list_remove(&tenant->link);
        bt_tenant_unref(tenant);
    }
    bt_tenant_unref(tenants->plain);
    *tenants = (bt_tenants_t){0};
}

/* ---- tenant of a request ---- */

/* @return the key of `Bearer KEY`, NULL: another form */
static const char *bearer(const char *authorization)
{
    static const char scheme[] = "Bearer";
    const size_t n = sizeof(scheme) - 1;

    if ((authorization == NULL) ||
        (strncasecmp(authorization, scheme, n) != 0) ||
        (authorization[n] != ' ')) {
        return NULL;
    }
    return authorization + n + strspn(authorization + n, " ");
}

static bt_status_t find_key(const bt_tenants_t *tenants,
                            bt_tenants_field_fn field, const void *ctx,
                            bt_tenant_t **tenant_p, const char **why_p)
{
    const char *key = bearer(field(ctx, "authorization"));
    uint32_t index;

    key = (key != NULL) ? key : field(ctx, "x-api-key");
    key = (key != NULL) ? key : field(ctx, "api-key");
    if (key == NULL) {
        *why_p = "this server wants an API key: send it as `Authorization: "
                 "Bearer KEY` (or in x-api-key)";
        return BT_ERR_UNAUTHORIZED;
    }
    index = bt_keys_file_find(&tenants->file, key, strlen(key));
    if (index == tenants->file.n_tenants) {
        *why_p = "the API key is not one of this server's";
        return BT_ERR_UNAUTHORIZED;
    }
    *tenant_p = tenants->of_file[index];
    return BT_OK;
}

/* Removes the least recently seen tenant without running requests, to make a
 * slot for a new name. */
static bool forget_one(bt_tenants_t *tenants)
{
    BT_LIST_FOR_EACH_ENTRY(bt_tenant_t, tenant, &tenants->all, link) {
        if (tenant->refs == 1) {
            bt_tenant_unref(tenant);
            tenants->n_named--;
            return true;
        }
    }
    return false;
}

static bt_status_t find_named(bt_tenants_t *tenants, const char *name,
                              bt_tenant_t **tenant_p, const char **why_p)
{
    bt_tenant_t *tenant;

    if ((name == NULL) || (strcmp(name, BT_TENANT_PLAIN_NAME) == 0)) {
        *tenant_p = tenants->plain;
        return BT_OK;
    }
    if (!bt_tenant_name_is_valid(name, strlen(name))) {
        *why_p = "the header that names the tenant has no name of letters, "
                 "digits, '.', '_' and '-' (at most 63, no dot first)";
        return BT_ERR_INVALID_PARAM;
    }
    tenant = find_name(tenants, name);
    if (tenant == NULL) {
        if ((tenants->n_named == BT_TENANTS_MAX_NAMED) &&
            !forget_one(tenants)) {
            *why_p = "requests of 256 tenants are under way, try again later";
            return BT_ERR_BUSY;
        }
        tenant = make(tenants, name, true);
        if (tenant == NULL) {
            *why_p = "out of memory for this request, try again later";
            return BT_ERR_NO_MEMORY;
        }
        tenants->n_named++;
    }
    bt_list_remove(&tenant->link); /* the most recent one is last */
    bt_list_push_back(&tenants->all, &tenant->link);
    *tenant_p = tenant;
    return BT_OK;
}

bool bt_tenants_may_have(const bt_tenants_t *tenants, const char *name)
{
    if (bt_tenants_are_keyed(tenants)) {
        return find_name(tenants, name) != NULL;
    }
    return bt_tenants_are_many(tenants) &&
           (strcmp(name, BT_TENANT_PLAIN_NAME) != 0) &&
           bt_tenant_name_is_valid(name, strlen(name));
}

bt_status_t bt_tenants_find(bt_tenants_t *tenants, bt_tenants_field_fn field,
                            const void *ctx, bt_tenant_t **tenant_p,
                            const char **why_p)
{
    if (bt_tenants_are_keyed(tenants)) {
        return find_key(tenants, field, ctx, tenant_p, why_p);
    }
    if (bt_tenants_are_many(tenants)) {
        return find_named(tenants, field(ctx, tenants->header), tenant_p,
                          why_p);
    }
    *tenant_p = tenants->plain;
    return BT_OK;
}

/* ---- limits ---- */

#define SECOND_US UINT64_C(1000000)
#define MAX_RETRY UINT64_C(3600)

static uint32_t seconds(uint64_t us)
{
    const uint64_t s = (us + SECOND_US - 1) / SECOND_US;

    return (uint32_t)((s < 1) ? 1 : (s > MAX_RETRY) ? MAX_RETRY : s);
}

static bt_status_t deny(bt_tenant_t *tenant, bt_tenant_denial_t *denial,
                        bt_tenant_cell_t cause, uint64_t us)
{
    denial->cause = cause;
    denial->retry_after_s = seconds(us);
    bt_tenant_metrics_add(tenant->metrics, cause, 1);
    return BT_ERR_BUSY;
}

bt_status_t bt_tenant_check_requests(bt_tenant_t *tenant, uint32_t n,
                                     uint32_t n_mine,
                                     bt_tenant_denial_t *denial)
{
    const uint32_t most = tenant->limits.requests;
    const uint32_t n_now = tenant->n_under_way - n_mine;

    if ((most == 0) || ((uint64_t)n_now + n <= most)) {
        return BT_OK;
    }
    snprintf(denial->message, sizeof(denial->message),
             "Rate limit reached for requests at once: limit %u, under way %u, "
             "asked for %u (each answer counts)",
             most, n_now, n);
    return deny(tenant, denial, BT_TC_REFUSED_REQUESTS, tenant->gap_us);
}

bt_status_t bt_tenant_check_tokens(bt_tenant_t *tenant, uint64_t n_tokens,
                                   uint64_t now_us, bt_tenant_denial_t *denial)
{
    bt_sched_bucket_t *bucket = &tenant->bucket;
    const uint64_t us = bt_sched_bucket_wait_us(bucket, n_tokens, now_us);

    if (us == 0) {
        return BT_OK;
    }
    snprintf(denial->message, sizeof(denial->message),
             "Rate limit reached for tokens: limit %u a second with a burst of "
             "%u, left %" PRIu64 ", asked for %" PRIu64
             " (prompt and max_tokens); try again in %u s",
             bucket->rate, bucket->burst, bt_sched_bucket_left(bucket, now_us),
             n_tokens, seconds(us));
    return deny(tenant, denial, BT_TC_REFUSED_TOKENS, us);
}

static uint64_t compile_wait_us(bt_tenant_t *tenant, uint64_t now_us)
{
    uint64_t us;

    (void)pthread_mutex_lock(&tenant->grammar_lock);
    us = bt_sched_bucket_wait_us(&tenant->grammar_bucket, 1, now_us);
    (void)pthread_mutex_unlock(&tenant->grammar_lock);
    return us;
}

bool bt_tenant_may_compile(bt_tenant_t *tenant, uint64_t now_us)
{
    return compile_wait_us(tenant, now_us) == 0;
}

void bt_tenant_charge_compile(bt_tenant_t *tenant, uint64_t cpu_us,
                              uint64_t now_us)
{
    (void)pthread_mutex_lock(&tenant->grammar_lock);
    bt_sched_bucket_take(&tenant->grammar_bucket, cpu_us, now_us);
    (void)pthread_mutex_unlock(&tenant->grammar_lock);
}

void bt_tenant_deny_compile(bt_tenant_t *tenant, uint64_t now_us,
                            bt_tenant_denial_t *denial)
{
    const uint64_t us = compile_wait_us(tenant, now_us);
    bt_status_t status;

    snprintf(denial->message, sizeof(denial->message),
             "Rate limit reached for grammars: limit %u ms a minute to compile "
             "them (grammar-ms-per-minute), nothing left; try again in %u s, "
             "or with a description that was compiled before",
             tenant->limits.grammar_ms, seconds(us));
    status = deny(tenant, denial, BT_TC_REFUSED_GRAMMARS, us);
    (void)status;
}

void bt_tenant_begin(bt_tenant_t *tenant, uint32_t n)
{
    tenant->n_under_way += n;
    bt_tenant_metrics_add(tenant->metrics, BT_TC_RUNNING, n);
}

void bt_tenant_leave(bt_tenant_t *tenant, uint32_t n)
{
    tenant->n_under_way -= n;
    bt_tenant_metrics_add(tenant->metrics, BT_TC_RUNNING, -(double)n);
}

void bt_tenant_note_end(bt_tenant_t *tenant, uint64_t now_us)
{
    const uint64_t gap_us = now_us - tenant->ended_us;

    if (tenant->ended_us != 0) {
        tenant->gap_us =
            (tenant->gap_us == 0) ? gap_us : (7 * tenant->gap_us + gap_us) / 8;
    }
    tenant->ended_us = now_us;
}

/* Prints a time as OpenAI's API does: "12ms", "1.250s". */
static void put_time(uint64_t us, char text[32])
{
    const uint64_t ms = (us + 999) / 1000;

    if (ms < 1000) {
        snprintf(text, 32, "%" PRIu64 "ms", ms);
    } else {
        snprintf(text, 32, "%" PRIu64 ".%03" PRIu64 "s", ms / 1000, ms % 1000);
    }
}

static void tell_number(bt_tenant_header_fn tell, void *ctx, const char *name,
                        uint64_t value)
{
    char text[32];

    snprintf(text, sizeof(text), "%" PRIu64, value);
    tell(ctx, name, text);
}

void bt_tenant_tell_limits(bt_tenant_t *tenant, uint64_t now_us,
                           bt_tenant_header_fn tell, void *ctx)
{
    const bt_tenant_limits_t *limits = &tenant->limits;
    const uint32_t n = tenant->n_under_way;
    char text[32];

    if (limits->requests > 0) {
        tell_number(tell, ctx, "x-ratelimit-limit-requests", limits->requests);
        tell_number(tell, ctx, "x-ratelimit-remaining-requests",
                    (n < limits->requests) ? limits->requests - n : 0);
        put_time((n < limits->requests) ? 0 : tenant->gap_us, text);
        tell(ctx, "x-ratelimit-reset-requests", text);
    }
    if (limits->rate > 0) {
        tell_number(tell, ctx, "x-ratelimit-limit-tokens", limits->burst);
        tell_number(tell, ctx, "x-ratelimit-remaining-tokens",
                    bt_sched_bucket_left(&tenant->bucket, now_us));
        put_time(bt_sched_bucket_full_us(&tenant->bucket, now_us), text);
        tell(ctx, "x-ratelimit-reset-tokens", text);
    }
}
