/* SPDX-License-Identifier: Apache-2.0 */
/** @file vec.h  Vector functions common to both tiers: included last by avx2.h
 *  and avx512.h, which define vec_t, VEC and vec_*(). */
#ifndef BT_KERNELS_CPU_VEC_H
#define BT_KERNELS_CPU_VEC_H

static inline vec_t vec_zero(void)
{
    return VEC_OP(setzero_ps)();
}

static inline vec_t vec_all(float x)
{
    return VEC_OP(set1_ps)(x);
}

/** Loads a register. @a at is aligned to a register, as in vec_store(). */
static inline vec_t vec_load(const void *at)
{
    return VEC_OP(load_ps)(at);
}

static inline void vec_store(float *at, vec_t v)
{
    VEC_OP(store_ps)(at, v);
}

static inline vec_t vec_loadu(const float *at)
{
    return VEC_OP(loadu_ps)(at);
}

static inline void vec_storeu(float *at, vec_t v)
{
    VEC_OP(storeu_ps)(at, v);
}

static inline vec_t vec_add(vec_t a, vec_t b)
{
    return VEC_OP(add_ps)(a, b);
}

static inline vec_t vec_sub(vec_t a, vec_t b)
{
    return VEC_OP(sub_ps)(a, b);
}

static inline vec_t vec_mul(vec_t a, vec_t b)
{
    return VEC_OP(mul_ps)(a, b);
}

static inline vec_t vec_div(vec_t a, vec_t b)
{
    return VEC_OP(div_ps)(a, b);
}

/** Returns the larger of a and b, b where either is a NaN. */
static inline vec_t vec_max(vec_t a, vec_t b)
{
    return VEC_OP(max_ps)(a, b);
}

/** Returns the smaller of a and b, b where either is a NaN. */
static inline vec_t vec_min(vec_t a, vec_t b)
{
    return VEC_OP(min_ps)(a, b);
}

static inline vec_t vec_abs(vec_t v)
{
    return VEC_OP(andnot_ps)(vec_all(-0.0f), v);
}

static inline vec_t vec_negate(vec_t v)
{
    return VEC_OP(xor_ps)(v, vec_all(-0.0f));
}

/** Returns a * b + c. */
static inline vec_t vec_fma(vec_t a, vec_t b, vec_t c)
{
    return VEC_OP(fmadd_ps)(a, b, c);
}

/** Computes the first half of bt_expf(): exp(x) = y * 2^n. The low bits of *t_p
 *  hold n. @return y */
static inline vec_t exp_parts(vec_t x, vec_t *n_p, vec_t *t_p)
{
    const vec_t magic = vec_all(EXP_MAGIC);
    const vec_t t = vec_fma(x, vec_all(EXP_LOG2E), magic);
    const vec_t n = vec_sub(t, magic);
    vec_t r = vec_fma(n, vec_all(-EXP_LN2_HI), x);
    vec_t p = vec_all(EXP_P4);

    r = vec_fma(n, vec_all(-EXP_LN2_LO), r);
    p = vec_fma(p, r, vec_all(EXP_P3));
    p = vec_fma(p, r, vec_all(EXP_P2));
    p = vec_fma(p, r, vec_all(EXP_P1));
    p = vec_fma(p, r, vec_all(EXP_P0));
    *n_p = n;
    *t_p = t;
    return vec_add(vec_fma(p, vec_mul(r, r), r), vec_all(1.0f));
}

#endif
