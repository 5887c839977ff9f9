/* SPDX-License-Identifier: Apache-2.0 */
#include "router/otlp/retry.h"

#include <string.h>
#include <time.h>

#define DAY_S 86400

bt_otlp_verdict_t bt_otlp_judge(int http_status)
{
    if ((http_status >= 200) && (http_status < 300)) {
        return BT_OTLP_TAKEN;
    }
    switch (http_status) {
    case 0:
    case 429:
    case 502:
    case 503:
    case 504:
        return BT_OTLP_AGAIN;
    default:
        return BT_OTLP_REFUSED;
    }
}

uint64_t bt_otlp_retry_after_ms(const char *text, int64_t unix_s)
{
    const size_t n_digits = strspn(text, "0123456789");
    int64_t s = 0;
    struct tm date = {0};
    const char *end;

    if ((n_digits > 0) && (text[n_digits] == '\0')) {
        for (size_t i = 0; (i < n_digits) && (s < DAY_S); i++) {
            s = 10 * s + (text[i] - '0');
        }
    } else {
        end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &date);
        if ((end == NULL) || (*end != '\0')) {
            return 0;
        }
        s = (int64_t)timegm(&date) - unix_s;
    }
    if (s <= 0) {
        return 0;
    }
    return (uint64_t)((s < DAY_S) ? s : DAY_S) * 1000;
}

uint64_t bt_otlp_wait_ms(const bt_otlp_waits_t *waits, uint32_t n_failed,
                         uint64_t asked_ms, uint32_t random)
{
    uint64_t ms = waits->first_ms;

    for (uint32_t i = 1; (i < n_failed) && (ms < waits->most_ms); i++) {
        ms *= 2;
    }
    ms = (ms < waits->most_ms) ? ms : waits->most_ms;
    ms = ms / 2 + (uint64_t)random % (ms - ms / 2 + 1);
    return (asked_ms > ms) ? asked_ms : ms;
}
