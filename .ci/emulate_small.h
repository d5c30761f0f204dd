// The cases of emulate_small.py: each kernel against a plain calculation of the same in double.
#include <algorithm>
#include <string>

typedef std::vector<double> Numbers;
typedef std::vector<float> Floats;
static std::mt19937 source_of_numbers(1);
static int failures = 0;

static double normal() { return std::normal_distribution<double>(0, 1)(source_of_numbers); }
static Numbers random_numbers(size_t n) {
    Numbers x(n);
    for (auto &v : x) v = normal();
    return x;
}
static void check(const std::string &what, double error, double bound) {
    const bool good = error <= bound;
    failures += !good;
    printf("%s %s: %.2e, at most %.0e\n", good ? "ok  " : "FAIL", what.c_str(), error, bound);
}
static double largest(const double *x, size_t n) {
    double all = 0;
    for (size_t i = 0; i < n; ++i) all = std::isnan(x[i]) ? INFINITY : max(all, fabs(x[i]));
    return all;
}
static double difference(const Floats &a, const Numbers &b) {
    double all = 0, size = largest(b.data(), b.size());
    for (size_t i = 0; i < b.size(); ++i) all = max(all, std::isnan(a[i]) ? INFINITY : fabs(a[i] - b[i]));
    return all / max(size, 1e-30);
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
static Numbers symmetric_part(int n, Numbers a) {
    Numbers t = transposed(n, n, a);
    for (int e = 0; e < n * n; ++e) a[e] = 0.5 * (a[e] + t[e]);
    return a;
}
static Numbers wide(const Floats &a) { return Numbers(a.begin(), a.end()); }
static Floats narrow(const Numbers &a) { return Floats(a.begin(), a.end()); }

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

static void eigenpairs_case(const std::string &name, int n, const Numbers &a, bool shared) {
    Numbers work(n * (n + 1)), values(n), vectors(n * n);
    u32 failed = 7;
    const int before = block_generation;
    launch(1, 1, THREADS, shared ? 8 * n * n : 0,
           [&] { eigenpairs(n, a.data(), shared, work.data(), values.data(), vectors.data(), &failed); });
    const double sweeps = (double)(block_generation - before) / (n + n % 2);
    double size = 0, residual = 0, apart = 0, order = 0;
    for (double v : a) size += v * v;
    size = max(sqrt(size), 1e-30);
    Numbers image = times(n, n, n, vectors, a), gram = times(n, n, n, vectors, transposed(n, n, vectors));
    for (int j = 0; j < n; ++j)
        for (int r = 0; r < n; ++r) {
            residual = max(residual, fabs(image[j * n + r] - values[j] * vectors[j * n + r]) / size);
            apart = max(apart, fabs(gram[j * n + r] - (j == r)));
            if (r + 1 == j) order = max(order, values[j] - values[r]);
        }
    if (failed || std::isnan(residual + apart)) residual = INFINITY;
    check(name + " of " + std::to_string(n) + ", " + std::to_string((int)sweeps) + " sweeps", max(residual, max(apart, order)), 2e-13);
}

static void eigenpairs_cases() {
    for (int n : {1, 2, 3, 7, 33, 64, 128}) {
        Numbers a = symmetric_part(n, random_numbers(n * n));
        eigenpairs_case("random", n, a, true);
        if (n <= 33) eigenpairs_case("random in global memory", n, a, false);
        Numbers values, q, repeated(n * n), half(n * n), paired(n * n);
        plain_eigenpairs(n, a, values, q);
        for (int l = 0; l < n; ++l)
            for (int e = 0; e < n * n; ++e) {
                double v = q[l * n + e / n] * q[l * n + e % n];
                repeated[e] += (l < n / 3 ? 2 : l < n / 2 ? -1 : 1) * v;
                half[e] += (l < n / 2 ? exp(-0.2 * l) : 0) * v;
                paired[e] += (l % 2 ? -1 : 1) * (1 + l / 2) * v;
            }
        eigenpairs_case("repeated", n, symmetric_part(n, repeated), true);
        eigenpairs_case("half of the rank", n, symmetric_part(n, half), true);
        eigenpairs_case("pairs of both signs", n, symmetric_part(n, paired), true);
    }
    Numbers zero(25), one(25), tiny(25);
    for (int i = 0; i < 5; ++i) one[6 * i] = 1, tiny[6 * i] = 1e-160 * (i + 1);
    eigenpairs_case("zero", 5, zero, true);
    eigenpairs_case("the identity", 5, one, true);
    eigenpairs_case("swap", 2, {0, 1, 1, 0}, true);
}

// <phi,phi> and <phi,K phi> of p functions of m values that span `rank` directions.
static void problem(int p, int rank, int m, Numbers &sigma, Numbers &pi, bool indefinite = false) {
    Numbers phi = times(p, rank, m, random_numbers(p * rank), random_numbers(rank * m)), root = random_numbers(m * m);
    Numbers kernel = indefinite ? symmetric_part(m, root) : times(m, m, m, root, transposed(m, m, root));
    sigma = times(p, m, p, phi, transposed(p, m, phi));
    pi = times(p, m, p, phi, times(m, m, p, kernel, transposed(p, m, phi)));
    for (auto &v : sigma) v /= m;
    for (auto &v : pi) v /= m * m;
}

static void ritz_case(int p, int k, int rank, bool shared, bool indefinite = false) {
    const double points = 40;
    Numbers sigma(p * p), pi(p * p);
    if (rank) problem(p, rank, 40, sigma, pi, indefinite);
    Floats sigma32 = narrow(sigma), pi32 = narrow(pi), image(p * p, NAN), own(p * p, NAN);
    Numbers work((5 * p + 2) * p, NAN), record(3 * (k + 1), NAN);
    u32 control[4] = {2, 0, 0, 0};
    launch(1, 1, THREADS, shared ? 8 * p * p : 0, [&] {
        ritz(p, k, points, 1e-6, sigma32.data(), pi32.data(), shared, work.data(), control, record.data(), image.data(), own.data());
    });
    Numbers values, u, mu, v;
    plain_eigenpairs(p, symmetric_part(p, wide(sigma32)), values, u);
    int kept = 0;
    while (kept < p && values[kept] > 1e-6 * values[0] && values[kept] > 0) ++kept;
    Numbers w(u.begin(), u.begin() + kept * p);
    for (int e = 0; e < kept * p; ++e) w[e] /= sqrt(values[e / p]);
    Numbers t = times(kept, p, kept, times(kept, p, p, w, wide(pi32)), transposed(kept, p, w));
    plain_eigenpairs(kept, symmetric_part(kept, t), mu, v);
    const int count = min(k, kept);
    Numbers a = times(count, kept, p, Numbers(v.begin(), v.begin() + count * kept), w), want(k + 1), plain(p * p), weighted(p * p);
    for (int j = 0; j < count; ++j) {
        want[0] -= mu[j], want[1 + j] = mu[j];
        for (int e = 0; e < p * p; ++e) {
            double product = a[j * p + e / p] * a[j * p + e % p];
            plain[e] -= 2 / points * product, weighted[e] += 2 / points * mu[j] * product;
        }
    }
    std::string name = "ritz p = " + std::to_string(p) + ", k = " + std::to_string(k) + ", rank " + std::to_string(kept);
    check(name + ", record", control[1] ? INFINITY : difference(&record[2 * (k + 1)], want), 1e-10);
    check(name + ", matrices", max(difference(image, plain), difference(own, weighted)), 1e-6);
}

static void spin_case(int k, int rank, bool shared, bool varying) {
    const double points = 40, drawn = 20, n = 500, trace = 1.7, decay = 0.9, size = trace * points;
    const double apart = (1 - 1 / n) * drawn / (drawn - 1), self = drawn / n;
    Numbers average(k * k, NAN), work(5 * k * k, NAN), record(3 * (k + 1), NAN), mean;
    Floats image(k * k), mask(k * k), share(2), gram = {1.3f};
    u32 control[4] = {0, 0, 0, 0};
    double error = 0, matrices = 0;
    for (u32 step = 0; step < 3; ++step) {
        Numbers sigma, pi, own, ignored;
        problem(k, rank, 40, sigma, pi);
        problem(k, k, 40, own, ignored);
        Floats sigma32 = narrow(sigma), pi32 = narrow(pi), own32 = narrow(own);
        control[0] = step;
        launch(1, 1, THREADS, shared ? 8 * k * k : 0, [&] {
            spin(k, points, apart, self, size, decay, gram.data(), varying ? own32.data() : nullptr, sigma32.data(), pi32.data(),
                 shared, work.data(), average.data(), control, record.data(), image.data(), mask.data(), share.data());
        });
        sigma = wide(sigma32), pi = wide(pi32), own = wide(own32);
        if (!varying) for (int e = 0; e < k * k; ++e) own[e] = sigma[e] * gram[0];
        if (step == 0) mean = sigma;
        else for (int e = 0; e < k * k; ++e) mean[e] = decay * mean[e] + (1 - decay) * sigma[e];
        error = max(error, difference(average.data(), mean));
        double middle = 0;
        for (int i = 0; i < k; ++i) middle += mean[i * k + i] / k;
        // L and its inverse, by columns
        Numbers l(k * k), inverse(k * k);
        double jitter = 1e-7 * middle;
        for (bool good = false; !good; jitter *= 10) {
            good = true;
            l.assign(k * k, 0);
            for (int j = 0; j < k && good; ++j)
                for (int i = j; i < k; ++i) {
                    double sum = mean[i * k + j] + (i == j) * jitter;
                    for (int q = 0; q < j; ++q) sum -= l[i * k + q] * l[j * k + q];
                    if (i == j && !(sum > 0)) { good = false; break; }
                    l[i * k + j] = i == j ? sqrt(sum) : sum / l[j * k + j];
                }
        }
        for (int c = 0; c < k; ++c)
            for (int i = c; i < k; ++i) {
                double sum = i == c;
                for (int q = c; q < i; ++q) sum -= l[i * k + q] * inverse[q * k + c];
                inverse[i * k + c] = sum / l[i * k + i];
            }
        Numbers back = transposed(k, k, inverse), upper(k * k), diagonal(k * k), want(k + 1), fair(k * k);
        Numbers lambda = times(k, k, k, times(k, k, k, inverse, symmetric_part(k, pi)), back);
        for (int e = 0; e < k * k; ++e) {
            int j = e / k, i = e % k;
            upper[e] = j <= i ? lambda[e] / l[i * k + i] : 0, diagonal[e] = i == j ? 1 / l[e] : 0;
            fair[e] = (pi[e] - own[e] / size) * apart + own[e] / size * self;
        }
        Numbers a = transposed(k, k, times(k, k, k, back, diagonal)), g = times(k, k, k, back, upper);
        Numbers rotated_fair = times(k, k, k, times(k, k, k, inverse, symmetric_part(k, fair)), back);
        for (auto &v : a) v *= -2 / points;
        for (auto &v : g) v *= 2;
        for (int i = 0; i < k; ++i) want[0] -= lambda[i * k + i], want[1 + i] = rotated_fair[i * k + i];
        error = max(error, control[1] || control[3] != 1 ? INFINITY : difference(&record[step * (k + 1)], want));
        matrices = max(matrices, max(difference(image, a), difference(mask, g)));
        if (share[0] != (step ? 0.9f : 0.0f) || share[1] != (step ? (float)(1 - decay) : 1.0f)) error = INFINITY;
    }
    std::string name = "spin k = " + std::to_string(k) + ", rank " + std::to_string(rank) + (varying ? ", varying" : "");
    check(name + ", record", error, rank < k ? 1e-6 : 1e-10);
    check(name + ", matrices", matrices, rank < k ? 1e-5 : 1e-6);
}

// A step that is not finite is noted, and neither it nor a later one changes what is remembered.
static void spoilt_case() {
    Floats good = {1, 0, 0, 1}, bad = {1, NAN, NAN, 1}, image(4), mask(4), share(2), gram = {1};
    Numbers average = {3, 0, 0, 3}, work(24), record(12);
    auto run = [&](u32 *control, const Floats &sigma, const Floats &pi) {
        launch(1, 1, THREADS, 0, [&] {
            spin(2, 4, 1, 1, 1, 0.5, gram.data(), nullptr, sigma.data(), pi.data(), 0, work.data(), average.data(), control,
                 record.data(), image.data(), mask.data(), share.data());
        });
    };
    u32 control[4] = {2, 0, 0, 1}, other[4] = {1, 0, 0, 0};
    run(control, good, bad);
    bool right = control[1] == 3 && control[2] == IMAGE && average[0] == 3 && share[0] == 1 && share[1] == 0;
    control[0] = 3;
    run(control, good, good);
    right &= control[1] == 3 && control[2] == IMAGE && average[0] == 3 && share[0] == 1;
    launch(1, 1, THREADS, 0, [&] {
        ritz(2, 1, 4, 1e-6, bad.data(), good.data(), 0, work.data(), other, record.data(), image.data(), mask.data());
    });
    right &= other[1] == 2 && other[2] == PSI;
    check("steps that are not finite", !right, 0);
}

static void element_cases() {
    const int k = 3, b = 5, c = 2, own = 7;
    Floats psi = narrow(random_numbers(k * b * c)), blocks = narrow(random_numbers(b * c * c)), out(k * b * c), average, fresh;
    launch(2, 1, 64, 0, [&] { weigh(psi.size(), b, c, c * c, blocks.data(), psi.data(), out.data()); });
    double error = 0;
    for (int i = 0; i < k; ++i)
        for (int q = 0; q < b * c; ++q) {
            double want = 0;
            for (int o = 0; o < c; ++o) want += (double)blocks[(q / c * c + q % c) * c + o] * psi[i * b * c + q / c * c + o];
            error = max(error, fabs(out[i * b * c + q] - want));
        }
    launch(2, 1, 64, 0, [&] { spread(psi.size(), b * c, 1, 0.5f, psi.data(), out.data()); });
    for (int i = 0; i < k * b * c; ++i) error = max(error, fabs(out[i] - 0.5 * psi[b * c + i % (b * c)]));
    std::vector<Floats> jacobian(k);
    std::vector<u64> addresses(k);
    for (int j = 0; j < k; ++j) jacobian[j] = narrow(random_numbers(k * own)), addresses[j] = (u64)jacobian[j].data();
    Floats mask = narrow(random_numbers(k * k)), gradient = narrow(random_numbers(k * own)), start = gradient;
    launch(2, 1, 64, 0, [&] { masked_sum(own, k, addresses.data(), mask.data(), gradient.data()); });
    for (int q = 0; q < k * own; ++q) {
        double want = start[q];
        for (int j = 0; j < k; ++j) want += (double)mask[j * k + q / own] * jacobian[j][q];
        error = max(error, fabs(gradient[q] - want));
    }
    for (Floats share : {Floats{0, 1}, Floats{1, 0}, Floats{0.75f, 0.25f}}) {
        fresh = narrow(random_numbers(9)), average = share[0] == 0 ? Floats(9, NAN) : narrow(random_numbers(9)), start = average;
        launch(1, 1, 64, 0, [&] { blend(9, share.data(), fresh.data(), average.data()); });
        for (int i = 0; i < 9; ++i) {
            double want = (share[0] ? share[0] * (double)start[i] : 0) + share[1] * (double)fresh[i];
            error = max(error, std::isnan(average[i]) ? INFINITY : fabs(average[i] - want));
        }
    }
    check("weigh, spread, masked_sum, blend", error, 1e-6);
}

int main() {
    eigenpairs_cases();
    for (bool shared : {true, false}) {
        ritz_case(1, 1, 1, shared);
        ritz_case(7, 3, 7, shared);
        ritz_case(24, 10, 24, shared);
    }
    ritz_case(20, 5, 12, true);
    ritz_case(20, 15, 12, true);
    ritz_case(16, 4, 16, true, true);
    ritz_case(20, 8, 10, true, true);
    ritz_case(5, 2, 0, true);
    for (bool varying : {false, true}) {
        spin_case(1, 1, true, varying);
        spin_case(4, 4, true, varying);
        spin_case(15, 15, false, varying);
    }
    spin_case(3, 1, true, false);
    spoilt_case();
    element_cases();
    printf("%d failed\n", failures);
    return failures != 0;
}
