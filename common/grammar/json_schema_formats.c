/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "common/grammar/json_schema_priv.h"
#include "common/grammar/regex_syntax.h"

/* Formats of strings. What validators take for one format differs: strings that
 * are written satisfy all of them, and negations rule out what any of them may
 * take. Source: the RFCs that JSON Schema 2020-12, validation 7.3, names. */

#define DATE_UP "\\d{4}-\\d\\d-\\d\\d"
#define TIME_UP \
    "\\d\\d:\\d\\d(?::\\d\\d)?(?:[.,]\\d+)?(?:[Zz]|[+-]\\d\\d:?\\d\\d)?"

/* Days of the months, and 29 February of leap years; without the year 0, which
 * is left out below. */
#define DATE                                                          \
    "(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])"        \
    "|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))" \
    "|(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])"                     \
    "|(?:[02468][048]|[13579][26])00)-02-29)"
#define TIME                                                               \
    "(?:[01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(?:\\.\\d{1,9})?(?:Z|[+-](?:[01]" \
    "\\d|2[0-3]):[0-5]\\d)"

#define ATOM "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"

#define BYTE "(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"
#define IPV4 "(?:" BYTE "\\.){3}" BYTE
#define H16  "[0-9A-Fa-f]{1,4}"
#define LS32 "(?:" H16 ":" H16 "|" IPV4 ")"
#define IPV6                                                             \
    "(?:(?:" H16 ":){6}" LS32 "|::(?:" H16 ":){5}" LS32 "|(?:" H16       \
    ")?::(?:" H16 ":){4}" LS32 "|(?:(?:" H16 ":){0,1}" H16 ")?::(?:" H16 \
    ":){3}" LS32 "|(?:(?:" H16 ":){0,2}" H16 ")?::(?:" H16 ":){2}" LS32  \
    "|(?:(?:" H16 ":){0,3}" H16 ")?::" H16 ":" LS32 "|(?:(?:" H16        \
    ":){0,4}" H16 ")?::" LS32 "|(?:(?:" H16 ":){0,5}" H16 ")?::" H16     \
    "|(?:(?:" H16 ":){0,6}" H16 ")?::)"

/* RFC 3986, and RFC 3987 with more characters. */
#define MORE     "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF"
#define HEX2     "%[0-9A-Fa-f]{2}"
#define CHARS    "A-Za-z0-9._~!$&'()*+,;=\\-"
#define PCHAR(x) "(?:[" CHARS x ":@]|" HEX2 ")"
#define SCHEME   "[A-Za-z][A-Za-z0-9+.-]*:"
#define AUTH(x)                                                           \
    "//(?:(?:[" CHARS x ":]|" HEX2 ")*@)?(?:[" CHARS x "]|" HEX2 ")*(?::" \
    "\\d*)?"
#define ABS_PATH(x) "(?:/" PCHAR(x) "*)*"
#define ROOTED(x)   "/(?:" PCHAR(x) "+" ABS_PATH(x) ")?"
#define ROOTLESS(x) PCHAR(x) "+" ABS_PATH(x)
#define NO_COLON(x) "(?:[" CHARS x "@]|" HEX2 ")+" ABS_PATH(x)
#define TAIL(x)     "(?:\\?(?:" PCHAR(x) "|[/?])*)?(?:#(?:" PCHAR(x) "|[/?])*)?"
#define URI(x) \
    SCHEME "(?:" AUTH(x) ABS_PATH(x) "|" ROOTED(x) "|" ROOTLESS(x) "|)" TAIL(x)
#define URI_REF(x)              \
    "(?:" URI(x) "|(?:" AUTH(x) \
        ABS_PATH(x) "|" ROOTED(x) "|" NO_COLON(x) "|)" TAIL(x) ")"
#define VARIABLE                                                           \
    "(?:[A-Za-z0-9_]|" HEX2 ")(?:\\.?(?:[A-Za-z0-9_]|" HEX2 "))*(?::[1-9]" \
    "\\d{0,2}|\\*)?"
#define POINTER     "(?:/(?:[^~/]|~[01])*)*"
#define PART_OF_DAY "\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S"
#define ANY         "[^]*"
/* Some regular expressions that mean the same everywhere. */
#define RE_SET "\\[\\^?(?:a-z|A-Z|0-9|[A-Za-z0-9_ .:/@]|\\\\[dws])+\\]"
#define RE_ATOM                                                                       \
    "(?:[A-Za-z0-9 _:,@#%&~'\"<>=!;.-]|\\\\[dDwWsStnr.\\\\/^$*+?(){}|\\[\\]]|" RE_SET \
    ")"
#define RE_COUNT "(?:[*+?]|\\{\\d{1,2},?\\})?"
#define RE_ITEMS "(?:" RE_ATOM RE_COUNT ")*"
#define RE_PART                                                       \
    "(?:" RE_ATOM RE_COUNT "|\\((?:\\?:)?" RE_ITEMS "(?:\\|" RE_ITEMS \
    ")*\\)" RE_COUNT ")*"
#define RE "\\^?" RE_PART "(?:\\|" RE_PART ")*\\$?"

#define LABEL_BYTES 63u

enum { IS_NAME = 1, IS_EMAIL = 2, IS_DATE = 4 };

static const struct {
    const char *name;
    const char *held;
    const char *widest; /* NULL: as held */
    unsigned special;
} formats[] = {
    {"date-time", DATE "T" TIME, DATE_UP "[Tt ]" TIME_UP, IS_DATE},
    {"date", DATE, DATE_UP, IS_DATE},
    {"time", TIME, TIME_UP, 0},
    {"duration",
     "P(?:\\d+W|(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)(?:T(?:" PART_OF_DAY
     "))?|T(?:" PART_OF_DAY "))",
     "[+-]?P[0-9YMWDTHS.,:+-]*", 0},
    {"email", NULL, ANY "@" ANY, IS_EMAIL},
    {"idn-email", NULL, ANY "@" ANY, IS_EMAIL},
    {"hostname", NULL, "[!-~]*", IS_NAME},
    {"idn-hostname", NULL, ANY, IS_NAME},
    {"ipv4", IPV4, "[0-9.]*", 0},
    {"ipv6", IPV6, "[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*(?:%" ANY ")?", 0},
    {"uuid",
     "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]"
     "{12}",
     NULL, 0},
    {"uri", URI(""), ANY ":" ANY, 0},
    {"uri-reference", URI_REF(""), ANY, 0},
    {"iri", URI(MORE), ANY ":" ANY, 0},
    {"iri-reference", URI_REF(MORE), ANY, 0},
    {"uri-template",
     "(?:[" CHARS ":/?#@\\[\\]]|" HEX2 "|\\{[+#./;?&]?" VARIABLE "(?:," VARIABLE
     ")*\\})*",
     ANY, 0},
    {"json-pointer", POINTER, NULL, 0},
    {"regex", RE, ANY, 0},
    {"relative-json-pointer", "(?:0|[1-9]{1,3})(?:#|" POINTER ")", ANY, 0},
};
_Static_assert(BT_ARRAY_LEN(formats) <= SCHEMA_MAX_FORMATS, "room for all");

static const bt_dfa_t *whole(schema_t *s, const char *pattern)
{
    return bt_regex_dfa(s->c, pattern, strlen(pattern), BT_REGEX_WHOLE);
}

/* Adds letters and digits. */
static void add_alnum(bt_nfa_t *nfa, uint32_t from, uint32_t to)
{
    bt_nfa_edge(nfa, from, '0', '9', to);
    bt_nfa_edge(nfa, from, 'A', 'Z', to);
    bt_nfa_edge(nfa, from, 'a', 'z', to);
}

/* Returns names of hosts: labels of at most 63 characters. Two hyphens in a row
 * are left out, since they may mark a label in another encoding. */
static const bt_dfa_t *host_name(schema_t *s)
{
    bt_nfa_t *nfa = bt_nfa_create(s->c);
    const uint32_t start = bt_nfa_state(nfa);
    const uint32_t end = bt_nfa_state(nfa);
    uint32_t at = start; /* behind a letter or digit */
    uint32_t hyphen = start;

    for (uint32_t i = 0; i < LABEL_BYTES; i++) {
        const uint32_t next = bt_nfa_state(nfa);
        const uint32_t next_hyphen = bt_nfa_state(nfa);

        add_alnum(nfa, at, next);
        if (i > 0) {
            add_alnum(nfa, hyphen, next);
            bt_nfa_edge(nfa, at, '-', '-', next_hyphen);
        }
        bt_nfa_epsilon(nfa, next, end);
        at = next;
        hyphen = next_hyphen;
    }
    bt_nfa_edge(nfa, end, '.', '.', start);
    return bt_nfa_to_dfa(nfa, start, end);
}

static const bt_dfa_t *email(schema_t *s)
{
    const bt_dfa_t *const local =
        bt_dfa_combine(s->c, BT_DFA_AND, whole(s, ATOM "(?:\\." ATOM ")*"),
                       whole(s, "[!-~]{1,64}"));
    bt_nfa_t *nfa = bt_nfa_create(s->c);
    const uint32_t start = bt_nfa_state(nfa);
    const uint32_t at = bt_nfa_state(nfa);
    const uint32_t host = bt_nfa_state(nfa);
    const uint32_t end = bt_nfa_state(nfa);

    bt_nfa_include(nfa, start, local, at);
    bt_nfa_edge(nfa, at, '@', '@', host);
    bt_nfa_include(nfa, host, host_name(s), end);
    return bt_nfa_to_dfa(nfa, start, end);
}

static void make_format(schema_t *s, size_t i)
{
    const unsigned special = formats[i].special;
    uint32_t max = SCHEMA_NO_LIMIT;
    const bt_dfa_t *held;

    if ((special & IS_NAME) != 0) {
        held = host_name(s);
        max = 253;
    } else if ((special & IS_EMAIL) != 0) {
        held = email(s);
        max = 254;
    } else {
        held = whole(s, formats[i].held);
    }
    if ((special & IS_DATE) != 0) { /* some readers have no year 0 */
        held = bt_dfa_combine(s->c, BT_DFA_MINUS, held, whole(s, "0000" ANY));
    }
    if (bt_grammar_ok(s->c)) {
        s->formats[i][0] = s->formats[i][1] =
            schema_strings_of(s, held, 0, max);
    }
    if (formats[i].widest != NULL) {
        s->formats[i][1] = schema_strings_of(s, whole(s, formats[i].widest), 0,
                                             SCHEMA_NO_LIMIT);
    }
    s->has_format[i] = true;
}

bool schema_format(schema_t *s, const bt_json_node_t *name,
                   schema_strings_t *strings_p, schema_strings_t *widest_p)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(formats); i++) {
        if (bt_json_is(name, formats[i].name)) {
            if (!s->has_format[i]) {
                make_format(s, i);
            }
            *strings_p = s->formats[i][0];
            *widest_p = s->formats[i][1];
            return true;
        }
    }
    return false;
}
