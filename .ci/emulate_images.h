// The kernel of an infinite network of images by its definition, and the comparison with the CUDA kernel on the host.

struct Covariances {
    int h, w;
    std::vector<double> xy, theta, xx, yy;
};

// Two images run through the layers together; the variances of each activation's inputs are kept.
struct Network {
    Covariances now;
    std::vector<Covariances> aside;
    std::vector<std::vector<double>> variances[2];
    double weight, bias;

    void weigh() {
        for (auto *k : {&now.xy, &now.xx, &now.yy})
            for (auto &v : *k) v = weight * v + bias;
        for (size_t i = 0; i < now.theta.size(); ++i) now.theta[i] = now.xy[i] + weight * now.theta[i];
    }
    void dense() { weigh(); }

    // Zeros around the image: `pad` on every side, or as few as there must be, the odd one behind it.
    void conv(int size, int step = 1, int pad = -1) {
        auto along = [&](int n, int &count, int &before) {
            if (pad >= 0) {
                count = (n + 2 * pad - size) / step + 1, before = pad;
            } else {
                count = (n + step - 1) / step;
                before = max(0, (count - 1) * step + size - n) / 2;
            }
        };
        int h, w, up, left;
        along(now.h, h, up), along(now.w, w, left);
        for (auto *k : {&now.xy, &now.theta, &now.xx, &now.yy}) {
            std::vector<double> out(h * w * h * w);
            for (int q = 0; q < h * w; ++q)
                for (int r = 0; r < h * w; ++r)
                    for (int e = 0; e < size * size; ++e) {
                        const int y = q / w * step + e / size - up, x = q % w * step + e % size - left;
                        const int y2 = r / w * step + e / size - up, x2 = r % w * step + e % size - left;
                        if (min(min(y, x), min(y2, x2)) < 0 || max(y, y2) >= now.h || max(x, x2) >= now.w) continue;
                        out[q * h * w + r] += (*k)[(y * now.w + x) * now.h * now.w + y2 * now.w + x2] / (size * size);
                    }
            *k = out;
        }
        now.h = h, now.w = w;
        weigh();
    }

    // Means over all pairs of positions of two windows.
    void avgpool(int size, int step) {
        const int h = (now.h - size) / step + 1, w = (now.w - size) / step + 1, area = size * size;
        for (auto *k : {&now.xy, &now.theta, &now.xx, &now.yy}) {
            std::vector<double> out(h * w * h * w);
            for (int q = 0; q < h * w; ++q)
                for (int r = 0; r < h * w; ++r)
                    for (int e = 0; e < area; ++e)
                        for (int f = 0; f < area; ++f) {
                            const int y = q / w * step + e / size, x = q % w * step + e % size;
                            const int y2 = r / w * step + f / size, x2 = r % w * step + f % size;
                            out[q * h * w + r] += (*k)[(y * now.w + x) * now.h * now.w + y2 * now.w + x2] / (area * area);
                        }
            *k = out;
        }
        now.h = h, now.w = w;
    }

    void relu() {
        const int n = now.h * now.w;
        std::vector<double> a(n), b(n);
        for (int p = 0; p < n; ++p) a[p] = now.xx[p * n + p], b[p] = now.yy[p * n + p];
        variances[0].push_back(a), variances[1].push_back(b);
        auto dual = [](double k, double a, double b, double &slope) {
            const double root = sqrt(a * b), c = max(-1.0, min(1.0, k / root)), angle = acos(c);
            slope = (M_PI - angle) / (2 * M_PI);
            return root * (sqrt(1 - c * c) + (M_PI - angle) * c) / (2 * M_PI);
        };
        for (int i = 0; i < n * n; ++i) {
            double slope, unused;
            now.xy[i] = dual(now.xy[i], a[i / n], b[i % n], slope);
            now.theta[i] *= slope;
            now.xx[i] = dual(now.xx[i], a[i / n], a[i % n], unused);
            now.yy[i] = dual(now.yy[i], b[i / n], b[i % n], unused);
        }
    }

    void read_out(bool all) {
        const int n = now.h * now.w;
        for (auto *k : {&now.xy, &now.theta, &now.xx, &now.yy}) {
            double sum = 0;
            for (int i = 0; i < n * n; i += all ? 1 : n + 1) sum += (*k)[i];
            *k = {sum / (all ? n * n : n)};
        }
        now.h = now.w = 1;
    }
    void gap() { read_out(true); }
    void flatten() { read_out(false); }
    void fork() { aside.push_back(now); }
    void shortcut() { std::swap(now, aside.back()); }
    void join() {
        const Covariances other = aside.back();
        aside.pop_back();
        for (size_t i = 0; i < now.xy.size(); ++i)
            now.xy[i] += other.xy[i], now.theta[i] += other.theta[i], now.xx[i] += other.xx[i], now.yy[i] += other.yy[i];
    }
};

template <class T>
int check(int h, int w, int c, double weight, double bias, void (*layers)(Network &), int warps, int alone, int pooled, int shared, int record, double bound) {
    const int images = 3, pixels = c * h * w, positions = h * w;
    std::mt19937 random(1);
    std::normal_distribution<double> normal(0, 1);
    std::vector<std::vector<double>> x(images, std::vector<double>(pixels));
    // Pixels as the record has them: divided by the root of the number of channels.
    for (auto &image : x)
        for (auto &v : image) v = (T)(normal(random) + 0.3);
    std::vector<T> records(images * record, (T)NAN);
    std::vector<double> want(images * images);
    for (int i = 0; i < images; ++i)
        for (int j = 0; j < images; ++j) {
            Network n;
            n.weight = weight, n.bias = bias;
            n.now = {h, w, {}, std::vector<double>(positions * positions), {}, {}};
            auto products = [&](std::vector<double> &a, std::vector<double> &b) {
                std::vector<double> out(positions * positions);
                for (int p = 0; p < positions * positions; ++p)
                    for (int f = 0; f < c; ++f) out[p] += a[f * positions + p / positions] * b[f * positions + p % positions];
                return out;
            };
            n.now.xy = products(x[i], x[j]), n.now.xx = products(x[i], x[i]), n.now.yy = products(x[j], x[j]);
            layers(n);
            want[i * images + j] = n.now.theta[0];
            if (i != j) continue;
            T *to = &records[i * record];
            for (double v : x[i]) *to++ = (T)v;
            for (auto &variance : n.variances[0]) {
                for (double v : variance) *to++ = (T)v;
                for (double v : variance) *to++ = (T)sqrt(v);
                for (double v : variance) *to++ = (T)((1 + 1.2e-15) / sqrt(v));
            }
            if (to != &records[0] + (i + 1) * record) fail("the record has another length");
        }
    // All pairs, those of the upper half, mirrored ones from row 1 on, and each image with itself.
    double worst = 0;
    for (int which = 0; which < 4; ++which) {
        const int first = which == 2 ? 1 : 0, rows = which == 3 ? 1 : images - first;
        std::vector<T> out(images * images, (T)7);
        // Blocks of a network that pools go from pair to pair.
        std::vector<kernel::Value> scratch(2 * pooled);
        launch(pooled ? 2 : alone ? (images + warps - 1) / warps : images, pooled ? 1 : rows, 32 * warps, shared, [&] {
            kernel::image_pairs(records.data(), records.data(), first, images, which, out.data(), rows, scratch.data());
        });
        for (int r = 0; r < images; ++r)
            for (int j = 0; j < images; ++j) {
                const int i = which == 3 ? j : first + r;
                const double got = out[r * images + j];
                if (r >= rows || (which == 1 && j < i)) {
                    if (got != 7) fail("wrote beside the pairs");
                    continue;
                }
                // The angle of an image with itself is lost in rounding; those values are taken from the kernel in double.
                const double rounding = i == j && sizeof(T) == 4 ? 1e3 : 1;
                worst = max(worst, fabs(got / want[i * images + j] - 1) / rounding);
            }
    }
    printf("%.2g\n", worst);
    if (!(worst < bound)) {
        printf("FAIL: above %g\n", bound);
        return 1;
    }
    return 0;
}
