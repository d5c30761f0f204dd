// E[φ(u)φ(v)] and E[φ'(u)φ'(v)] of φ = NAME for normal (u, v) with variances a, b and covariance k: sums over pairs of nodes with scales s,
// see kernel/infinite/logistic.rs. α_i = √(2 s_i²/(1 + 2 s_i² a)), β_j the like for b, c = α_i β_j.
__constant__ real NAME_scales[NODES] = {SCALES};  // 2 s_i²
__constant__ real NAME_weights[NODES * NODES] = {WEIGHTS};

template <bool SLOPE> __device__ __noinline__ real NAME_sum(real k, real a, real b) {
    const real wide = b > a ? b : a, narrow = b > a ? a : b, one = 1;
    const real left = m_max_k(m_fma(a, b, -k * k), (real)0);
    real beta[NODES], q[NODES], sum = 0;
    UNROLLED(j, NODES) {
        q[j] = one / m_fma(NAME_scales[j], narrow, one);
        beta[j] = m_sqrt(NAME_scales[j] * q[j]);
    }
#pragma unroll 1
    for (int i = 0; i < NODES; ++i) {
        const real p = one / m_fma(NAME_scales[i], wide, one), alpha = m_sqrt(NAME_scales[i] * p);
        UNROLLED(j, NODES) {
            const real c = alpha * beta[j], sine = m_max_k(m_min_k(c * k, one), -one);
            real term;
            if (KIND < 2 && SLOPE) {
                // 1 − c²k² without a difference of large numbers: c²ab = (1 − p)(1 − q).
                term = c * m_rsqrt(m_fma(c * c, left, p + q[j] - p * q[j]));
            } else if (KIND == 0) {
                term = m_asin(sine);
            } else {
                const real theta = m_acos(-sine);
                term = KIND == 1 || SLOPE ? theta : (m_sqrt((one + sine) * (one - sine)) + theta * sine) / c;
            }
            sum = m_fma(NAME_weights[i * NODES + j], term, sum);
        }
    }
    return sum;
}
INLINE real NAME_value(real k, real a, real b) { return NAME_sum<false>(k, a, b); }
INLINE real NAME_slope(real k, real a, real b) { return NAME_sum<true>(k, a, b); }
