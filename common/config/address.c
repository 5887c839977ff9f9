/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <string.h>
#include <strings.h>

#include "common/config/config.h"

static bt_status_t parse_port(const char *text, uint16_t *port_p)
{
    uint32_t port = 0;
    size_t n = 0;

    for (; (text[n] >= '0') && (text[n] <= '9') && (n < 5); n++) {
        port = port * 10 + (uint32_t)(text[n] - '0');
    }
    if ((n == 0) || (text[n] != '\0') || (port > UINT16_MAX)) {
        return BT_ERR_INVALID_PARAM;
    }
    *port_p = (uint16_t)port;
    return BT_OK;
}

bt_status_t bt_config_split_ports(const char *text, uint16_t *first_p,
                                  uint16_t *last_p)
{
    const char *const dash = strchr(text, '-');
    char first_text[8] = "";
    uint16_t first, last;

    if (text[0] == '\0') {
        *first_p = *last_p = 0;
        return BT_OK;
    }
    if ((dash == NULL) || ((size_t)(dash - text) >= sizeof(first_text))) {
        return BT_ERR_INVALID_PARAM;
    }
    memcpy(first_text, text, (size_t)(dash - text));
    if ((parse_port(first_text, &first) != BT_OK) ||
        (parse_port(dash + 1, &last) != BT_OK) || (first == 0) ||
        (first > last)) {
        return BT_ERR_INVALID_PARAM;
    }
    *first_p = first;
    *last_p = last;
    return BT_OK;
}

bt_status_t bt_config_split_address(const char *text, char *host,
                                    size_t host_bytes, uint16_t *port_p)
{
    const char *const colon = strrchr(text, ':');
    const char *start = text;
    size_t n;

    if (colon == NULL) {
        return BT_ERR_INVALID_PARAM;
    }
    n = (size_t)(colon - text);
    if (text[0] == '[') {
        if ((n < 3) || (text[n - 1] != ']')) {
            return BT_ERR_INVALID_PARAM;
        }
        start++;
        n -= 2;
    } else if (memchr(text, ':', n) != NULL) {
        return BT_ERR_INVALID_PARAM; /* a bare IPv6 address is ambiguous */
    }
    if ((n == 0) || (n >= host_bytes) || (memchr(start, '[', n) != NULL) ||
        (memchr(start, ']', n) != NULL) || (memchr(start, '/', n) != NULL) ||
        (memchr(start, ' ', n) != NULL)) {
        return BT_ERR_INVALID_PARAM;
    }
    if (parse_port(colon + 1, port_p) != BT_OK) {
        return BT_ERR_INVALID_PARAM;
    }
    memcpy(host, start, n);
    host[n] = '\0';
    return BT_OK;
}

bool bt_config_is_loopback(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (inet_pton(AF_INET, host, &v4) == 1) {
        return (ntohl(v4.s_addr) >> 24) == 127;
    }
    if (inet_pton(AF_INET6, host, &v6) == 1) {
        return IN6_IS_ADDR_LOOPBACK(&v6) ||
               (IN6_IS_ADDR_V4MAPPED(&v6) && (v6.s6_addr[12] == 127));
    }
    return strcasecmp(host, "localhost") == 0;
}
