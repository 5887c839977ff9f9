/* SPDX-License-Identifier: Apache-2.0 */
/* Products of matrices by a warp, against plain loops. Each mistake that a
 * kernel can make with who holds what is made, and must give another result:
 * a machine that knows no layout would not notice it. */
#include <cstdio>
#include <string>
#include <vector>

#include "tests/simt/cuda_runtime.h"
#include "tests/simt/test_expect.h"

namespace
{

enum Mistake {
    kNone,
    kSwappedRows,    /* registers of rows g and g + 8 */
    kSwappedK,       /* registers of the low and the high half of k */
    kTransposedB,    /* its rows for its columns */
    kLanesByGroup,   /* lane i is number i % 8 of the groups */
    kReversedInWord, /* the highest k in the lowest bits */
    kSwappedSums,    /* c[1] for c[2] */
    kMistakes
};

/* a[16][16], b[16][8], c[16][8]: integers of -96 to 96, so that every sum is
 * exact, in any order, and every value is a bfloat16 and a binary16. */
struct Problem {
    int a[16][16], b[16][8], c[16][8], want[16][8];
    bool is_f16; /* as what halves are handed over */
};

Problem make_problem(uint64_t seed)
{
    Problem p = {};
    uint64_t state = seed * 2654435761u + 1;
    const auto draw = [&state] {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return static_cast<int>((state >> 33) % 193) - 96;
    };

    for (unsigned m = 0; m < 16; m++) {
        for (unsigned k = 0; k < 16; k++) {
            p.a[m][k] = draw();
        }
    }
    for (unsigned i = 0; i < 16; i++) {
        for (unsigned n = 0; n < 8; n++) {
            p.b[i][n] = draw();
            p.c[i][n] = draw();
        }
    }
    for (unsigned m = 0; m < 16; m++) {
        for (unsigned n = 0; n < 8; n++) {
            p.want[m][n] = p.c[m][n];
            for (unsigned k = 0; k < 16; k++) {
                p.want[m][n] += p.a[m][k] * p.b[k][n];
            }
        }
    }
    return p;
}

uint32_t half_of(int value, bool is_f16 = false)
{
    const float real = static_cast<float>(value);
    uint32_t bits;

    if (is_f16) {
        return bt_f32_to_f16(real);
    }
    std::memcpy(&bits, &real, sizeof(bits));
    assert_int_equal(bits & 0xffff, 0);
    return bits >> 16;
}

unsigned group(unsigned lane, Mistake mistake)
{
    return (mistake == kLanesByGroup) ? lane % 8 : lane / 4;
}

unsigned in_group(unsigned lane, Mistake mistake)
{
    return (mistake == kLanesByGroup) ? lane / 8 : lane % 4;
}

/* @a n values from (row, k) on, the lowest first. */
uint32_t a_word(const Problem &p, unsigned row, unsigned k, unsigned n,
                Mistake mistake)
{
    uint32_t word = 0;

    for (unsigned i = 0; i < n; i++) {
        const unsigned at = (mistake == kReversedInWord) ? n - 1 - i : i;
        const int value = p.a[row][k + at];

        word |= ((n == 4) ? static_cast<uint32_t>(value) & 0xff
                          : half_of(value, p.is_f16))
                << (32 / n * i);
    }
    return word;
}

uint32_t b_word(const Problem &p, unsigned k, unsigned column, unsigned n,
                Mistake mistake)
{
    uint32_t word = 0;

    for (unsigned i = 0; i < n; i++) {
        const int value = (mistake == kTransposedB) ? p.b[column][(k + i) % 8]
                                                    : p.b[k + i][column];

        word |= ((n == 4) ? static_cast<uint32_t>(value) & 0xff
                          : half_of(value, p.is_f16))
                << (32 / n * i);
    }
    return word;
}

template <typename T> void take_sums(const Problem &p, unsigned lane, T (&c)[4])
{
    for (unsigned i = 0; i < 4; i++) {
        c[i] =
            static_cast<T>(p.c[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + i % 2]);
    }
}

template <typename T>
void put_sums(const T (&d)[4], unsigned lane, Mistake mistake, T *out)
{
    for (unsigned i = 0; i < 4; i++) {
        const unsigned from =
            ((mistake == kSwappedSums) && (i % 3 != 0)) ? 3 - i : i;

        bt_store(out + (lane / 4 + 8 * (i / 2)) * 8 + 2 * (lane % 4) + i % 2,
                 d[from]);
    }
}

void multiply_bytes(const Problem &p, Mistake mistake, int32_t *out)
{
    const unsigned lane = threadIdx.x % 32;
    const unsigned g = group(lane, mistake);
    const unsigned t = in_group(lane, mistake);
    const unsigned low = (mistake == kSwappedRows) ? 8 : 0;
    uint32_t a[2] = {a_word(p, g + low, 4 * t, 4, mistake),
                     a_word(p, g + 8 - low, 4 * t, 4, mistake)};
    int32_t c[4];

    take_sums(p, lane, c);
    bt_mma_s8(c, a, b_word(p, 4 * t, g, 4, mistake), c);
    put_sums(c, lane, mistake, out);
}

void multiply_halves(const Problem &p, Mistake mistake, float *out)
{
    const unsigned lane = threadIdx.x % 32;
    const unsigned g = group(lane, mistake);
    const unsigned k = 2 * in_group(lane, mistake);
    const unsigned low = (mistake == kSwappedRows) ? 8 : 0;
    const unsigned low_k = (mistake == kSwappedK) ? 8 : 0;
    uint32_t a[4] = {a_word(p, g + low, k + low_k, 2, mistake),
                     a_word(p, g + 8 - low, k + low_k, 2, mistake),
                     a_word(p, g + low, k + 8 - low_k, 2, mistake),
                     a_word(p, g + 8 - low, k + 8 - low_k, 2, mistake)};
    uint32_t b[2] = {b_word(p, k, g, 2, mistake),
                     b_word(p, k + 8, g, 2, mistake)};
    float c[4], d[4];

    take_sums(p, lane, c);
    if (p.is_f16) {
        bt_mma_f16(d, a, b, c);
    } else {
        bt_mma_bf16(d, a, b, c);
    }
    put_sums(d, lane, mistake, out);
}

void multiply_f16(const Problem &p, Mistake mistake, float *out)
{
    Problem halves = p;

    halves.is_f16 = true;
    multiply_halves(halves, mistake, out);
}

/* Of two warps, each with its own product. */
template <typename T, typename Multiply>
void check_product(Mistake mistake, const Multiply &multiply)
{
    for (uint64_t seed = 0; seed < kSeeds; seed++) {
        const Problem p[2] = {make_problem(2 * seed),
                              make_problem(2 * seed + 1)};
        T out[2][16][8];
        const std::string found = simt::run(simt::Grid{1, 64, seed}, [&] {
            const unsigned warp = threadIdx.x / 32;

            multiply(p[warp], mistake, &out[warp][0][0]);
        });
        unsigned n_wrong = 0;

        assert_string_equal(found.c_str(), "");
        for (unsigned i = 0; i < 256; i++) {
            n_wrong += (out[i / 128][i / 8 % 16][i % 8] !=
                        static_cast<T>(p[i / 128].want[i / 8 % 16][i % 8]))
                           ? 1
                           : 0;
        }
        assert_true((n_wrong == 0) == (mistake == kNone));
    }
}

void products_of_bytes_are_those_of_plain_loops(void **)
{
    for (int mistake = kNone; mistake < kMistakes; mistake++) {
        if (mistake != kSwappedK) { /* no register for it */
            check_product<int32_t>(static_cast<Mistake>(mistake),
                                   multiply_bytes);
        }
    }
}

void products_of_bfloat16_are_those_of_plain_loops(void **)
{
    for (int mistake = kNone; mistake < kMistakes; mistake++) {
        check_product<float>(static_cast<Mistake>(mistake), multiply_halves);
    }
}

void products_of_binary16_are_those_of_plain_loops(void **)
{
    for (int mistake = kNone; mistake < kMistakes; mistake++) {
        check_product<float>(static_cast<Mistake>(mistake), multiply_f16);
    }
}

/* What only a binary16 is: subnormal ones, 2^-24, and its largest. */
void binary16_has_its_own_numbers(void **)
{
    std::vector<float> out(32);

    expect(nullptr, 1, 32, [&] {
        const uint32_t a[4] = {0x00010001u, 0, 0, 0};
        const uint32_t b[2] = {0x7bff7bffu, 0};
        const float c[4] = {1.0f, 0.0f, 0.0f, 0.0f};
        float d[4];

        bt_mma_f16(d, a, b, c);
        bt_store(&out[threadIdx.x], d[0]);
    });
    assert_true(out[0] == 1.0f + 8 * 0x1p-24f * 65504.0f);
}

/* -128 · -128 · 16 on top of the largest: the sum comes in from below. */
void sums_of_bytes_have_no_end(void **)
{
    std::vector<int32_t> out(32);

    expect(nullptr, 1, 32, [&] {
        const uint32_t a[2] = {0x80808080u, 0x80808080u};
        const int32_t c[4] = {0x7fffffff, 0, 0, 0};
        int32_t d[4];

        bt_mma_s8(d, a, 0x80808080u, c);
        bt_store(&out[threadIdx.x], d[0]);
        if (d[3] != 262144) {
            simt::fault("another sum");
        }
    });
    assert_int_equal(out[5], INT32_MIN + 262143);
}

/* ---- out of shared memory ---- */

const unsigned kPitch = 12; /* words of a row: 8, and a few between */

enum Fetch { kRight, kNotTransposed, kAnotherOrder };

/* The tiles lie in shared memory as they are written, row by row. */
void multiply_from_shared(const Problem &p, Fetch fetch, float *out)
{
    const unsigned lane = threadIdx.x;
    BT_SHARED(uint32_t, a_tile, 16 * kPitch);
    BT_SHARED(uint32_t, b_tile, 16 * kPitch);
    const unsigned half = lane / 16;
    uint32_t a[4], b[2];
    float c[4];

    for (unsigned i = lane; i < 128; i += 32) {
        a_tile.set(i / 8 * kPitch + i % 8,
                   a_word(p, i / 8, i % 8 * 2, 2, kNone));
        if (i < 64) {
            const int *pair = &p.b[i / 4][i % 4 * 2];

            b_tile.set(i / 4 * kPitch + i % 4,
                       half_of(pair[0]) | half_of(pair[1]) << 16);
        }
    }
    __syncwarp();
    /* Matrices 0, 1: rows 0 .. 15 of k 0 .. 7; 2, 3: of k 8 .. 15. */
    bt_ldmatrix(a, (fetch == kAnotherOrder)
                       ? a_tile.address((lane % 8 + 8 * half) * kPitch +
                                        lane / 8 % 2 * 4)
                       : a_tile.address(lane % 16 * kPitch + 4 * half));
    if (fetch == kNotTransposed) {
        bt_ldmatrix(b, b_tile.address(lane % 16 * kPitch));
    } else {
        bt_ldmatrix_trans(b, b_tile.address(lane % 16 * kPitch));
    }
    take_sums(p, lane, c);
    bt_mma_bf16(c, a, b, c);
    put_sums(c, lane, kNone, out);
}

void tiles_come_out_of_shared_memory_as_products_want_them(void **)
{
    for (int fetch = kRight; fetch <= kAnotherOrder; fetch++) {
        for (uint64_t seed = 0; seed < kSeeds; seed++) {
            const Problem p = make_problem(seed);
            float out[128];
            const std::string found = simt::run(simt::Grid{1, 32, seed}, [&] {
                multiply_from_shared(p, static_cast<Fetch>(fetch), out);
            });
            unsigned n_wrong = 0;

            assert_string_equal(found.c_str(), "");
            for (unsigned i = 0; i < 128; i++) {
                n_wrong += (out[i] != static_cast<float>(p.want[i / 8][i % 8]))
                               ? 1
                               : 0;
            }
            assert_true((n_wrong == 0) == (fetch == kRight));
        }
    }
}

/* Byte by byte: what the manual's table says of one matrix. */
void a_lane_gets_the_word_of_its_row(void **)
{
    std::vector<uint32_t> out(32);

    expect(nullptr, 1, 32, [&] {
        BT_SHARED(uint32_t, x, 32);
        uint32_t r[1];

        x.set(threadIdx.x, 100 + threadIdx.x);
        __syncwarp();
        /* Row r lies at 7 - r; only eight lanes name one. */
        bt_ldmatrix(r, (threadIdx.x < 8) ? x.address(4 * (7 - threadIdx.x))
                                         : nullptr);
        bt_store(&out[threadIdx.x], r[0]);
    });
    for (unsigned lane = 0; lane < 32; lane++) {
        assert_int_equal(out[lane], 100 + 4 * (7 - lane / 4) + lane % 4);
    }
}

void rows_that_are_none_are_found(void **)
{
    alignas(16) uint32_t global[4] = {0};

    expect("ldmatrix: a row that is not in shared memory", 1, 32, [&] {
        uint32_t r[1];

        bt_ldmatrix(r, global);
    });
    expect("ldmatrix: a row that is not in shared memory", 1, 32, [] {
        BT_SHARED(uint32_t, x, 30); /* two words short */
        uint32_t r[1];

        bt_ldmatrix(r, x.address(4 * (threadIdx.x % 8)));
    });
    expect("ldmatrix: a row that does not begin at a multiple of 16", 1, 32,
           [] {
               BT_SHARED(uint32_t, x, 36);
               uint32_t r[1];

               bt_ldmatrix(r, x.address(4 * (threadIdx.x % 8) + 1));
           });
    expect("shared memory is read before it is written", 1, 32, [] {
        BT_SHARED(uint32_t, x, 32);
        uint32_t r[1];

        bt_ldmatrix(r, x.address(4 * (threadIdx.x % 8)));
    });
}

/* Who reads a row is not who names it. */
void a_fetch_is_no_barrier(void **)
{
    for (int missing = 0; missing < 3; missing++) {
        expect((missing == 0) ? nullptr : "race: ", 1, 32, [=] {
            BT_SHARED(uint32_t, x, 32);
            uint32_t r[1];

            x.set(threadIdx.x, threadIdx.x);
            if (missing != 1) {
                __syncwarp();
            }
            bt_ldmatrix(r, x.address(4 * (7 - threadIdx.x % 8)));
            if (missing != 2) {
                __syncwarp();
            }
            x.set(31 - threadIdx.x, r[0]);
        });
    }
}

void all_lanes_take_part(void **)
{
    static const uint32_t a[4] = {0}, b[2] = {0}, two[2] = {0};
    static const int32_t c[4] = {0};
    static const float f[4] = {0};

    expect("31 for others of their warp, 1 have ended", 1, 32, [] {
        int32_t d[4];

        if (threadIdx.x != 30) {
            bt_mma_s8(d, two, 0, c);
        }
    });
    expect("32 for others of their warp", 1, 32, [] {
        float d[4];

        if (threadIdx.x % 2 == 0) {
            bt_mma_bf16(d, a, b, f);
        } else {
            bt_mma_bf16(d, a, b, f);
        }
    });
    expect("a lane of the mask is no thread", 1, 24, [] {
        float d[4];

        bt_mma_bf16(d, a, b, f);
    });
    expect("31 for others of their warp, 1 have ended", 1, 32, [] {
        BT_SHARED(uint32_t, x, 32);
        uint32_t r[1];

        if (threadIdx.x != 8) {
            bt_ldmatrix(r, x.address(4 * (threadIdx.x % 8)));
        }
    });
}

} // namespace

int main()
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_bytes_are_those_of_plain_loops),
        cmocka_unit_test(products_of_bfloat16_are_those_of_plain_loops),
        cmocka_unit_test(products_of_binary16_are_those_of_plain_loops),
        cmocka_unit_test(binary16_has_its_own_numbers),
        cmocka_unit_test(sums_of_bytes_have_no_end),
        cmocka_unit_test(tiles_come_out_of_shared_memory_as_products_want_them),
        cmocka_unit_test(a_lane_gets_the_word_of_its_row),
        cmocka_unit_test(rows_that_are_none_are_found),
        cmocka_unit_test(a_fetch_is_no_barrier),
        cmocka_unit_test(all_lanes_take_part),
    };

    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
