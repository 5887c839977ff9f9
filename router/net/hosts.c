/* SPDX-License-Identifier: Apache-2.0 */
#include "router/net/hosts.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#define BAD_HOST                                                           \
    "the Host of this request is no name of this server: --allowed-hosts " \
    "NAME lets it in"
#define BAD_SITE                                                        \
    "a web page of another origin asks for this, which is not allowed " \
    "here: --cors-origins names pages that may use the server"

#define BAD_ORIGIN                                                  \
    "the Origin of this request, a web page, is not allowed here: " \
    "--allowed-hosts NAME lets it in"

/* A host without its port. */
typedef struct name {
    char text[BT_HOSTS_NAME_BYTES];
    bool literal; /* an address */
    bool loopback;
} name_t;

static void parse_address(name_t *name)
{
    struct in_addr v4;
    struct in6_addr v6;

    if (inet_pton(AF_INET, name->text, &v4) == 1) {
        name->literal = true;
        name->loopback = ((ntohl(v4.s_addr) >> 24) == 127);
    } else if (inet_pton(AF_INET6, name->text, &v6) == 1) {
        name->literal = true;
        name->loopback = IN6_IS_ADDR_LOOPBACK(&v6) ||
                         (IN6_IS_ADDR_V4MAPPED(&v6) && (v6.s6_addr[12] == 127));
    }
}

static bool is_port(const char *text)
{
    return (*text == '\0') ||
           ((*text == ':') &&
            (text[1 + strspn(text + 1, "0123456789")] == '\0'));
}

/* Splits "name", "name:80", "[::1]:80". @return false: it is none of these */
static bool split(const char *host, name_t *name)
{
    const bool v6 = (*host == '[');
    const char *const start = v6 ? host + 1 : host;
    size_t n = strcspn(start, v6 ? "]" : ":");
    const char *const rest = start + n + ((v6 && (start[n] == ']')) ? 1 : 0);

    *name = (name_t){0};
    if ((v6 && (start[n] != ']')) || !is_port(rest)) {
        return false;
    }
    if (!v6 && (n > 1) && (start[n - 1] == '.')) {
        n--; /* trailing dot of the root: an equal name */
    }
    if ((n == 0) || (n >= sizeof(name->text))) {
        return false;
    }
    memcpy(name->text, start, n);
    parse_address(name);
    return !v6 || name->literal;
}

/* True when it is below the domain "NAME". */
static bool is_below(const char *text, const char *domain, size_t n)
{
    const size_t n_text = strlen(text);

    return (n_text > n + 1) && (text[n_text - n - 1] == '.') &&
           (strncasecmp(text + n_text - n, domain, n) == 0);
}

/* Returns the bytes of the next entry of a comma separated list, 0 at its end.
 */
static size_t next_entry(const char **at_p)
{
    *at_p += strspn(*at_p, ", \t");
    return strcspn(*at_p, ", \t");
}

static bool entry_allows(const char *entry, size_t n, const name_t *name)
{
    if ((n > 2) && (entry[0] == '*') && (entry[1] == '.')) {
        return is_below(name->text, entry + 2, n - 2);
    }
    return (strlen(name->text) == n) &&
           (strncasecmp(name->text, entry, n) == 0);
}

static bool is_listed(const bt_hosts_t *hosts, const name_t *name)
{
    const char *at = hosts->allowed;

    for (size_t n = next_entry(&at); n > 0; at += n, n = next_entry(&at)) {
        if (entry_allows(at, n, name)) {
            return true;
        }
    }
    return false;
}

static bool allows_all(const bt_hosts_t *hosts)
{
    return is_listed(hosts, &(const name_t){.text = "*"});
}

/* True for a name that leads to this server only. */
static bool is_own(const bt_hosts_t *hosts, const name_t *name)
{
    if ((strcasecmp(name->text, "localhost") == 0) ||
        is_below(name->text, "localhost", strlen("localhost"))) {
        return true;
    }
    for (uint32_t i = 0; i < hosts->n_own; i++) {
        if (strcasecmp(name->text, hosts->own[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool host_is_allowed(const bt_hosts_t *hosts, const char *host,
                            name_t *name)
{
    return split(host, name) &&
           (name->literal || is_own(hosts, name) || is_listed(hosts, name));
}

/* An Origin with an address proves nothing, since anyone may host a page at an
 * address; a Host with an address does, since DNS rebinding needs a name. */
static bool origin_is_allowed(const bt_hosts_t *hosts, const char *origin,
                              const name_t *host)
{
    const char *const sep = strstr(origin, "://");
    name_t name;

    if ((sep == NULL) || !split(sep + 3, &name)) {
        return false;
    }
    if (is_listed(hosts, &name)) {
        return true;
    }
    if (name.literal) {
        return name.loopback || (strcasecmp(name.text, host->text) == 0);
    }
    return is_own(hosts, &name);
}

const char *bt_hosts_check(const bt_hosts_t *hosts, const char *host)
{
    name_t name;

    return ((host == NULL) || allows_all(hosts) ||
            host_is_allowed(hosts, host, &name))
               ? NULL
               : BAD_HOST;
}

const char *bt_hosts_check_origin(const bt_hosts_t *hosts, const char *origin,
                                  const char *host)
{
    name_t name = {0};

    if ((host != NULL) && !split(host, &name)) {
        name = (name_t){0};
    }
    return (allows_all(hosts) || origin_is_allowed(hosts, origin, &name))
               ? NULL
               : BAD_ORIGIN;
}

const char *bt_hosts_check_fetch(const bt_hosts_t *hosts, const char *site,
                                 const char *dest)
{
    /* A user who follows a link comes from another page, too. */
    const bool is_ours = (site == NULL) || (strcmp(site, "same-origin") == 0) ||
                         (strcmp(site, "none") == 0) ||
                         ((dest != NULL) && (strcmp(dest, "document") == 0));

    return (is_ours || allows_all(hosts)) ? NULL : BAD_SITE;
}

/* ---- the lists ---- */

bool bt_hosts_are_valid(const char *allowed, char bad[BT_HOSTS_NAME_BYTES])
{
    const char *at = allowed;

    for (size_t n = next_entry(&at); n > 0; at += n, n = next_entry(&at)) {
        char entry[BT_HOSTS_NAME_BYTES];
        name_t name = {0};
        const char *host = entry;

        snprintf(bad, BT_HOSTS_NAME_BYTES, "%.*s", (int)(n < 200 ? n : 200),
                 at);
        if (n >= sizeof(entry)) {
            return false;
        }
        memcpy(entry, at, n);
        entry[n] = '\0';
        if (strcmp(entry, "*") == 0) {
            continue;
        }
        host += (strncmp(entry, "*.", 2) == 0) ? 2 : 0;
        snprintf(name.text, sizeof(name.text), "%s", host);
        parse_address(&name);
        /* A scheme, a port or a star elsewhere would never match. */
        if ((*host == '\0') ||
            (!name.literal && (strpbrk(host, "*:/[]") != NULL))) {
            return false;
        }
    }
    return true;
}

void bt_hosts_add_own(bt_hosts_t *hosts, const char *name)
{
    if ((*name != '\0') && (hosts->n_own < BT_HOSTS_MAX_OWN)) {
        snprintf(hosts->own[hosts->n_own++], BT_HOSTS_NAME_BYTES, "%.255s",
                 name);
    }
}

void bt_hosts_init(bt_hosts_t *hosts, const char *allowed)
{
    char name[BT_HOSTS_NAME_BYTES] = "";

    *hosts = (bt_hosts_t){.allowed = allowed};
    if (gethostname(name, sizeof(name) - 1) == 0) {
        bt_hosts_add_own(hosts, name);
        name[strcspn(name, ".")] = '\0';
        bt_hosts_add_own(hosts, name);
    }
}
