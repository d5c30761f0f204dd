// Elementary functions of recorded formulas. ARITHMETIC says which set: F64 and F32 are accurate to a few units in the
// last place; FAST, for tiles that are rounded to TF32, has a relative error of a few 1e-7 (acos: 1e-6 absolute).
#define F64 1
#define F32 2
#define FAST 3

#if ARITHMETIC == F64
typedef double real;
#else
typedef float real;
#endif
#define INLINE __device__ __forceinline__
#define UNROLLED(i, n) _Pragma("unroll") for (int i = 0; i < (n); ++i)

// If the first operand is NaN, so is the result; see simd::Num.
INLINE real m_max(real a, real b) { return b > a ? b : a; }
INLINE real m_min(real a, real b) { return b < a ? b : a; }

// The same with a constant k, which is never NaN, in one instruction.
#if ARITHMETIC != F64 && __CUDA_ARCH__ >= 800
#define NAN_AWARE(name, op)                                               \
    INLINE real name(real a, real k) {                                    \
        float y;                                                          \
        asm(op ".NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(k));        \
        return y;                                                         \
    }
NAN_AWARE(m_max_k, "max")
NAN_AWARE(m_min_k, "min")
#else
INLINE real m_max_k(real a, real k) { return m_max(a, k); }
INLINE real m_min_k(real a, real k) { return m_min(a, k); }
#endif
INLINE real m_gt(real a, real b, real then, real otherwise) { return a > b ? then : otherwise; }

// These names are overloaded for float and double.
INLINE real m_abs(real x) { return fabs(x); }
INLINE real m_asin(real x) { return asin(x); }
INLINE real m_erf(real x) { return erf(x); }
INLINE real m_tanh(real x) { return tanh(x); }
INLINE real m_fma(real a, real b, real c) { return fma(a, b, c); }
#if ARITHMETIC != FAST
INLINE real m_exp(real x) { return exp(x); }
INLINE real m_exp2(real x) { return exp2(x); }
INLINE real m_ln(real x) { return log(x); }
INLINE real m_sqrt(real x) { return sqrt(x); }
INLINE real m_rsqrt(real x) { return rsqrt(x); }
INLINE real m_recip(real x) { return (real)1 / x; }
INLINE real m_sin(real x) { return sin(x); }
INLINE real m_cos(real x) { return cos(x); }
INLINE void m_sincos(real x, real* s, real* c) { sincos(x, s, c); }
#endif

#if ARITHMETIC == F64
INLINE real m_acos(real x) { return acos(x); }
#elif ARITHMETIC == F32
// acos x = √(1 − x) P(x) on [0, 1], reflected below zero: 2e-7, without a branch.
INLINE real m_acos(real x) {
    float a = fabsf(x), p = 0.000793075745f;
    p = fmaf(p, a, -0.00439220127f);
    p = fmaf(p, a, 0.0116789366f);
    p = fmaf(p, a, -0.0212534066f);
    p = fmaf(p, a, 0.0328055915f);
    p = fmaf(p, a, -0.050650086f);
    p = fmaf(p, a, 0.0890367957f);
    p = fmaf(p, a, -0.214601458f);
    p = fmaf(p, a, 1.57079632f) * sqrtf(1.0f - a);
    return x < 0.0f ? 3.14159265f - p : p;
}
#endif

#if ARITHMETIC == FAST
#define APPROXIMATE(name, op)                                             \
    INLINE real name(real x) {                                            \
        float y;                                                          \
        asm(op ".approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));             \
        return y;                                                         \
    }
APPROXIMATE(m_exp2, "ex2")
APPROXIMATE(m_sqrt, "sqrt")
APPROXIMATE(m_rsqrt, "rsqrt")
APPROXIMATE(m_recip, "rcp")
INLINE real m_exp(real x) { return m_exp2(x * 1.44269504f); }
INLINE real m_ln(real x) { return __logf(x); }
// Subtracts multiples of 2π first, because the hardware's sine and cosine are accurate near zero only.
INLINE real m_reduced(real x) {
    float k = rintf(x * 0.159154943f);
    return fmaf(k, 1.74845553e-7f, fmaf(k, -6.28318548f, x));
}
INLINE real m_sin(real x) { return __sinf(m_reduced(x)); }
INLINE real m_cos(real x) { return __cosf(m_reduced(x)); }
INLINE void m_sincos(real x, real* s, real* c) { __sincosf(m_reduced(x), s, c); }
INLINE real m_acos(real x) {
    float a = fabsf(x), p = -0.00475275055f;
    p = fmaf(p, a, 0.0203015775f);
    p = fmaf(p, a, -0.045709018f);
    p = fmaf(p, a, 0.0881120698f);
    p = fmaf(p, a, -0.214537482f);
    p = fmaf(p, a, 1.57079562f) * m_sqrt(1.0f - a);
    return x < 0.0f ? 3.14159265f - p : p;
}
#endif
