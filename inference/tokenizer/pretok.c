/* SPDX-License-Identifier: Apache-2.0 */
#include "inference/tokenizer/pretok.h"

#include <stdbool.h>
#include <string.h>

#include "common/base/status.h"
#include "inference/tokenizer/unicode.h"

#define LONG_S 0x17Fu /* folds to s, so (?i:'s) matches it */

#define ONES  0x0101010101010101u
#define HIGHS 0x8080808080808080u

uint32_t bt_unicode_runs[BT_UNICODE_N_RUNS];
uint64_t bt_unicode_classes[BT_UNICODE_N_CLASSED / 32];

static bt_unicode_class_t class_of_props(uint32_t props)
{
    const uint32_t category = props & BT_UNICODE_CATEGORY;

    if ((props & BT_UNICODE_IS_SPACE) != 0) {
        return BT_UNICODE_SPACE;
    }
    if ((category >= BT_UNICODE_LU) && (category <= BT_UNICODE_LO)) {
        return BT_UNICODE_LETTER;
    }
    return ((category >= BT_UNICODE_ND) && (category <= BT_UNICODE_NO))
               ? BT_UNICODE_NUMBER
               : BT_UNICODE_OTHER;
}

/* A run for each character of upper and lower case by turns; the last run has
 * none. */
static void make_runs(void)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < bt_unicode_n_merged; i++) {
        const uint32_t run = bt_unicode_merged[i];
        const uint32_t category = run & BT_UNICODE_CATEGORY;
        uint32_t cp = run >> BT_UNICODE_RUN_BITS;

        if (category < BT_UNICODE_LU_LL) {
            bt_unicode_runs[n++] = run;
            continue;
        }
        for (; cp < bt_unicode_merged[i + 1] >> BT_UNICODE_RUN_BITS; cp++) {
            bt_unicode_runs[n++] =
                cp << BT_UNICODE_RUN_BITS | bt_unicode_run_props(run, cp);
        }
    }
    BT_ASSERT(n == BT_UNICODE_N_RUNS);
}

/* Runs before main(): texts of all threads are cut by this table, and a check
 * in each look-up would cost the scanners 3 %. */
__attribute__((constructor)) static void make_classes(void)
{
    make_runs();
    for (uint32_t i = 0; i < BT_UNICODE_N_RUNS; i++) {
        const uint32_t end =
            (i + 1 == BT_UNICODE_N_RUNS)
                ? BT_UNICODE_N_CLASSED
                : bt_unicode_runs[i + 1] >> BT_UNICODE_RUN_BITS;
        const uint64_t cls = class_of_props(bt_unicode_runs[i]);

        for (uint32_t cp = bt_unicode_runs[i] >> BT_UNICODE_RUN_BITS;
             (cls != BT_UNICODE_OTHER) && (cp < end); cp++) {
            BT_ASSERT(cp < BT_UNICODE_N_CLASSED);
            bt_unicode_classes[cp / 32] |= cls << cp % 32 * 2;
        }
    }
}

/* bt_unicode_class_t of each. */
static const uint8_t ascii_class[128] = {
    0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
    1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0,
};

/* One decoded character at p[at]; len is 0 at the end of the text. */
typedef struct chr {
    uint32_t cp;
    unsigned len;
    bt_unicode_class_t cls;
} chr_t;

static inline chr_t chr_at(const uint8_t *p, size_t at, size_t end)
{
    chr_t c = {0, 0, BT_UNICODE_OTHER};

    if (at >= end) {
        return c;
    }
    if (p[at] < 0x80) {
        c.cp = p[at];
        c.len = 1;
        c.cls = (bt_unicode_class_t)ascii_class[p[at]];
        return c;
    }
    c.len = bt_utf8_decode(p + at, &c.cp);
    c.cls = bt_unicode_class(c.cp);
    return c;
}

/* The top bit of each byte that is no ASCII letter. */
static inline uint64_t not_letters(uint64_t word)
{
    const uint64_t low = (word | ONES * 0x20) & ~HIGHS;
    const uint64_t from_a = low + ONES * (0x80 - 'a');
    const uint64_t past_z = low + ONES * (0x80 - 'z' - 1);

    return (~from_a | past_z | word) & HIGHS;
}

/* End of the run of ASCII letters at at, eight at a time. */
static inline size_t ascii_letters_end(const uint8_t *p, size_t at, size_t end)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    while (end - at >= sizeof(uint64_t)) {
        uint64_t word;

        memcpy(&word, p + at, sizeof(word));
        word = not_letters(word);
        if (word != 0) {
            return at + (size_t)__builtin_ctzll(word) / 8;
        }
        at += sizeof(word);
    }
#endif
    while ((at < end) && (p[at] < 0x80) &&
           (ascii_class[p[at]] == BT_UNICODE_LETTER)) {
        at++;
    }
    return at;
}

static bool is_newline(chr_t c)
{
    return (c.len > 0) && ((c.cp == '\r') || (c.cp == '\n'));
}

/* End of the run of characters of one class that starts at at. */
static inline size_t run_end(const uint8_t *p, size_t at, size_t end,
                             bt_unicode_class_t cls)
{
    chr_t c;

    if (cls == BT_UNICODE_LETTER) {
        at = ascii_letters_end(p, at, end);
    }
    c = chr_at(p, at, end);
    while ((c.len > 0) && (c.cls == cls)) {
        at += c.len;
        c = chr_at(p, at, end);
    }
    return at;
}

static uint8_t lower(uint8_t byte)
{
    return ((byte >= 'A') && (byte <= 'Z')) ? (uint8_t)(byte | 0x20) : byte;
}

/* Bytes of 's 't 'm 'd 're 've 'll at the start, or 0. */
static size_t contraction(const uint8_t *p, size_t end, bool any_case)
{
    uint8_t a;
    uint8_t b = 0;

    if ((end < 2) || (p[0] != '\'')) {
        return 0;
    }
    a = any_case ? lower(p[1]) : p[1];
    if ((a == 's') || (a == 't') || (a == 'm') || (a == 'd')) {
        return 2;
    }
    if (end < 3) {
        return 0;
    }
    b = any_case ? lower(p[2]) : p[2];
    if (((a == 'r') && (b == 'e')) || ((a == 'v') && (b == 'e')) ||
        ((a == 'l') && (b == 'l'))) {
        return 3;
    }
    if (any_case && (p[1] >= 0x80)) {
        const chr_t c = chr_at(p, 1, end);

        return (c.cp == LONG_S) ? 1 + (size_t)c.len : 0;
    }
    return 0;
}

/* \s+(?!\S)|\s+ for a text that starts with white space: all of the run at the
 * end of the text; else all but its last character, which then may begin the
 * next word; a single one is a word by itself. */
static size_t spaces(const uint8_t *p, size_t end)
{
    size_t at = 0;
    size_t last = 0;
    chr_t c = chr_at(p, 0, end);

    while ((c.len > 0) && (c.cls == BT_UNICODE_SPACE)) {
        last = at;
        at += c.len;
        c = chr_at(p, at, end);
    }
    return ((at == end) || (last == 0)) ? at : last;
}

static inline size_t next_gpt2(const uint8_t *p, size_t end)
{
    const size_t n = contraction(p, end, false);
    const size_t start = (p[0] == ' ') ? 1 : 0;
    chr_t c;

    if (n > 0) {
        return n;
    }
    c = chr_at(p, start, end);
    if ((c.len == 0) || (c.cls == BT_UNICODE_SPACE)) {
        return spaces(p, end);
    }
    return run_end(p, start + c.len, end, c.cls);
}

/* The cuts around numbers come first: for what stands before one, the text
 * ends there. Only white space looks ahead, so only there it matters. */
static inline size_t next_smollm(const uint8_t *p, size_t end)
{
    const chr_t first = chr_at(p, 0, end);
    size_t run;

    if (first.cls == BT_UNICODE_NUMBER) {
        return first.len;
    }
    if (first.cls != BT_UNICODE_SPACE) {
        return next_gpt2(p, end);
    }
    if (first.cp == ' ') { /* one space and a word: what most text is made of */
        const chr_t second = chr_at(p, 1, end);

        if ((second.len > 0) && (second.cls <= BT_UNICODE_LETTER)) {
            return run_end(p, 1 + second.len, end, second.cls);
        }
    }
    run = run_end(p, 0, end, BT_UNICODE_SPACE);
    if (chr_at(p, run, end).cls == BT_UNICODE_NUMBER) {
        return run;
    }
    return spaces(p, end);
}

/* \s*[\r\n]+ : up to the last line break of the run, or 0. */
static size_t line_breaks(const uint8_t *p, size_t end)
{
    size_t at = 0;
    size_t found = 0;
    chr_t c = chr_at(p, 0, end);

    while ((c.len > 0) && (c.cls == BT_UNICODE_SPACE)) {
        at += c.len;
        if (is_newline(c)) {
            found = at;
        }
        c = chr_at(p, at, end);
    }
    return found;
}

static size_t numbers(const uint8_t *p, size_t end, unsigned most)
{
    size_t at = 0;
    chr_t c = chr_at(p, 0, end);

    while ((most > 0) && (c.len > 0) && (c.cls == BT_UNICODE_NUMBER)) {
        at += c.len;
        most--;
        c = chr_at(p, at, end);
    }
    return at;
}

static size_t next_llama3(const uint8_t *p, size_t end, unsigned digits)
{
    const chr_t first = chr_at(p, 0, end);
    const chr_t second = chr_at(p, first.len, end);
    size_t n = contraction(p, end, true);

    if (n > 0) {
        return n;
    }
    if (first.cls == BT_UNICODE_LETTER) {
        return run_end(p, first.len, end, BT_UNICODE_LETTER);
    }
    if (first.cls == BT_UNICODE_NUMBER) {
        return numbers(p, end, digits);
    }
    if (!is_newline(first) && (second.len > 0) &&
        (second.cls == BT_UNICODE_LETTER)) {
        return run_end(p, first.len, end, BT_UNICODE_LETTER);
    }
    if ((first.cls == BT_UNICODE_OTHER) ||
        ((first.cp == ' ') && (second.len > 0) &&
         (second.cls == BT_UNICODE_OTHER))) {
        n = run_end(p, first.len, end, BT_UNICODE_OTHER);
        while ((n < end) && ((p[n] == '\r') || (p[n] == '\n'))) {
            n++;
        }
        return n;
    }
    n = line_breaks(p, end);
    return (n > 0) ? n : spaces(p, end);
}

size_t bt_pretok_next(bt_pretok_t pretok, const uint8_t *text, size_t bytes)
{
    switch (pretok) {
    case BT_PRETOK_SMOLLM:
        return next_smollm(text, bytes);
    case BT_PRETOK_LLAMA_BPE:
        return next_llama3(text, bytes, 3);
    case BT_PRETOK_QWEN2:
        return next_llama3(text, bytes, 1);
    case BT_PRETOK_GPT2:
    default:
        return next_gpt2(text, bytes);
    }
}

/* ---- what patterns are made of ---- */

#define SHORT_FORMS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define WORD        "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SIGNS       " ?[^\\s\\p{L}\\p{N}]+"
#define LINES       "\\s*[\\r\\n]+"
#define SPACES      "\\s+(?!\\S)|\\s+"
#define LLAMA3(n) \
    SHORT_FORMS "|" WORD "|" n "|" SIGNS "[\\r\\n]*|" LINES "|" SPACES
#define GPT2 \
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|" SPACES
#define UPPER    "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define LEAD     "[^\\r\\n\\p{L}\\p{N}]?"
#define CASED(s) LEAD UPPER "*" LOWER "+" s "|" LEAD UPPER "+" LOWER "*" s
#define O200K(n) \
    CASED(SHORT_FORMS "?") "|" n "|" SIGNS "[\\r\\n/]*|" LINES "|" SPACES
#define NOT_HAN(set) "[" set "&&[^\\p{Han}]]"
#define KIMI_UPPER   NOT_HAN("\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}")
#define KIMI_LOWER   NOT_HAN("\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}")
#define KANA         "\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}"
#define CJK          "[\\x{4E00}-\\x{9FA5}" KANA "]+"
#define V3_SIGN      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+"
#define V3_WORD      "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
#define V3_MAIN \
    V3_SIGN "|" V3_WORD "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES "|" SPACES

/* The letters of deepseek-llm: Latin, Greek, Cyrillic and some more. */
#define DEEPSEEK_LETTERS                                         \
    "[A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-"       \
    "\\x{1BA}\\x{1BC}-\\x{1BF}\\x{1C4}-\\x{293}\\x{295}-"        \
    "\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}" \
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}" \
    "\\x{3A3}-\\x{3F5}\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}"        \
    "\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}\\x{13A0}-\\x{13F5}"    \
    "\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"  \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}"  \
    "\\x{1E00}-\\x{1F15}\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}"  \
    "\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}\\x{1F59}\\x{1F5B}"   \
    "\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-"  \
    "\\x{1FBC}\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}"   \
    "\\x{1FD0}-\\x{1FD3}\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}"  \
    "\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}\\x{2102}\\x{2107}"   \
    "\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}"   \
    "\\x{2126}\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}"   \
    "\\x{2139}\\x{213C}-\\x{213F}\\x{2145}-\\x{2149}\\x{214E}"   \
    "\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"   \
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}"   \
    "\\x{A680}-\\x{A69B}\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}"  \
    "\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}\\x{FB00}-\\x{FB06}"  \
    "\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}"  \
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-"      \
    "\\x{104FB}\\x{10C80}-\\x{10CB2}\\x{10CC0}-\\x{10CF2}"       \
    "\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}]"
#define AFMOE_ASIAN                                              \
    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{8C48}-\\x{FAFF}" \
    "\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}\\x{FF65}-\\x{FF9F}"  \
    "\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{E7F}\\x{E80}-\\x{EFF}"      \
    "\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}"  \
    "\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]"
#define DEEPSEEK_ASIAN \
    "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]+"

#define CUT(text)                                        \
    {                                                    \
        BT_SPLIT_PATTERN, text, BT_SPLIT_ISOLATED, false \
    }
#define CUT_SPECIAL(kind)                    \
    {                                        \
        kind, NULL, BT_SPLIT_ISOLATED, false \
    }

/* ---- the rules ---- */

static const bt_split_t gpt2[] = {CUT(GPT2)};
static const bt_split_t smollm[] = {CUT("\\p{N}"), CUT(GPT2)};
static const bt_split_t llama3[] = {CUT(LLAMA3("\\p{N}{1,3}"))};
static const bt_split_t qwen2[] = {CUT(LLAMA3("\\p{N}"))};
static const bt_split_t qwen35[] = {CUT(
    SHORT_FORMS "|" LEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+"
                "[\\r\\n]*|" LINES "|" SPACES)};
static const bt_split_t jais2[] = {
    CUT(SHORT_FORMS "|" WORD "|\\p{N}{1,3}|" SIGNS "[\\r\\n]*|" LINES
                    "|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)"
                    "|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)"
                    "|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}")};
static const bt_split_t deepseek_llm[] = {
    CUT("[\\r\\n]"),
    CUT("\\s?" DEEPSEEK_LETTERS "+"),
    CUT("\\s?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}"
        "\\x{3000}-\\x{3002}]+"),
    CUT("\\s+$"),
    CUT(DEEPSEEK_ASIAN),
    CUT("\\p{N}+"),
};
static const bt_split_t deepseek_coder[] = {
    CUT("[\\r\\n]"),     CUT("\\s?\\p{L}+"), CUT("\\s?\\p{P}+"),
    CUT(DEEPSEEK_ASIAN), CUT("\\p{N}"),
};
static const bt_split_t deepseek_v3[] = {CUT("\\p{N}{1,3}"), CUT(CJK),
                                         CUT(V3_MAIN)};
static const bt_split_t spark[] = {
    CUT("\\p{N}{1,3}"), CUT(CJK),
    CUT(V3_SIGN "|" V3_WORD "| ?[\\p{P}\\p{S}]+|[\\r\\n]|" SPACES),
    CUT("\\p{N}")};
static const bt_split_t youtu[] = {
    CUT("[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}"
        "\\x{201D}\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}"
        "\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|" CJK),
    CUT(O200K("\\p{N}"))};
static const bt_split_t falcon[] = {CUT("[\\p{P}$+<=>\\^~|`]+"), CUT(GPT2),
                                    CUT("[0-9][0-9][0-9]")};
static const bt_split_t fallback[] = {CUT("[\\p{P}$+<=>\\^~|]+"), CUT(GPT2),
                                      CUT("\\p{N}+"), CUT("[0-9][0-9][0-9]")};
static const bt_split_t bloom[] = {
    CUT(" ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}"
        "\\x{60C})]+")};
static const bt_split_t viking[] = {
    CUT(" ?[^(\\s|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}"
        "\\x{60C})]+"),
    CUT("\\p{N}")};
static const bt_split_t tekken[] = {
    CUT(CASED("") "|\\p{N}|" SIGNS "[\\r\\n/]*|" LINES "|" SPACES)};
static const bt_split_t gpt4o[] = {CUT(O200K("\\p{N}{1,3}"))};
static const bt_split_t tiny_aya[] = {CUT_SPECIAL(BT_SPLIT_THREES),
                                      CUT(O200K("\\p{N}{1,3}"))};
static const bt_split_t chameleon[] = {
    CUT("<sentinel:[0-9]+>"),      CUT("(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z"),
    CUT("([\\t\\n]|    |  )"),     CUT("\\p{N}"),
    CUT("[\\p{P}!-/:-@\\[-`{-~]"), CUT(GPT2)};
static const bt_split_t kimi_k2[] = {
    CUT("[\\p{Han}]+|" LEAD KIMI_UPPER "*" KIMI_LOWER "+" SHORT_FORMS
        "?|" LEAD KIMI_UPPER "+" KIMI_LOWER "*" SHORT_FORMS
        "?|\\p{N}{1,3}|" SIGNS "[\\r\\n]*|" LINES "|" SPACES)};
static const bt_split_t superbpe[] = {CUT("\\p{N}+"),
                                      CUT_SPECIAL(BT_SPLIT_BEFORE_THREES)};
static const bt_split_t bailing[] = {
    CUT("'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}"
        "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|" SPACES)};
static const bt_split_t seed_coder[] = {
    CUT(SHORT_FORMS "|" WORD "|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" LINES
                    "|" SPACES)};
static const bt_split_t ufakzeka[] = {
    CUT(WORD "|\\p{N}|" SIGNS "[\\r\\n]*|" LINES "|" SPACES)};
static const bt_split_t afmoe[] = {CUT_SPECIAL(BT_SPLIT_THREES),
                                   CUT(AFMOE_ASIAN "+"), CUT(V3_MAIN)};
static const bt_split_t laguna[] = {CUT("[^\\n]+|[\\n]+"),
                                    CUT(LLAMA3("\\p{N}"))};
static const bt_split_t exaone_moe[] = {CUT(
    SHORT_FORMS "|" LEAD "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|" SIGNS
                "[\\r\\n/]?|\\s*[\\r\\n]|" SPACES)};
static const bt_split_t minicpm5[] = {CUT("\\p{N}{1,3}"),
                                      CUT(LLAMA3("\\p{N}+"))};
#define RULE(name, by)                      \
    {                                       \
#name, by, name, BT_ARRAY_LEN(name) \
    }

/* ---- the names ---- */

#define NFC   .form = BT_NORMAL_NFC
#define WHOLE .ignore_merges = true
#define BOS   .add_bos = true

static const bt_pretok_names_t kinds[] = {
    {.names = {"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es",
               "jina-v2-de", "gigachat", "a.x-4.0", "mellum", "exaone4", "jais",
               "trillion", "granite-docling"},
     .rule = RULE(gpt2, BT_PRETOK_GPT2)},
    {.names = {"mpt", "olmo"}, .rule = RULE(gpt2, BT_PRETOK_GPT2), NFC},
    {.names = {"smollm", "starcoder", "refact", "codeshell", "exaone",
               "minerva-7b", "mellum2"},
     .rule = RULE(smollm, BT_PRETOK_SMOLLM)},
    {.names = {"command-r"}, .rule = RULE(smollm, BT_PRETOK_SMOLLM), NFC},
    {.names = {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1",
               "pixtral", "midm-2.0", "lfm2"},
     .rule = RULE(llama3, BT_PRETOK_LLAMA_BPE),
     WHOLE,
     BOS},
    {.names = {"dbrx", "smaug-bpe", "chatglm-bpe"},
     .rule = RULE(llama3, BT_PRETOK_LLAMA_BPE)},
    {.names = {"glm4", "glm5"},
     .rule = RULE(llama3, BT_PRETOK_LLAMA_BPE),
     WHOLE},
    {.names = {"qwen2", "deepseek-r1-qwen", "f2llmv2", "megrez", "stablelm2"},
     .rule = RULE(qwen2, BT_PRETOK_QWEN2),
     NFC},
    {.names = {"kormo", "hunyuan", "solar-open", "grok-2"},
     .rule = RULE(qwen2, BT_PRETOK_QWEN2)},
    {.names = {"qwen35"}, .rule = RULE(qwen35, BT_PRETOK_SPLITS), NFC},
    {.names = {"jais-2"}, .rule = RULE(jais2, BT_PRETOK_SPLITS)},
    {.names = {"deepseek-llm"}, .rule = RULE(deepseek_llm, BT_PRETOK_SPLITS)},
    {.names = {"deepseek-coder"},
     .rule = RULE(deepseek_coder, BT_PRETOK_SPLITS)},
    {.names = {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
     .rule = RULE(deepseek_v3, BT_PRETOK_SPLITS)},
    {.names = {"spark2_5"}, .rule = RULE(spark, BT_PRETOK_SPLITS)},
    {.names = {"youtu"}, .rule = RULE(youtu, BT_PRETOK_SPLITS), WHOLE},
    {.names = {"falcon"}, .rule = RULE(falcon, BT_PRETOK_SPLITS)},
    {.names = {"default"}, .rule = RULE(fallback, BT_PRETOK_SPLITS)},
    {.names = {"poro-chat", "bloom", "gpt3-finnish"},
     .rule = RULE(bloom, BT_PRETOK_SPLITS)},
    {.names = {"viking"}, .rule = RULE(viking, BT_PRETOK_SPLITS)},
    {.names = {"tekken"}, .rule = RULE(tekken, BT_PRETOK_SPLITS), WHOLE, BOS},
    {.names = {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"},
     .rule = RULE(gpt4o, BT_PRETOK_SPLITS)},
    {.names = {"tiny_aya", "cohere2moe"},
     .rule = RULE(tiny_aya, BT_PRETOK_SPLITS)},
    {.names = {"chameleon"}, .rule = RULE(chameleon, BT_PRETOK_SPLITS), BOS},
    {.names = {"kimi-k2"},
     .rule = RULE(kimi_k2, BT_PRETOK_SPLITS),
     .by_id = true},
    {.names = {"superbpe"}, .rule = RULE(superbpe, BT_PRETOK_SPLITS)},
    {.names = {"bailingmoe", "bailingmoe2", "llada-moe"},
     .rule = RULE(bailing, BT_PRETOK_SPLITS)},
    {.names = {"seed-coder"}, .rule = RULE(seed_coder, BT_PRETOK_SPLITS)},
    {.names = {"ufakzeka"}, .rule = RULE(ufakzeka, BT_PRETOK_SPLITS)},
    {.names = {"afmoe"}, .rule = RULE(afmoe, BT_PRETOK_SPLITS)},
    {.names = {"laguna"}, .rule = RULE(laguna, BT_PRETOK_SPLITS)},
    {.names = {"exaone-moe"}, .rule = RULE(exaone_moe, BT_PRETOK_SPLITS)},
    {.names = {"minicpm5"}, .rule = RULE(minicpm5, BT_PRETOK_SPLITS), WHOLE},
    {.names = {"gemma4", "sarvam-moe"}, .plain_text = true},
};

const bt_pretok_names_t *bt_pretok_find(const char *name, size_t bytes)
{
    for (size_t i = 0; i < BT_ARRAY_LEN(kinds); i++) {
        const char *const *names = kinds[i].names;

        for (size_t k = 0;
             (k < BT_ARRAY_LEN(kinds[i].names)) && (names[k] != NULL); k++) {
            if ((strlen(names[k]) == bytes) &&
                (memcmp(names[k], name, bytes) == 0)) {
                return &kinds[i];
            }
        }
    }
    return NULL;
}

const bt_pretok_names_t *bt_pretok_names_at(size_t i)
{
    return (i < BT_ARRAY_LEN(kinds)) ? &kinds[i] : NULL;
}
