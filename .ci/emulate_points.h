// Checks of the kernels of points.cu against plain double loops.
#include <map>

static std::mt19937 generator(1);
static std::vector<float> numbers(size_t n) {
    std::normal_distribution<double> normal(0, 1);
    std::vector<float> all(n);
    for (auto &v : all) v = normal(generator);
    return all;
}
static void near(const char *what, double got, double want, double bound) {
    if (!(fabs(got - want) <= bound * (1 + fabs(want)))) {
        printf("FAIL: %s: %.9g for %.9g\n", what, got, want);
        exit(1);
    }
}

static void check_gathers() {
    const int samples = 7, m = 11, first = 3, count = 4, n = 9, batch = 5;
    auto part = numbers(count * m), f = numbers(m * samples), before = f;
    launch(2, 1, 32, 0, [&] { place_columns(count, m, samples, first, part.data(), f.data()); });
    for (int j = 0; j < m; ++j)
        for (int s = 0; s < samples; ++s) {
            bool mine = s >= first && s < first + count;
            near("place_columns", f[j * samples + s], mine ? part[(s - first) * m + j] : before[j * samples + s], 0);
        }
    auto k = numbers(n * n), out = numbers(batch * batch);
    std::vector<u32> rows = {8, 0, 3, 3, 5};
    launch(1, 1, 32, 0, [&] { gather_block(batch, n, rows.data(), k.data(), out.data()); });
    for (int a = 0; a < batch; ++a)
        for (int b = 0; b < batch; ++b) near("gather_block", out[a * batch + b], k[rows[a] * n + rows[b]], 0);
    const int functions = 2, c = 3;
    auto psi = numbers(functions * batch * c), weighted = psi, w = numbers(batch);
    launch(1, 1, 32, 0, [&] { scale_points(functions * batch * c, batch, c, w.data(), weighted.data()); });
    for (int i = 0; i < functions * batch * c; ++i) near("scale_points", weighted[i], psi[i] * w[i / c % batch], 1e-6);
    auto points = numbers(functions * 4 * c), partners = points;
    launch(1, 1, 32, 0, [&] { swap_pairs(functions * 4 * c, c, points.data(), partners.data()); });
    for (int i = 0; i < functions * 4 * c; ++i) near("swap_pairs", partners[i], points[(i / c + (i / c % 2 ? -1 : 1)) * c + i % c], 0);
    const int own = 2, from = 1;
    auto few = numbers(functions * own * c), whole = numbers(functions * batch * c);
    launch(1, 1, 32, 0, [&] { take_points(functions * own * c, batch, own, c, from, psi.data(), few.data()); });
    for (int i = 0; i < functions * own * c; ++i) {
        int j = i / (own * c), p = i / c % own;
        near("take_points", few[i], psi[(j * batch + from + p) * c + i % c], 0);
    }
    launch(1, 1, 32, 0, [&] { place_points(functions * batch * c, batch, own, c, from, few.data(), whole.data()); });
    for (int i = 0; i < functions * batch * c; ++i) {
        int p = i / c % batch;
        near("place_points", whole[i], p >= from && p < from + own ? psi[i] : 0, 0);
    }
}

// Features of one point in double.
static double feature(const std::vector<double> &x, double scale, int unit) {
    double square = 0;
    for (double v : x) square += v / scale * (v / scale);
    double rho = sqrt(square);
    return unit == (int)x.size() ? 0.5 * log1p(square) : x[unit] / scale / (1 + rho);
}

static void check_radial(int d) {
    const int b = 6, per = b * (d + 1);
    const double scale = 1.7, h = 1e-4;
    auto x = numbers(b * d), y = numbers(per), jet = numbers((d + 2) * per), identity = numbers((d + 2) * b * d);
    launch(2, 1, 32, 0, [&] { points_jet(b, d, x.data(), identity.data()); });
    for (int o = 0; o < d + 2; ++o)
        for (int i = 0; i < b * d; ++i)
            near("points_jet", identity[o * b * d + i], o == 0 ? x[i] : o <= d && i % d == o - 1, 0);
    launch(2, 1, 32, 0, [&] { radial(b, d, scale, 0, x.data(), y.data()); });
    launch(2, 1, 32, 0, [&] { radial(b, d, scale, 1, identity.data(), jet.data()); });
    for (int p = 0; p < b; ++p)
        for (int unit = 0; unit <= d; ++unit) {
            std::vector<double> at(x.begin() + p * d, x.begin() + (p + 1) * d);
            double here = feature(at, scale, unit), laplacian = 0;
            near("radial", y[p * (d + 1) + unit], here, 1e-6);
            near("radial_jet", jet[p * (d + 1) + unit], here, 1e-6);
            for (int a = 0; a < d; ++a) {
                auto up = at, down = at;
                up[a] += h, down[a] -= h;
                double more = feature(up, scale, unit), less = feature(down, scale, unit);
                near("radial_jet, slope", jet[(1 + a) * per + p * (d + 1) + unit], (more - less) / (2 * h), 2e-6);
                laplacian += (more - 2 * here + less) / (h * h);
            }
            near("radial_jet, Laplacian", jet[(1 + d) * per + p * (d + 1) + unit], laplacian, 1e-5);
        }
}

static void check_elliptic(int c) {
    const int k = 3, b = 5, d = 2, steps = 2, m = b * c;
    auto wide = numbers(steps * b * (d + 1));
    std::vector<double> field(wide.begin(), wide.end());
    auto jet = numbers(k * (d + 2) * m), out = numbers(k * m);
    std::vector<u32> rows = {5, 6, 7, 8, 9};
    launch(1, 1, 32, 0, [&] { elliptic(k, b, c, d, 2.5, 0.7, rows.data(), field.data(), jet.data(), out.data()); });
    for (int j = 0; j < k; ++j)
        for (int i = 0; i < m; ++i) {
            auto of = [&](int order) { return (double)jet[(j * (d + 2) + order) * m + i]; };
            const double *here = &field[rows[i / c] * (d + 1)];
            double image = here[d] * of(0) - of(d + 1) - here[0] * of(1) - here[1] * of(2);
            near("elliptic", out[j * m + i], (2.5 * of(0) - image) / 0.7, 1e-6);
        }
}

// A random graph, batches with points that come twice, functions known at all points or at the listed neighbours.
static void check_sparse(bool listed) {
    const int n = 12, b = 5, k = 3, step = 1, room = 40;
    std::vector<u32> starts = {0}, neighbours;
    std::vector<double> shares;
    for (int i = 0; i < n; ++i) {
        int degree = 1 + generator() % 6;
        for (int s = 0; s < degree; ++s) neighbours.push_back(generator() % n), shares.push_back(1.0 / degree);
        starts.push_back(neighbours.size());
    }
    std::vector<u32> rows = {4, 0, 11, 4, 7}, control = {step, 0, 0, 0}, places(2 * b), list(room, 0);
    std::map<u32, u32> known;
    u32 end = 0;
    for (int p = 0; p < b; ++p) {
        if (!known.count(rows[p])) known[rows[p]] = end, end += starts[rows[p] + 1] - starts[rows[p]];
        places[step * b + p] = known[rows[p]];
    }
    auto f = numbers(k * n), psi = numbers(k * b), out = numbers(k * b);
    launch(b, 1, 64, 0, [&] { list_columns(control.data(), places.data(), rows.data(), starts.data(), neighbours.data(), list.data()); });
    std::vector<float> there(k * room);
    for (int j = 0; j < k; ++j)
        for (int s = 0; s < room; ++s) there[j * room + s] = f[j * n + list[s]];
    launch(1, 1, 32, 0, [&] {
        sparse_rows(k, b, listed ? room : n, 0.3, control.data(), listed ? places.data() : nullptr, rows.data(), starts.data(), neighbours.data(),
             shares.data(), listed ? there.data() : f.data(), psi.data(), out.data());
    });
    for (int j = 0; j < k; ++j)
        for (int p = 0; p < b; ++p) {
            double walked = 0, here = psi[j * b + p];
            for (u32 e = starts[rows[p]]; e < starts[rows[p] + 1]; ++e) walked += shares[e] * f[j * n + neighbours[e]];
            near("sparse_rows", out[j * b + p], here + (walked - here) / 0.3, 1e-6);
        }
}

int main() {
    check_gathers();
    for (int d = 1; d <= 3; ++d) check_radial(d);
    check_elliptic(1), check_elliptic(3);
    check_sparse(true), check_sparse(false);
    printf("ok: place_columns, gather_block, scale_points, swap_pairs, take_points, place_points, points_jet, radial, elliptic, list_columns, sparse_rows\n");
}
