// The cases of emulate_small.py: each kernel against a plain calculation of the same in double.
#include <algorithm>
#include <string>

typedef std::vector<double> Numbers;
typedef std::vector<float> Floats;
using kernels::u32;
using kernels::u64;
static std::mt19937 source_of_numbers(1);
static int checks = 0, failures = 0;

static double normal() { return std::normal_distribution<double>(0, 1)(source_of_numbers); }
static Numbers random_numbers(size_t n) {
    Numbers x(n);
    for (auto &v : x) v = normal();
    return x;
}
static void check(const std::string &what, double error, double bound) {
    const bool good = error <= bound;
    failures += !good;
    checks += 1;
    if (!good || getenv("VERBOSE")) printf("%s %s: %.2e, at most %.0e\n", good ? "ok  " : "FAIL", what.c_str(), error, bound);
}
static double largest(const double *x, size_t n) {
    double all = 0;
    for (size_t i = 0; i < n; ++i) all = std::isnan(x[i]) ? INFINITY : max(all, fabs(x[i]));
    return all;
}
static double difference(const double *a, const Numbers &b) {
    Numbers d(b.size());
    for (size_t i = 0; i < b.size(); ++i) d[i] = a[i] - b[i];
    return largest(d.data(), d.size()) / max(largest(b.data(), b.size()), 1e-30);
}

// a [m, k] b [k, n]
static Numbers times(int m, int k, int n, const Numbers &a, const Numbers &b) {
    Numbers out(m * n);
    for (int i = 0; i < m; ++i)
        for (int l = 0; l < k; ++l)
            for (int j = 0; j < n; ++j) out[i * n + j] += a[i * k + l] * b[l * n + j];
    return out;
}
// [n, m]
static Numbers transposed(int m, int n, const Numbers &a) {
    Numbers out(m * n);
    for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) out[j * m + i] = a[i * n + j];
    return out;
}
static Numbers symmetric(int n, Numbers a) {
    Numbers t = transposed(n, n, a);
    for (int e = 0; e < n * n; ++e) a[e] = 0.5 * (a[e] + t[e]);
    return a;
}
static Floats rounded(const Numbers &a) { return Floats(a.begin(), a.end()); }

// Two-sided Jacobi, one rotation after the other: eigenvalues descending, eigenvectors as rows.
static void plain_eigenpairs(int n, Numbers a, Numbers &values, Numbers &vectors) {
    vectors.assign(n * n, 0);
    for (int i = 0; i < n; ++i) vectors[i * n + i] = 1;
    for (int sweep = 0; sweep < 60; ++sweep)
        for (int i = 0; i < n; ++i)
            for (int j = i + 1; j < n; ++j) {
                if (a[i * n + j] == 0) continue;
                double theta = (a[j * n + j] - a[i * n + i]) / (2 * a[i * n + j]);
                double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1)), c = 1 / sqrt(t * t + 1), s = t * c;
                for (int r = 0; r < n; ++r) {
                    double x = a[r * n + i], y = a[r * n + j];
                    a[r * n + i] = c * x - s * y, a[r * n + j] = s * x + c * y;
                }
                for (int r = 0; r < n; ++r) {
                    double x = a[i * n + r], y = a[j * n + r];
                    a[i * n + r] = c * x - s * y, a[j * n + r] = s * x + c * y;
                    x = vectors[i * n + r], y = vectors[j * n + r];
                    vectors[i * n + r] = c * x - s * y, vectors[j * n + r] = s * x + c * y;
                }
            }
    std::vector<int> order(n);
    for (int i = 0; i < n; ++i) order[i] = i;
    std::sort(order.begin(), order.end(), [&](int i, int j) { return a[i * n + i] > a[j * n + j]; });
    Numbers rows = vectors;
    values.resize(n);
    for (int i = 0; i < n; ++i) {
        values[i] = a[order[i] * n + order[i]];
        for (int r = 0; r < n; ++r) vectors[i * n + r] = rows[order[i] * n + r];
    }
}

// V and V^T A V, diagonal up to single precision.
static void device_nearly(int n, const Numbers &a, bool shared, u32 *control, Floats &log, Numbers &near, Numbers &nearly) {
    const int m = n + n % 2;
    Numbers work(2 * m * (m / 2 + 1), NAN);
    log.assign((size_t)SWEEPS * (m - 1) * m / 2, NAN), near.assign(n * n, NAN), nearly.assign(n * n, NAN);
    u32 count = 0;
    const size_t numbers = m + (shared ? 2 * m * (m / 2 + 1) : 0);
    launch(1, 1, THREADS, 4 * numbers, [&] {
        kernels::jacobi_f32(n, a.data(), n, shared, (float *)work.data(), control, log.data(), &count);
    });
    launch(n, 1, 32, 16 * m, [&] { kernels::rotate_vectors(n, log.data(), &count, nullptr, nullptr, near.data()); });
    launch(n, 1, 64, 8 * n, [&] { kernels::conjugate(n, a.data(), near.data(), nearly.data()); });
}

// Eigenvalues and, as columns, eigenvectors, of which the first `top` are wanted, as compute::small::eigh queues them; the
// number of sweeps in double.
static int device_eigenpairs(int n, const Numbers &a, bool shared, u32 *control, Numbers &values, Numbers &vectors, int top = 0) {
    const int m = n + n % 2;
    Numbers work(2 * m * (m / 2 + 1), NAN), near, nearly;
    Floats log;
    std::vector<u32> place(n, 1u << 30);
    u32 count = 0;
    device_nearly(n, a, shared, control, log, near, nearly);
    values.assign(n, NAN), vectors.assign(n * n, NAN);
    const size_t numbers = m + (shared ? 2 * m * (m / 2 + 1) : 0);
    launch(1, 1, THREADS, 8 * numbers, [&] {
        kernels::jacobi_f64(n, nearly.data(), top ? top : n, top ? 1e-11 : 1e-15, shared, work.data(), control, log.data(), place.data(), &count, values.data());
    });
    launch(n, 1, 32, 16 * m, [&] { kernels::rotate_vectors(n, log.data(), &count, near.data(), place.data(), vectors.data()); });
    return count / (m - 1);
}

static void eigh_case(const std::string &name, int n, const Numbers &a, bool shared) {
    u32 control[4] = {2, 0, 0, 0};
    Numbers values, vectors, lower = a, want, ignored;
    for (int e = 0; e < n * n; ++e)
        if (e % n > e / n) lower[e] = NAN;
    const int sweeps = device_eigenpairs(n, lower, shared, control, values, vectors);
    double size = 0, residual = 0, apart = 0, order = 0;
    for (double v : a) size += v * v;
    size = max(sqrt(size), 1e-300);
    Numbers image = times(n, n, n, a, vectors), gram = times(n, n, n, transposed(n, n, vectors), vectors);
    for (int r = 0; r < n; ++r)
        for (int j = 0; j < n; ++j) {
            residual = max(residual, fabs(image[r * n + j] - values[j] * vectors[r * n + j]) / size);
            apart = max(apart, fabs(gram[r * n + j] - (j == r)));
            if (r + 1 == j) order = max(order, values[j] - values[r]);
        }
    if (control[1] || std::isnan(residual + apart)) residual = INFINITY;
    std::string what = "eigh, " + name + " of " + std::to_string(n) + ", " + std::to_string(sweeps) + " sweeps";
    check(what + ", orthogonal and in order", max(apart, order), 1e-13);
    check(what + ", residual", residual, 1e-13);
    if (n <= 64) {
        plain_eigenpairs(n, a, want, ignored);
        double error = 0;
        for (int j = 0; j < n; ++j) error = max(error, fabs(values[j] - want[j]) / size);
        check(what + ", values", error, 2e-14);
    }
}

static void eigh_cases() {
    for (int n : {1, 2, 3, 17, 64, 128}) {
        Numbers a = symmetric(n, random_numbers(n * n));
        eigh_case("random", n, a, true);
        if (n <= 64) eigh_case("random in global memory", n, a, false);
        Numbers values, q, repeated(n * n), half(n * n), paired(n * n), zero(n * n), diagonal(n * n), graded(n * n);
        if (n <= 64) plain_eigenpairs(n, a, values, q);
        else {
            u32 control[4] = {0, 0, 0, 0};
            device_eigenpairs(n, a, true, control, values, q);
        }
        for (int l = 0; l < n; ++l)
            for (int e = 0; e < n * n; ++e) {
                double v = q[l * n + e / n] * q[l * n + e % n];
                repeated[e] += (l < n / 3 ? 2 : l < n / 2 ? -1 : 1) * v;
                half[e] += (l < n / 2 ? exp(-0.2 * l) : 0) * v;
                paired[e] += (l % 2 ? -1 : 1) * (1 + l / 2) * v;
                graded[e] += pow(10, -0.25 * l) * v;
            }
        for (int i = 0; i < n; ++i) diagonal[i * n + i] = (i * 7 % n) - 2.5;
        eigh_case("repeated", n, symmetric(n, repeated), true);
        eigh_case("half of the rank", n, symmetric(n, half), true);
        eigh_case("zero", n, zero, true);
        eigh_case("diagonal", n, diagonal, true);
        if (n > 64) continue;
        eigh_case("pairs of both signs", n, symmetric(n, paired), true);
        eigh_case("graded", n, symmetric(n, graded), true);
        for (auto &v : a) v *= 1e-140;
        eigh_case("tiny", n, a, true);
    }
    eigh_case("swap", 2, {0, 1, 1, 0}, true);
    u32 control[4] = {3, 0, 0, 0};
    Numbers values, vectors;
    device_eigenpairs(2, {1, 0, NAN, 1}, true, control, values, vectors);
    bool right = control[1] == 4 && control[2] == PROBLEM && std::isfinite(vectors[0]);
    device_eigenpairs(3, Numbers(9), true, control, values, vectors);
    check("eigh of what is not finite", !(right && control[1] == 4), 0);
}

// mu, A of the whitened problem, as compute::small::top_pairs queues it.
static void pairs_case(int p, int k, int rank, bool indefinite) {
    const int m = 40;
    Numbers phi = times(p, rank, m, random_numbers(p * rank), random_numbers(rank * m)), root = random_numbers(m * m);
    Numbers kernel = indefinite ? symmetric(m, root) : times(m, m, m, root, transposed(m, m, root));
    Numbers sigma = times(p, m, p, phi, transposed(p, m, phi)), pi = times(p, m, p, phi, times(m, m, p, kernel, transposed(p, m, phi)));
    u32 control[4] = {}, kept = 99;
    std::vector<u32> which(p, 99);
    Floats log;
    Numbers u, nearly, l(p * p, NAN), w(p * p, NAN), half(p * p, NAN), top(k, NAN), mu, v, want, rows;
    device_nearly(p, sigma, true, control, log, u, nearly);
    const bool shared = p % 2;
    launch(1, 1, THREADS, 0, [&] { kernels::away_from_rest(p, 1e-6, nearly.data(), half.data()); });
    u = times(p, p, p, u, half), nearly = times(p, p, p, transposed(p, p, u), times(p, p, p, sigma, u));
    launch(1, 1, THREADS, shared ? 8 * p * p : 0, [&] {
        kernels::factor_kept(p, 1e-6, nearly.data(), shared, l.data(), which.data(), &kept);
    });
    launch(p, 1, 32, 8 * p, [&] { kernels::whiten(p, u.data(), l.data(), which.data(), w.data()); });
    Numbers t = times(p, p, p, times(p, p, p, transposed(p, p, w), pi), w);
    launch(1, 1, THREADS, 0, [&] { kernels::symmetric_part(p, which.data(), t.data(), half.data()); });
    device_eigenpairs(p, half, true, control, mu, v, k);
    launch(1, 1, 32, 0, [&] { kernels::take_top(k, &kept, mu.data(), top.data()); });
    Numbers a = times(p, p, p, w, v);
    double error = (int)kept == min(rank, p) && !control[1] ? 0 : INFINITY, size = largest(pi.data(), p * p);
    for (int j = 0; j < k; ++j)
        for (int r = 0; r < p; ++r) {
            double left = 0, right = 0, missing = fabs(a[r * p + j]);
            for (int c = 0; c < p; ++c) left += pi[r * p + c] * a[c * p + j], right += sigma[r * p + c] * a[c * p + j];
            error = max(error, j < (int)kept ? fabs(left - top[j] * right) / size : fabs(top[j]) + missing);
        }
    plain_eigenpairs(p, symmetric(p, t), want, rows);
    std::sort(want.begin(), want.end(), [](double a, double b) { return fabs(a) > fabs(b); });
    want.resize(kept), std::sort(want.rbegin(), want.rend());
    for (int j = 0; j < min(k, (int)kept); ++j) error = max(error, fabs(top[j] - want[j]) / fabs(want[0]));
    check("top pairs p = " + std::to_string(p) + ", k = " + std::to_string(k) + ", rank " + std::to_string(kept), error, 1e-9);
}

// cholesky, congruence and solve_upper of sigma [k, k] with a range of `rank` directions.
static void triangular_case(int k, int rank) {
    Numbers root = random_numbers(k * rank), pi = random_numbers(k * k), x = random_numbers(k * k);
    Numbers sigma = times(k, rank, k, root, transposed(k, rank, root)), l(k * k, NAN), half(k * k, NAN), out(k * k, NAN), upper(k * k, NAN);
    u32 control[4] = {};
    launch(1, 1, THREADS, 0, [&] { kernels::cholesky(k, sigma.data(), control, l.data()); });
    launch(1, 1, THREADS, 0, [&] { kernels::congruence(k, l.data(), pi.data(), half.data(), out.data()); });
    launch(1, 1, THREADS, 0, [&] { kernels::solve_upper(k, l.data(), x.data(), upper.data()); });
    double trace = 0, jitter = 0;
    for (int e = 0; e < k * k; ++e) {
        if (e % k > e / k) l[e] = 0;
        trace += e / k == e % k ? sigma[e] : 0;
    }
    Numbers rebuilt = times(k, k, k, l, transposed(k, k, l)), masked = x;
    for (int i = 0; i < k; ++i) jitter = max(jitter, rebuilt[i * k + i] - sigma[i * k + i]);
    double error = control[1] || jitter > 1.1e-6 * trace / k ? INFINITY : 0;
    for (int i = 0; i < k; ++i) rebuilt[i * k + i] -= jitter;
    check("cholesky k = " + std::to_string(k), max(error, difference(rebuilt.data(), sigma)), 1e-8);
    Numbers back = times(k, k, k, times(k, k, k, l, out), transposed(k, k, l));
    check("congruence k = " + std::to_string(k), difference(back.data(), symmetric(k, pi)), 1e-6);
    for (int e = 0; e < k * k; ++e) masked[e] = e / k <= e % k ? x[e] / l[e % k * k + e % k] : 0;
    back = times(k, k, k, transposed(k, k, l), upper);
    check("solve_upper k = " + std::to_string(k), difference(back.data(), masked), 1e-8);
}

// quotients and inverse_unit_lower, with a pivot that is numerically zero.
static void unit_lower_case(int k) {
    Numbers root = random_numbers(k * k), m(k * k, NAN), image(k, NAN);
    if (k > 2) std::fill(&root[k], &root[2 * k], 0.0);
    Numbers r = times(k, k, k, root, transposed(k, k, root));
    launch(1, 1, THREADS, 0, [&] { kernels::quotients(k, 1e-6, r.data(), m.data()); });
    double error = 0;
    for (int j = 0; j < k; ++j)
        for (int i = 0; i < k; ++i) {
            double want = i == j ? 1 : i < j && r[i * k + i] > 0 ? -r[i * k + j] / r[i * k + i] : 0;
            error = max(error, fabs(m[j * k + i] - want));
        }
    check("quotients k = " + std::to_string(k), error, 0);
    launch(1, 1, THREADS, 0, [&] { kernels::inverse_unit_lower(k, 1e-6, r.data(), m.data(), image.data()); });
    Numbers d = times(k, k, k, times(k, k, k, m, r), transposed(k, k, m));
    for (int e = 0; e < k * k; ++e) error = max(error, e / k == e % k ? fabs(m[e] - 1) : fabs(d[e]) / largest(r.data(), k * k));
    for (int e = 0; e < k * k; ++e) error = max(error, e % k > e / k ? fabs(m[e]) : 0);
    check("inverse_unit_lower k = " + std::to_string(k), error, 1e-9);
}

static void element_cases() {
    const int k = 3, b = 5, c = 2, own = 7, m = 4, n = 3;
    Floats t = rounded(random_numbers(k * b * c)), blocks = rounded(random_numbers(b * c * c)), out(k * b * c);
    launch(2, 1, 64, 0, [&] { kernels::weigh(t.size(), b, c, c * c, blocks.data(), t.data(), out.data()); });
    double error = 0;
    for (int i = 0; i < k; ++i)
        for (int q = 0; q < b * c; ++q) {
            double want = 0;
            for (int o = 0; o < c; ++o) want += (double)blocks[(q / c * c + q % c) * c + o] * t[i * b * c + q / c * c + o];
            error = max(error, fabs(out[i * b * c + q] - want));
        }
    Numbers mask = random_numbers(k * k), x = random_numbers(m * n), y = random_numbers(m * n), z(m * n);
    for (bool turned : {false, true}) {
        Floats rows = rounded(random_numbers(k * k * own)), sums = rounded(random_numbers(k * own)), start = sums;
        launch(2, 1, 64, 0, [&] { kernels::add_rows(own, k, 2, turned, mask.data(), rows.data(), sums.data()); });
        for (int q = 0; q < k * own; ++q) {
            double want = start[q];
            for (int j = 0; j < k; ++j) want += 2 * mask[turned ? q / own * k + j : j * k + q / own] * rows[j * k * own + q];
            error = max(error, fabs(sums[q] - want));
        }
        Floats rounded_matrix(m * n);
        launch(1, 1, 64, 0, [&] { kernels::narrow(m, n, -0.5, turned, x.data(), rounded_matrix.data()); });
        for (int e = 0; e < m * n; ++e) error = max(error, fabs(rounded_matrix[e] + 0.5 * x[turned ? e % n * m + e / n : e]));
        double value = 3, want = 3;
        launch(1, 1, 64, 0, [&] { kernels::inner(m, n, -2, x.data(), y.data(), turned, 1, &value); });
        for (int e = 0; e < m * n; ++e) want -= 2 * x[e] * y[turned ? e % n * m + e / n : e];
        error = max(error, fabs(value - want));
    }
    check("weigh, add_rows, narrow, inner", error, 1e-6);
    double value = 3, want = 0;
    launch(1, 1, 64, 0, [&] { kernels::sum(3, 2, x.data(), 4, 0, &value); });
    for (int i = 0; i < 3; ++i) want += 2 * x[4 * i];
    error = fabs(value - want);
    launch(1, 1, 64, 0, [&] { kernels::divide(3, x.data(), 4, y.data(), 1, z.data()); });
    for (int i = 0; i < 3; ++i) error = max(error, fabs(z[i] - (y[i] > 0 ? x[4 * i] / y[i] : 0)));
    std::vector<double> variance = {0.25, 9, -1, 4, 9}, deviations(3), slopes(9);
    launch(1, 1, 64, 0, [&] { kernels::hinge(3, variance.data(), 2, 0.0625, deviations.data(), slopes.data()); });
    for (int i = 0; i < 3; ++i) {
        double deviation = sqrt(max(variance[2 * i], 0.0) + 0.0625);
        error = max(error, fabs(deviations[i] - max(0.0, 1 - deviation)));
        for (int j = 0; j < 3; ++j) error = max(error, fabs(slopes[3 * i + j] - (i == j && deviation < 1 ? -0.5 / deviation : 0)));
    }
    launch(1, 1, 64, 0, [&] { kernels::multiply(m * n, x.data(), y.data(), z.data()); });
    for (int i = 0; i < m * n; ++i) error = max(error, fabs(z[i] - x[i] * y[i]));
    launch(1, 1, 64, 0, [&] { kernels::times_columns(m, n, x.data(), y.data(), 2, z.data()); });
    for (int i = 0; i < m * n; ++i) error = max(error, fabs(z[i] - x[i] * y[i % n * 2]));
    float first = 1.3f;
    for (int form = 0; form < 3; ++form) {
        launch(1, 1, 64, 0, [&] {
            kernels::without_bias(m * n, x.data(), form < 2 ? y.data() : nullptr, form ? nullptr : &first, 5, 1.5, 0.25, z.data());
        });
        for (int i = 0; i < m * n; ++i) {
            double d = y[i] * (form ? 1 : (double)first) / 5;
            error = max(error, fabs(z[i] - (form < 2 ? (x[i] - d) * 1.5 + d * 0.25 : x[i])));
        }
    }
    Floats narrow_numbers = {1.5f, -2};
    launch(1, 1, 64, 0, [&] { kernels::widen(2, narrow_numbers.data(), z.data()); });
    check("sum, divide, hinge, multiply, times_columns, without_bias, widen", max(error, fabs(z[1] + 2)), 1e-14);
}

// A moving average starts at its first value, and stays as it is once a step was not finite; record and end likewise.
static void control_case() {
    u32 control[4] = {}, state[3] = {};
    float *shares = (float *)(state + 1), current[4];
    Numbers fresh = {1, 2}, value = {NAN, NAN}, record(12, -1), bad = {1, NAN};
    Floats rates = {1, 2, 3, 4, 5, 6, 7, 8, 9}, mean = {NAN, NAN, NAN}, gradient = {4, 8, 12};
    bool right = true;
    auto update = [&] { launch(1, 1, 64, 0, [&] { kernels::average(2, 0.75, fresh.data(), control, state, value.data()); }); };
    auto blend = [&] { launch(1, 1, 64, 0, [&] { kernels::blend(3, shares, gradient.data(), mean.data()); }); };
    auto end = [&](double square) {
        Numbers part = {square / 2, square / 2};
        launch(1, 1, 64, 0, [&] { kernels::end_step(2, part.data(), rates.data(), control, current); });
    };
    auto note = [&](const Numbers &loss, const Numbers &values) {
        launch(1, 1, 64, 0, [&] { kernels::record_step(2, loss.data(), values.data(), 1, control, record.data()); });
    };
    update(), blend(), note({5}, fresh), end(9);
    right &= value == fresh && mean == gradient && record[0] == 5 && record[2] == 2 && current[0] == 9 && current[1] == 1;
    fresh = {5, 6}, gradient = {0, 0, 0};
    update(), blend(), note({7}, fresh);
    right &= value[0] == 2 && mean[2] == 9 && record[3] == 7 && record[5] == 6 && !control[1];
    launch(1, 1, 64, 0, [&] { kernels::check_finite(control, 2, fresh.data(), 1, 2, bad.data(), 2, 2, bad.data(), 3); });
    right &= control[0] == 1 && control[1] == 2 && control[2] == 2;
    fresh = {9, 9}, gradient = {NAN, 1, 1};
    update(), blend(), note({8}, bad), end(1);
    right &= value[0] == 2 && mean[2] == 9 && record[3] == 7 && control[1] == 2 && control[2] == 2;
    right &= std::isnan(current[0]) && current[3] == 6 && control[0] == 2;
    u32 other[4] = {1, 0, 0, 0};
    Numbers part = {INFINITY};
    launch(1, 1, 64, 0, [&] { kernels::end_step(1, part.data(), rates.data(), other, current); });
    right &= std::isnan(current[0]) && other[0] == 2 && other[1] == 2 && other[2] == GRADIENT;
    other[1] = 0;
    launch(1, 1, 64, 0, [&] { kernels::record_step(2, fresh.data(), bad.data(), 1, other, record.data()); });
    right &= other[1] == 3 && other[2] == LOSS;
    u32 table[6] = {9, 9, 9, 2, 0, 1}, rows[3], step[4] = {1, 0, 0, 0};
    Floats x = {0, 1, 10, 11, 20, 21}, out(6);
    launch(1, 1, 64, 0, [&] { kernels::begin_step(3, 2, step, table, rows, x.data(), out.data()); });
    right &= rows[0] == 2 && rows[2] == 1 && out == Floats{20, 21, 0, 1, 10, 11};
    check("averages, records and verdicts", !right, 0);
}

int main() {
    eigh_cases();
    pairs_case(1, 1, 1, false);
    pairs_case(24, 10, 24, false);
    pairs_case(20, 15, 12, true);
    pairs_case(17, 17, 17, true);
    triangular_case(1, 1);
    triangular_case(4, 4);
    triangular_case(15, 15);
    triangular_case(6, 3);
    unit_lower_case(1);
    unit_lower_case(9);
    element_cases();
    control_case();
    printf("%d checks, %d failed\n", checks, failures);
    return failures != 0;
}
