//! The primitives of networks that see images.

use super::*;

/// cuDNN may take Winograd's transforms, which round about ten times as coarsely as plain sums do.
const CONVOLVED: f64 = 5e-5;

/// `[k, m, n]` inside a flat buffer as parameters are: 3 numbers before each matrix, 2 after it.
fn flat(device: Device, k: usize, size: usize, data: &[f32]) -> Tensor {
    let padded = data.chunks_exact(size).flat_map(|one| [&[9.0; 3][..], one, &[9.0; 2]].concat());
    tensor(device, &[k * (size + 5)], &padded.collect::<Vec<f32>>())
}

/// The matrices of [`flat`], checking that nothing else was written.
fn unflat(k: usize, size: usize, data: &[f32]) -> Vec<f32> {
    assert!(data.iter().enumerate().all(|(i, v)| (3..3 + size).contains(&(i % (size + 5))) || *v == 9.0));
    data.chunks_exact(size + 5).take(k).flat_map(|one| one[3..3 + size].to_vec()).collect()
}

/// Calls `f(y, w, x)` with the places of the three factors of every term of `y[o] = Σ w[o, c, u, v] x[c, …]`, one image.
fn for_every_term(shape: &Convolution, mut f: impl FnMut(usize, usize, usize)) {
    let ([channels, height, width], [down, across]) = (shape.image, shape.out());
    let (size, patch) = (shape.size, shape.patch());
    for y in 0..shape.channels * down * across {
        let (o, r, s) = (y / (down * across), y / across % down, y % across);
        for tap in 0..patch {
            let (c, u, v) = (tap / (size * size), tap / size % size, tap % size);
            let (row, col) =
                ((r * shape.stride + u).wrapping_sub(shape.before), (s * shape.stride + v).wrapping_sub(shape.before));
            if c < channels && row < height && col < width {
                f(y, o * patch + tap, (c * height + row) * width + col);
            }
        }
    }
}

fn convolutions() -> Vec<(usize, usize, Convolution)> {
    let of =
        |image, channels, size, stride, before, after| Convolution { image, channels, size, stride, before, after };
    vec![
        (1, 4, of([3, 8, 8], 16, 3, 1, 1, 1)),
        (2, 3, of([2, 7, 5], 3, 3, 2, 1, 1)),
        (3, 2, of([4, 6, 6], 5, 2, 1, 0, 1)),
        (2, 5, of([5, 5, 4], 8, 1, 2, 0, 0)),
        (1, 3, of([1, 9, 9], 4, 5, 3, 0, 0)),
        (1, 1, of([2, 3, 3], 2, 3, 1, 1, 1)),
        (1, 16, of([16, 16, 16], 16, 3, 1, 1, 1)),
        (2, 8, of([16, 8, 8], 32, 3, 2, 1, 1)),
        // More images than blocks of a batch, a filter larger than the image, and several tiles of an image.
        (2, 20, of([1, 3, 3], 2, 5, 1, 2, 2)),
        (1, 2, of([40, 24, 24], 2, 3, 1, 1, 1)),
    ]
}

#[test]
fn convolutions_and_their_adjoints() {
    on_every_device(|device| {
        let mut rng = Rng::new(21);
        for (k, b, shape) in convolutions() {
            for share in [false, true] {
                let pixels: usize = shape.image.iter().product();
                let (n, size) =
                    (shape.channels * shape.out().iter().product::<usize>(), shape.channels * shape.patch());
                let own = if share { 1 } else { k };
                let (x, w, g) =
                    (random(&[own, b, pixels], &mut rng), random(&[k, size], &mut rng), random(&[k, b, n], &mut rng));
                // The three sums at once, term by term; a shared input has one adjoint, the sum over the networks.
                let (mut y, mut dx, mut dw) = (vec![0.0; k * b * n], vec![0.0; x.len()], vec![0.0; w.len()]);
                for (j, i) in (0..k).flat_map(|j| (0..b).map(move |i| (j, i))) {
                    let (y0, w0, x0) = ((j * b + i) * n, j * size, (j % own * b + i) * pixels);
                    for_every_term(&shape, |at, tap, pixel| {
                        let (x_, w_, g_) = (x[x0 + pixel], w[w0 + tap], g[y0 + at]);
                        y[y0 + at] += f64::from(x_) * f64::from(w_);
                        dx[x0 + pixel] += f64::from(w_) * f64::from(g_);
                        dw[w0 + tap] += f64::from(x_) * f64::from(g_);
                    });
                }
                let what = format!("{k} networks, {b} images, {shape:?}, shared {share}");
                let tx = if share { tensor(device, &[b, pixels], &x) } else { tensor(device, &[k, b, pixels], &x) };
                let (tw, tg) = (flat(device, k, size, &w), tensor(device, &[k, b, n], &g));
                let filters = tw.matrices(3, size + 5, shape.channels, shape.patch());
                let mut ty = zeros(device, &[k, b, n]);
                let linear = Activation::Identity;
                conv2d(&shape, tx.stack(), filters, None, linear, Store::Replace, &mut ty, None);
                close(&what, &ty.to_host().unwrap(), &y, CONVOLVED);
                let mut sum = tg.clone();
                conv2d(&shape, tx.stack(), filters, None, linear, Store::Add, &mut sum, None);
                let want: Vec<f64> = y.iter().zip(wide(&g)).map(|(y, g)| y + g).collect();
                close(&what, &sum.to_host().unwrap(), &want, CONVOLVED);
                let mut tdx = tensor(device, &[own, b, pixels], &vec![7.0; x.len()]);
                let stride = if share { 0 } else { b * pixels };
                conv2d_vjp_input(&shape, &tg, filters, tdx.matrices_mut(0, stride, k, b, pixels));
                close(&what, &tdx.to_host().unwrap(), &dx, CONVOLVED);
                let mut tdw = flat(device, k, size, &vec![7.0; k * size]);
                let to = tdw.matrices_mut(3, size + 5, k, shape.channels, shape.patch());
                conv2d_vjp_weights(&shape, tx.stack(), &tg, to);
                close(&what, &unflat(k, size, &tdw.to_host().unwrap()), &dw, CONVOLVED);
            }
        }
    });
}

#[test]
fn convolutions_give_the_same_bits_every_time() {
    on_every_device(|device| {
        let mut rng = Rng::new(22);
        let shape = Convolution { image: [16, 16, 16], channels: 16, size: 3, stride: 1, before: 1, after: 1 };
        let (b, n) = (32, 16 * 256);
        let x = tensor(device, &[b, n], &random(&[b, n], &mut rng));
        let g = tensor(device, &[1, b, n], &random(&[b, n], &mut rng));
        let w = tensor(device, &[16, 144], &random(&[16, 144], &mut rng));
        let run = || {
            let (mut y, mut dx, mut dw) =
                (zeros(device, &[1, b, n]), zeros(device, &[1, b, n]), zeros(device, &[1, 16, 144]));
            conv2d(&shape, x.stack(), w.stack(), None, Activation::Identity, Store::Replace, &mut y, None);
            conv2d_vjp_input(&shape, &g, w.stack(), dx.stack_mut());
            conv2d_vjp_weights(&shape, x.stack(), &g, dw.stack_mut());
            [y, dx, dw].map(|t| t.to_host().unwrap())
        };
        assert_eq!(run(), run());
    });
}

#[test]
fn channels_have_biases_activations_and_sums() {
    on_every_device(|device| {
        let mut rng = Rng::new(23);
        let shape = Convolution { image: [2, 6, 5], channels: 4, size: 1, stride: 1, before: 0, after: 0 };
        let (k, b, c, plane) = (2, 3, 4, 30);
        let n = c * plane;
        for phi in Activation::ALL {
            let (x, w) = (random(&[k, b, 60], &mut rng), random(&[k, 8], &mut rng));
            let (bias, g) = (random(&[k, c], &mut rng), random(&[k, b, n], &mut rng));
            let channel = |i: usize| i / (b * n) * c + i % n / plane;
            let (tx, tw, tb) =
                (tensor(device, &[k, b, 60], &x), tensor(device, &[k, c, 2], &w), flat(device, k, c, &bias));
            let biases = tb.matrices(3, c + 5, 1, c);
            let (mut y, mut slope) = (zeros(device, &[k, b, n]), zeros(device, &[k, b, n]));
            conv2d(&shape, tx.stack(), tw.stack(), Some(biases), phi, Store::Replace, &mut y, Some(&mut slope));
            let z = |i: usize| {
                let (j, row, p) = (i / (b * n), i / n, i % plane);
                let sum = |d: usize| f64::from(w[j * 8 + i % n / plane * 2 + d]) * f64::from(x[row * 60 + d * 30 + p]);
                sum(0) + sum(1) + f64::from(bias[channel(i)])
            };
            let at = |i: usize| phi.at(z(i), i % n >= n / 2);
            let (value, derivative): (Vec<f64>, Vec<f64>) = (0..k * b * n).map(at).unzip();
            close(&format!("{phi:?}"), &y.to_host().unwrap(), &value, CONVOLVED);
            // A kink within rounding of zero may fall on either side.
            if !matches!(phi, Activation::Relu | Activation::LeakyRelu) {
                close(&format!("{phi:?}'"), &slope.to_host().unwrap(), &derivative, CONVOLVED);
            }
            let s = wide(&slope.to_host().unwrap());
            let tangent = |i: usize| (f64::from(g[i]) + f64::from(bias[channel(i)])) * s[i];
            let mut t = tensor(device, &[k, b, n], &g);
            bias_slope(&mut t, Some(biases), Some(&slope));
            close("bias_slope", &t.to_host().unwrap(), &(0..g.len()).map(tangent).collect::<Vec<_>>(), 1e-6);
        }
        for (k, b, c, plane) in [(1, 2, 3, 1), (2, 300, 5, 1), (2, 7, 3, 15), (1, 40, 3, 256), (3, 33, 16, 64)] {
            let g = random(&[k, b, c * plane], &mut rng);
            let mut sums = flat(device, k, c, &vec![0.0; k * c]);
            channel_sums(&tensor(device, &[k, b, c * plane], &g), sums.matrices_mut(3, c + 5, k, 1, c));
            let mut want = vec![0.0; k * c];
            g.iter().enumerate().for_each(|(i, g)| want[i / (b * c * plane) * c + i / plane % c] += f64::from(*g));
            close("channel_sums", &unflat(k, c, &sums.to_host().unwrap()), &want, 1e-5);
        }
    });
}

#[test]
fn activations_without_a_bias() {
    on_every_device(|device| {
        let mut rng = Rng::new(30);
        for phi in Activation::ALL {
            for (k, b, n) in [(1, 1, 3), (2, 5, 6), (3, 64, 100)] {
                let z = random(&[k, b, n], &mut rng);
                let (mut y, mut slope) = (tensor(device, &[k, b, n], &z), zeros(device, &[k, b, n]));
                activation(phi, &mut y, Some(&mut slope));
                let at = |i: usize| phi.at(f64::from(z[i]), i % n >= n / 2);
                let (value, derivative): (Vec<f64>, Vec<f64>) = (0..z.len()).map(at).unzip();
                close(&format!("{phi:?}"), &y.to_host().unwrap(), &value, 3e-6);
                close(&format!("{phi:?}'"), &slope.to_host().unwrap(), &derivative, 3e-6);
                let mut alone = tensor(device, &[k, b, n], &z);
                activation(phi, &mut alone, None);
                assert_eq!(alone.to_host().unwrap(), y.to_host().unwrap());
            }
        }
    });
}

/// One batch norm in double precision.
struct Normed {
    channel: Box<dyn Fn(usize) -> usize>,
    size: f64,
    statistics: Vec<[f64; 2]>,
    affine: Vec<[f64; 2]>,
}

impl Normed {
    fn hat(&self, x: f64, c: usize) -> f64 {
        (x - self.statistics[c][0]) / (self.statistics[c][1] + f64::from(EPSILON)).sqrt()
    }

    fn scale(&self, c: usize) -> f64 {
        self.affine[c][0] / (self.statistics[c][1] + f64::from(EPSILON)).sqrt()
    }

    /// `(Σ g x̂, Σ g)` of every channel.
    fn sums(&self, x: &[f64], g: &[f64]) -> Vec<[f64; 2]> {
        let mut sums = vec![[0.0; 2]; self.affine.len()];
        for (i, (x, g)) in x.iter().zip(g).enumerate() {
            let c = (self.channel)(i);
            sums[c][0] += g * self.hat(*x, c);
            sums[c][1] += g;
        }
        sums
    }

    /// `γ s (g − mean g − x̂ mean(g x̂))`, without the means where the statistics are not those of the batch.
    fn centred(&self, x: &[f64], g: &[f64], batch: bool) -> Vec<f64> {
        let (sums, n) = (self.sums(x, g), if batch { self.size } else { f64::INFINITY });
        let of = |i: usize, c: usize| self.scale(c) * (g[i] - sums[c][1] / n - self.hat(x[i], c) * sums[c][0] / n);
        (0..x.len()).map(|i| of(i, (self.channel)(i))).collect()
    }
}

/// `[k, 2, c]` from pairs.
fn halves(pairs: &[[f64; 2]], c: usize) -> Vec<f64> {
    pairs.chunks_exact(c).flat_map(|one| [0, 1].map(|h| one.iter().map(move |p| p[h]))).flatten().collect()
}

fn narrow(x: &[f64]) -> Vec<f32> {
    x.iter().map(|&v| v as f32).collect()
}

#[test]
fn batch_norms_and_their_derivatives() {
    let shapes = [(1, 2, 3, 1), (2, 300, 5, 1), (2, 7, 3, 15), (1, 40, 3, 256), (3, 33, 16, 64), (2, 1, 2, 12)];
    on_every_device(|device| {
        let mut rng = Rng::new(24);
        for (k, b, c, plane) in shapes {
            for (share, batch) in [(false, true), (true, true), (false, false), (true, false)] {
                let n = c * plane;
                let what = format!("{k} networks, {b} rows, {c} channels of {plane}, shared {share}, of batch {batch}");
                // Far from zero, so that a variance by differences of squares would fail.
                let far = |x: Vec<f32>| x.iter().map(|x| 100.0 + 3.0 * x).collect::<Vec<f32>>();
                let own = if share { 1 } else { k };
                let x = far(random(&[own, b, n], &mut rng));
                let (dx, g) = (random(&[own, b, n], &mut rng), random(&[k, b, n], &mut rng));
                let (affine, daffine) = (random(&[k, 2, c], &mut rng), random(&[k, 2, c], &mut rng));
                let every = |x: &[f32]| wide(x).into_iter().cycle().take(k * b * n).collect::<Vec<f64>>();
                let (wx, wdx, wg) = (every(&x), every(&dx), wide(&g));
                let channel = move |i: usize| i / (b * n) * c + i / plane % c;
                let size = (b * plane) as f64;
                let mut statistics = vec![[0.0; 2]; k * c];
                wx.iter().enumerate().for_each(|(i, x)| statistics[channel(i)][0] += x / size);
                for (i, x) in wx.iter().enumerate() {
                    let c = channel(i);
                    statistics[c][1] += (x - statistics[c][0]).powi(2) / size;
                }
                let of = |shape: &[usize], d: &[f32]| tensor(device, shape, d);
                let (tx, tdx) = (of(&[own, b, n], &x), of(&[own, b, n], &dx));
                let [tx, tdx] = [&tx, &tdx].map(|t| t.matrices(0, if share { 0 } else { b * n }, b, n));
                let mut ts = zeros(device, &[k, 2, c]);
                batch_statistics(tx, &mut ts);
                close(&what, &ts.to_host().unwrap(), &halves(&statistics, c), 1e-6);
                let got = ts.to_host().unwrap();
                let variance: Vec<f32> = got.chunks_exact(2 * c).flat_map(|s| s[c..].to_vec()).collect();
                close(&what, &variance, &statistics.iter().map(|s| s[1]).collect::<Vec<f64>>(), 2e-5);
                if !batch {
                    // Stored ones: what the batch has, and more.
                    statistics.iter_mut().for_each(|s| *s = [s[0] + 0.5, s[1] + 2.0]);
                }
                let pairs =
                    |a: &[f32]| (0..k * c).map(|i| [0, c].map(|h| f64::from(a[i / c * 2 * c + h + i % c]))).collect();
                let normed = Normed { channel: Box::new(channel), size, statistics, affine: pairs(&affine) };
                let dpairs: Vec<[f64; 2]> = pairs(&daffine);
                let ts = flat(device, k, 2 * c, &narrow(&halves(&normed.statistics, c)));
                let [ta, td] = [&affine, &daffine].map(|a| flat(device, k, 2 * c, a));
                let [s, a, d] = [&ts, &ta, &td].map(|t| t.matrices(3, 2 * c + 5, 2, c));
                let mut y = zeros(device, &[k, b, n]);
                batch_norm(tx, s, a, &mut y);
                let hat = |i: usize| normed.hat(wx[i], channel(i));
                let want = |i: usize| normed.affine[channel(i)][0] * hat(i) + normed.affine[channel(i)][1];
                close(&what, &y.to_host().unwrap(), &(0..wx.len()).map(want).collect::<Vec<_>>(), 2e-5);

                let mut grad = flat(device, k, 2 * c, &vec![0.0; 2 * k * c]);
                let mut back = zeros(device, &[own, b, n]);
                let to = back.matrices_mut(0, if share { 0 } else { b * n }, k, b, n);
                let tg = of(&[k, b, n], &g);
                batch_norm_vjp(tx, s, a, batch, &tg, grad.matrices_mut(3, 2 * c + 5, k, 2, c), Some(to));
                let sums = halves(&normed.sums(&wx, &wg), c);
                close(&what, &unflat(k, 2 * c, &grad.to_host().unwrap()), &sums, 3e-5);
                let mut want = vec![0.0; own * b * n];
                normed.centred(&wx, &wg, batch).iter().enumerate().for_each(|(i, v)| want[i % (own * b * n)] += v);
                close(&what, &back.to_host().unwrap(), &want, 3e-5);
                let mut alone = flat(device, k, 2 * c, &vec![0.0; 2 * k * c]);
                batch_norm_vjp(tx, s, a, batch, &tg, alone.matrices_mut(3, 2 * c + 5, k, 2, c), None);
                assert_eq!(alone.to_host().unwrap(), grad.to_host().unwrap(), "{what}");

                let centred = normed.centred(&wx, &wdx, batch);
                for (with_x, with_affine) in [(true, true), (true, false), (false, true)] {
                    let mut t = zeros(device, &[k, b, n]);
                    batch_norm_jvp(tx, with_x.then_some(tdx), s, a, with_affine.then_some(d), batch, &mut t);
                    let want = |i: usize| {
                        let [dgamma, dbeta] = dpairs[channel(i)];
                        f64::from(with_x) * centred[i] + f64::from(with_affine) * (dgamma * hat(i) + dbeta)
                    };
                    close(&what, &t.to_host().unwrap(), &(0..wx.len()).map(want).collect::<Vec<_>>(), 3e-5);
                }
            }
        }
    });
}

#[test]
fn averages_follow_what_is_measured() {
    on_every_device(|device| {
        let mut rng = Rng::new(25);
        for (k, n) in [(1, 1), (3, 7), (2, 300)] {
            for own in [1, k] {
                let (x, y) = (random(&[own, n], &mut rng), random(&[k, n], &mut rng));
                let mut ty = flat(device, k, n, &y);
                running_average(0.1, &tensor(device, &[own, n], &x), ty.matrices_mut(3, n + 5, k, 1, n));
                let want: Vec<f64> =
                    (0..k * n).map(|i| 0.9 * f64::from(y[i]) + 0.1 * f64::from(x[i % (own * n)])).collect();
                close("running_average", &unflat(k, n, &ty.to_host().unwrap()), &want, 1e-6);
            }
        }
    });
}

#[test]
fn pooling() {
    on_every_device(|device| {
        let mut rng = Rng::new(26);
        let shapes = [
            (1, 2, [1, 2, 2], [2, 2]),
            (2, 3, [3, 5, 6], [2, 3]),
            (2, 5, [4, 8, 8], [8, 8]),
            (1, 9, [7, 13, 9], [1, 4]),
        ];
        for (k, b, image, window) in shapes {
            let pool = Pool { image, window };
            let [channels, height, width] = image;
            let [down, across] = pool.out();
            let (large, small) = (height * width, down * across);
            let (ni, no) = (channels * large, channels * small);
            let mut x = random(&[k, b, ni], &mut rng);
            // Equals, and a NaN, which counts as the largest.
            x.iter_mut().step_by(3).for_each(|x| *x = 1.0);
            x[1] = f32::NAN;
            let (dx, g) = (random(&[k, b, ni], &mut rng), random(&[k, b, no], &mut rng));
            let pixels = |o: usize| {
                let (plane, r, s) = (o / small, o % small / across, o % across);
                let at = move |e: usize| (r * window[0] + e / window[1]) * width + s * window[1] + e % window[1];
                (plane * large, (0..window[0] * window[1]).map(at).collect::<Vec<usize>>())
            };
            let largest = |o: usize| {
                let (first, window) = pixels(o);
                let value = |p: usize| if x[first + p].is_nan() { f32::INFINITY } else { x[first + p] };
                window.into_iter().reduce(|a, p| if value(p) > value(a) { p } else { a }).unwrap()
            };
            let outputs = k * b * no;
            let places: Vec<usize> = (0..outputs).map(largest).collect();
            let of = |n: usize, d: &[f32]| tensor(device, &[k, b, n], d);
            let (tx, tdx, tg) = (of(ni, &x), of(ni, &dx), of(no, &g));
            let (mut y, mut at) = (zeros(device, &[k, b, no]), zeros(device, &[k, b, no]));
            max_pool(&pool, &tx, &mut y, &mut at);
            assert_eq!(at.to_host().unwrap(), places.iter().map(|&p| p as f32).collect::<Vec<f32>>());
            let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
            let taken = |x: &[f32]| (0..outputs).map(|o| x[o / small * large + places[o]]).collect::<Vec<f32>>();
            let got = y.to_host().unwrap();
            let same = |(a, b): (&f32, &f32)| a == b || a.is_nan() && b.is_nan();
            assert!(got.iter().zip(&taken(&x)).all(same));
            max_pool_jvp(&pool, &at, &tdx, &mut y);
            assert_eq!(bits(&y.to_host().unwrap()), bits(&taken(&dx)));
            let mut back = of(ni, &vec![7.0; dx.len()]);
            max_pool_vjp(&pool, &at, &tg, &mut back);
            let mut want = vec![0.0; dx.len()];
            (0..outputs).for_each(|o| want[o / small * large + places[o]] = g[o]);
            assert_eq!(back.to_host().unwrap(), want);

            let share = 1.0 / (window[0] * window[1]) as f64;
            average_pool(&pool, &tdx, &mut y);
            let mean = |o: usize| {
                let (first, window) = pixels(o);
                window.iter().map(|p| f64::from(dx[first + p])).sum::<f64>() * share
            };
            close("average_pool", &y.to_host().unwrap(), &(0..outputs).map(mean).collect::<Vec<_>>(), 1e-6);
            let mut back = of(ni, &vec![7.0; dx.len()]);
            average_pool_vjp(&pool, &tg, &mut back);
            let mut want = vec![0.0; dx.len()];
            for (o, &g) in g.iter().enumerate().take(outputs) {
                let (first, window) = pixels(o);
                window.iter().for_each(|p| want[first + p] = share * f64::from(g));
            }
            close("average_pool_vjp", &back.to_host().unwrap(), &want, 1e-6);
        }
    });
}

#[test]
fn what_networks_share_is_spread_and_collected() {
    on_every_device(|device| {
        let mut rng = Rng::new(27);
        for (k, m, n) in [(1, 1, 1), (3, 5, 7), (2, 100, 64)] {
            for (own, store) in [(1, Store::Replace), (1, Store::Add), (k, Store::Replace), (k, Store::Add)] {
                let (x, y) = (random(&[own, m, n], &mut rng), random(&[k, m, n], &mut rng));
                let before = |v: f32| if store == Store::Add { f64::from(v) } else { 0.0 };
                let tx = tensor(device, &[own, m, n], &x);
                let mut ty = tensor(device, &[k, m, n], &y);
                let stride = if own == 1 { 0 } else { m * n };
                spread(tx.matrices(0, stride, m, n), store, &mut ty);
                let want = |i: usize| before(y[i]) + f64::from(x[i % x.len()]);
                close("spread", &ty.to_host().unwrap(), &(0..y.len()).map(want).collect::<Vec<_>>(), 1e-6);
                let mut tx = tx;
                collect(&tensor(device, &[k, m, n], &y), store, &mut tx);
                let mut want: Vec<f64> = x.iter().map(|&x| before(x)).collect();
                y.iter().enumerate().for_each(|(i, y)| want[i % x.len()] += f64::from(*y));
                close("collect", &tx.to_host().unwrap(), &want, 1e-6);
            }
        }
    });
}

#[test]
fn the_loss_of_a_classifier() {
    on_every_device(|device| {
        let mut rng = Rng::new(28);
        for (b, classes) in [(1, 2), (37, 10), (128, 10), (2500, 3), (5, 1000)] {
            let z: Vec<f32> = random(&[b, classes], &mut rng).iter().map(|z| 20.0 * z).collect();
            let labels: Vec<f32> = (0..b).map(|i| (i * 7 % classes) as f32).collect();
            let (mut loss, mut right, mut grad) = (0.0, 0.0, vec![0.0; b * classes]);
            for (i, row) in wide(&z).chunks_exact(classes).enumerate() {
                let (label, most) = (labels[i] as usize, row.iter().fold(f64::MIN, |a, b| a.max(*b)));
                let sum: f64 = row.iter().map(|z| (z - most).exp()).sum();
                loss += sum.ln() + most - row[label];
                right += f64::from(row.iter().position(|z| *z == most) == Some(label));
                let own = |c: usize| ((row[c] - most).exp() / sum - f64::from(c == label)) / b as f64;
                (0..classes).for_each(|c| grad[i * classes + c] = own(c));
            }
            let (tz, tl) = (tensor(device, &[1, b, classes], &z), tensor(device, &[b, 1], &labels));
            let (mut tg, mut totals) = (zeros(device, &[1, b, classes]), tensor(device, &[2], &[10.0, 5.0]));
            softmax_cross_entropy(&tz, &tl, Some(&mut tg), &mut totals);
            let want: Vec<f64> = grad.iter().map(|g| g * b as f64).collect();
            let got: Vec<f32> = tg.to_host().unwrap().iter().map(|g| g * b as f32).collect();
            close("gradient", &got, &want, 1e-5);
            let got = totals.to_host().unwrap();
            close("loss", &got[..1], &[10.0 + loss], 1e-6);
            assert_eq!(f64::from(got[1]), 5.0 + right, "how many are right");
            softmax_cross_entropy(&tz, &tl, None, &mut totals);
            close("loss twice", &totals.to_host().unwrap()[..1], &[10.0 + 2.0 * loss], 1e-6);
        }
    });
}

#[test]
fn views_of_images() {
    on_every_device(|device| {
        let mut rng = Rng::new(29);
        for (b, image) in [(1, [1, 1, 1]), (6, [2, 3, 5]), (50, [3, 32, 32])] {
            let [channels, height, width] = image;
            let x = random(&[b, channels * height * width], &mut rng);
            let moves: Vec<Move> = (0..b)
                .map(|_| Move { up: rng.below(9) as i32 - 4, left: rng.below(9) as i32 - 4, mirror: rng.below(2) == 1 })
                .collect();
            let mut out = zeros(device, &[0]);
            shift_mirror(&tensor(device, &[b, x.len() / b], &x), image, &moves, &mut out).unwrap();
            let want = |i: usize| {
                let (plane, row, col) = (i / (height * width), i / width % height, i % width);
                let Move { up, left, mirror } = moves[plane / channels];
                let (row, col) = (row as i32 + up, col as i32 + left);
                let inside = (0..height as i32).contains(&row) && (0..width as i32).contains(&col);
                let col = if mirror { width as i32 - 1 - col } else { col };
                if inside { x[(plane * height + row as usize) * width + col as usize] } else { 0.0 }
            };
            assert_eq!(out.shape(), [b, x.len() / b]);
            assert_eq!(out.to_host().unwrap(), (0..x.len()).map(want).collect::<Vec<f32>>());
        }
    });
}
