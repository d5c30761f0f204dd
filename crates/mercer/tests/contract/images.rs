//! The primitives of networks that see images.

use super::*;

on_every_device! {
    a_result_of_each_network_is_not_written_into_one_place,
    convolutions_and_their_adjoints,
    patches_are_the_pixels_that_weights_see,
    channels_have_biases_activations_and_sums,
    activations_without_a_bias,
    batch_norms_and_their_derivatives,
    averages_follow_what_is_measured,
    pooling,
    what_networks_share_is_spread_and_collected,
    the_loss_of_a_classifier,
    views_of_images,
}

/// cuDNN may take Winograd's transforms, which round about ten times as coarsely as plain sums do.
const CONVOLVED: f64 = 5e-5;

/// `[k, m, n]` inside a flat buffer as parameters are: 3 numbers before each matrix, 2 after it.
fn flat(on: &On, k: usize, size: usize, data: &[f64]) -> Tensor {
    let padded = data.chunks_exact(size).flat_map(|one| [&[9.0; 3][..], one, &[9.0; 2]].concat());
    on.tensor(&[k * (size + 5)], &padded.collect::<Vec<f64>>())
}

/// The matrices of [`flat`], checking that nothing else was written.
fn unflat(k: usize, size: usize, t: &Tensor) -> Vec<f64> {
    let data = host(t);
    assert!(data.iter().enumerate().all(|(i, v)| (3..3 + size).contains(&(i % (size + 5))) || *v == 9.0));
    data.chunks_exact(size + 5).take(k).flat_map(|one| one[3..3 + size].to_vec()).collect()
}

/// A place for the matrices `[b, n]` of k networks, or for their sum.
fn shared_or_own(t: &mut Tensor, share: bool, [k, b, n]: [usize; 3]) -> StackMut<'_> {
    if share { t.matrices_mut(0, 0, 1, b, n).sum_of(k) } else { t.matrices_mut(0, b * n, k, b, n) }
}

/// Threads write the results of different networks at the same time, so two networks must never share one.
fn a_result_of_each_network_is_not_written_into_one_place(device: Device) {
    on(device, 30, |on| {
        let (k, b, c, plane) = (2, 3, 4, 6);
        let n = c * plane;
        let refused = |what: &str, f: &mut dyn FnMut()| {
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).expect_err(what);
            let message = panicked.downcast::<String>().unwrap();
            assert!(message.contains(what) || message.contains("overlap"), "{what}: {message}");
        };
        let ((_, mut g), (_, x), (_, affine)) = (on.random(&[k, b, n]), on.random(&[k, b, n]), on.random(&[k, 2, c]));
        let mut out = on.zeros(&[k * n]);
        refused("a stack of stride 0", &mut || {
            out.matrices_mut(0, 0, k, 1, c);
        });
        refused("activation_vjp", &mut || {
            activation_vjp(&mut g, None, Some(out.matrices_mut(0, 0, 1, 1, n).sum_of(k)))
        });
        refused("channel_sums", &mut || channel_sums(&g, out.matrices_mut(0, 0, 1, 1, c).sum_of(k)));
        let norm =
            Normalized { x: x.stack(), statistics: affine.stack(), affine: Some(affine.stack()), of_batch: true };
        refused("batch_norm_vjp", &mut || batch_norm_vjp(norm, &g, out.matrices_mut(0, 0, 1, 2, c).sum_of(k), None));
        refused("running_average", &mut || running_average(0.1, &affine, out.matrices_mut(0, 0, 1, 2, c).sum_of(k)));
        let shape = Convolution { image: [c, 2, 3], channels: c, size: 1, stride: 1, before: [0; 2], after: [0; 2] };
        let filters =
            |out: &mut Tensor| conv2d_vjp_weights(&shape, x.stack(), &g, out.matrices_mut(0, 0, 1, c, c).sum_of(k));
        refused("conv2d_vjp_weights", &mut || filters(&mut out));
        assert!(host(&out).iter().all(|v| *v == 0.0), "nothing was written");
    });
}

/// Calls `f(y, w, x)` with the places of the three factors of every term of `y[o] = Σ w[o, c, u, v] x[c, …]`, one image.
fn for_every_term(shape: &Convolution, mut f: impl FnMut(usize, usize, usize)) {
    let ([channels, height, width], [down, across]) = (shape.image, shape.out());
    let (size, patch) = (shape.size, shape.patch());
    for y in 0..shape.channels * down * across {
        let (o, r, s) = (y / (down * across), y / across % down, y % across);
        for tap in 0..patch {
            let (c, u, v) = (tap / (size * size), tap / size % size, tap % size);
            let [above, left] = shape.before;
            let (row, col) = ((r * shape.stride + u).wrapping_sub(above), (s * shape.stride + v).wrapping_sub(left));
            if c < channels && row < height && col < width {
                f(y, o * patch + tap, (c * height + row) * width + col);
            }
        }
    }
}

fn convolutions() -> Vec<(usize, usize, Convolution)> {
    let of = |image, channels, size, stride, before, after| Convolution {
        image,
        channels,
        size,
        stride,
        before: [before; 2],
        after: [after; 2],
    };
    vec![
        (1, 4, of([3, 8, 8], 16, 3, 1, 1, 1)),
        (2, 3, of([2, 7, 5], 3, 3, 2, 1, 1)),
        (3, 2, of([4, 6, 6], 5, 2, 1, 0, 1)),
        (2, 5, of([5, 5, 4], 8, 1, 2, 0, 0)),
        (1, 3, of([1, 9, 9], 4, 5, 3, 0, 0)),
        (1, 1, of([2, 3, 3], 2, 3, 1, 1, 1)),
        (1, 32, of([16, 16, 16], 16, 3, 1, 1, 1)),
        (2, 8, of([16, 8, 8], 32, 3, 2, 1, 1)),
        // More images than blocks of a batch, a filter larger than the image, and several tiles of an image.
        (2, 20, of([1, 3, 3], 2, 5, 1, 2, 2)),
        (1, 2, of([40, 24, 24], 2, 3, 1, 1, 1)),
        // Zeros that differ above, below, to the left and to the right.
        (2, 3, Convolution { before: [0, 1], after: [1, 1], ..of([3, 8, 7], 4, 3, 2, 0, 0) }),
        (2, 2, Convolution { before: [2, 0], after: [0, 3], ..of([2, 5, 6], 3, 4, 3, 0, 0) }),
    ]
}

/// The largest batch gives the same bits every time.
fn convolutions_and_their_adjoints(device: Device) {
    on(device, 21, |on| {
        for (k, b, shape) in convolutions() {
            for share in [false, true] {
                let pixels: usize = shape.image.iter().product();
                let (n, size) =
                    (shape.channels * shape.out().iter().product::<usize>(), shape.channels * shape.patch());
                let own = if share { 1 } else { k };
                let ((x, mut tx), (w, _), (g, tg)) =
                    (on.random(&[own, b, pixels]), on.random(&[k, size]), on.random(&[k, b, n]));
                // The three sums at once, term by term; a shared input has one adjoint, the sum over the networks.
                let (mut y, mut dx, mut dw) = (vec![0.0; k * b * n], vec![0.0; x.len()], vec![0.0; w.len()]);
                for (j, i) in (0..k).flat_map(|j| (0..b).map(move |i| (j, i))) {
                    let (y0, w0, x0) = ((j * b + i) * n, j * size, (j % own * b + i) * pixels);
                    for_every_term(&shape, |at, tap, pixel| {
                        let (x_, w_, g_) = (x[x0 + pixel], w[w0 + tap], g[y0 + at]);
                        y[y0 + at] += x_ * w_;
                        dx[x0 + pixel] += w_ * g_;
                        dw[w0 + tap] += x_ * g_;
                    });
                }
                let what = format!("{k} networks, {b} images, {shape:?}, shared {share}");
                if share {
                    tx.reshape(&[b, pixels]).unwrap();
                }
                let tw = flat(on, k, size, &w);
                let filters = tw.matrices(3, size + 5, shape.channels, shape.patch());
                let run = || {
                    let (mut ty, mut sum) = (on.zeros(&[k, b, n]), tg.clone());
                    for (store, out) in [(Store::Replace, &mut ty), (Store::Add, &mut sum)] {
                        conv2d(&shape, tx.stack(), filters, None, Activation::Identity, store, out, None);
                    }
                    let mut tdx = on.tensor(&[own, b, pixels], &vec![7.0; x.len()]);
                    conv2d_vjp_input(&shape, &tg, filters, shared_or_own(&mut tdx, share, [k, b, pixels]));
                    let mut tdw = flat(on, k, size, &vec![7.0; k * size]);
                    let to = tdw.matrices_mut(3, size + 5, k, shape.channels, shape.patch());
                    conv2d_vjp_weights(&shape, tx.stack(), &tg, to);
                    [host(&ty), host(&sum), host(&tdx), unflat(k, size, &tdw)]
                };
                let found = run();
                near(&what, &found[0], at(&y), CONVOLVED);
                near(&what, &found[1], |i| y[i] + g[i], CONVOLVED);
                near(&what, &found[2], at(&dx), CONVOLVED);
                near(&what, &found[3], at(&dw), CONVOLVED);
                assert!(b < 32 || found == run(), "{what}");
            }
        }
    });
}

/// Of the second half of some images, as the patches of a few points are taken.
fn patches_are_the_pixels_that_weights_see(device: Device) {
    on(device, 22, |on| {
        for (_, b, shape) in convolutions() {
            let (pixels, plane, patch) =
                (shape.image.iter().product::<usize>(), shape.out().iter().product::<usize>(), shape.patch());
            let (x, tx) = on.random(&[2 * b, pixels]);
            let mut want = vec![0.0; b * patch * plane];
            let one = Convolution { channels: 1, ..shape };
            for i in 0..b {
                for_every_term(&one, |at, tap, pixel| {
                    want[(i * patch + tap) * plane + at] = x[(b + i) * pixels + pixel];
                });
            }
            let mut found = on.tensor(&[b, patch, plane], &vec![7.0; want.len()]);
            patches(&shape, tx.matrices(b * pixels, 0, b, pixels), &mut found);
            near(&format!("{b} images, {shape:?}"), &host(&found), at(&want), 1e-6);
        }
    });
}

fn channels_have_biases_activations_and_sums(device: Device) {
    on(device, 23, |on| {
        let shape = Convolution { image: [2, 6, 5], channels: 4, size: 1, stride: 1, before: [0; 2], after: [0; 2] };
        let (k, b, c, plane) = (2, 3, 4, 30);
        let n = c * plane;
        for phi in Activation::ALL {
            let ((x, tx), (w, tw)) = (on.random(&[k, b, 60]), on.random(&[k, c, 2]));
            let ((bias, _), (g, mut t)) = (on.random(&[k, c]), on.random(&[k, b, n]));
            let tb = flat(on, k, c, &bias);
            let biases = tb.matrices(3, c + 5, 1, c);
            let (mut y, mut slope) = (on.zeros(&[k, b, n]), on.zeros(&[k, b, n]));
            conv2d(&shape, tx.stack(), tw.stack(), Some(biases), phi, Store::Replace, &mut y, Some(&mut slope));
            let channel = |i: usize| i / (b * n) * c + i % n / plane;
            let term = |i: usize, d: usize| w[channel(i) * 2 + d] * x[i / n * 60 + d * 30 + i % plane];
            let z = |i: usize| term(i, 0) + term(i, 1) + bias[channel(i)];
            activated(phi, [&y, &slope], n, z, true, CONVOLVED);
            let s = host(&slope);
            bias_slope(&mut t, Some(biases), Some(&slope));
            close("bias_slope", &t, |i| (g[i] + bias[channel(i)]) * s[i], 1e-6);
        }
        for (k, b, c, plane) in [(1, 2, 3, 1), (2, 300, 5, 1), (2, 7, 3, 15), (1, 40, 3, 256), (3, 33, 16, 64)] {
            let (g, tg) = on.random(&[k, b, c * plane]);
            let mut sums = flat(on, k, c, &vec![0.0; k * c]);
            channel_sums(&tg, sums.matrices_mut(3, c + 5, k, 1, c));
            let mut want = vec![0.0; k * c];
            g.iter().enumerate().for_each(|(i, g)| want[i / (b * c * plane) * c + i / plane % c] += g);
            near("channel_sums", &unflat(k, c, &sums), at(&want), 1e-5);
        }
    });
}

fn activations_without_a_bias(device: Device) {
    on(device, 30, |on| {
        for phi in Activation::ALL {
            for (k, b, n) in [(1, 1, 3), (2, 5, 6), (3, 64, 100)] {
                let (z, mut y) = on.random(&[k, b, n]);
                let (mut alone, mut slope) = (y.clone(), on.zeros(&[k, b, n]));
                activation(phi, &mut y, Some(&mut slope));
                activated(phi, [&y, &slope], n, at(&z), false, 3e-6);
                activation(phi, &mut alone, None);
                assert_eq!(host(&alone), host(&y));
            }
        }
    });
}

fn batch_norms_and_their_derivatives(device: Device) {
    let shapes = [(1, 2, 3, 1), (2, 300, 5, 1), (2, 7, 3, 15), (1, 40, 3, 256), (3, 33, 16, 64), (2, 1, 2, 12)];
    on(device, 24, |on| {
        for (k, b, c, plane) in shapes {
            for (share, batch) in [(false, true), (true, true), (false, false), (true, false)] {
                let (n, size) = (c * plane, (b * plane) as f64);
                let what = format!("{k} networks, {b} rows, {c} channels of {plane}, shared {share}, of batch {batch}");
                let (own, stride) = if share { (1, 0) } else { (k, b * n) };
                // Far from zero, so that a variance by differences of squares would fail.
                let far = |x: f64| f64::from((100.0 + 3.0 * x) as f32);
                let x: Vec<f64> = on.random(&[own, b, n]).0.into_iter().map(far).collect();
                let tx = on.tensor(&[own, b, n], &x);
                let ((dx, tdx), (g, tg)) = (on.random(&[own, b, n]), on.random(&[k, b, n]));
                let ((affine, _), (daffine, _)) = (on.random(&[k, 2, c]), on.random(&[k, 2, c]));
                let [x, dx] = [x, dx].map(|x| x.into_iter().cycle().take(k * b * n).collect::<Vec<f64>>());
                let [tx, tdx] = [&tx, &tdx].map(|t| t.matrices(0, stride, b, n));

                // Where `[k, 2, c]` has the mean or γ of element i; its variance or β is c further.
                let place = |i: usize| i / (b * n) * 2 * c + i / plane % c;
                let mut statistics = vec![0.0; 2 * k * c];
                x.iter().enumerate().for_each(|(i, x)| statistics[place(i)] += x / size);
                for (i, x) in x.iter().enumerate() {
                    statistics[place(i) + c] += (x - statistics[place(i)]).powi(2) / size;
                }
                let mut ts = on.zeros(&[k, 2, c]);
                batch_statistics(tx, &mut ts);
                close(&what, &ts, at(&statistics), 1e-6);
                let variances = |s: &[f64]| s.chunks_exact(2 * c).flat_map(|s| s[c..].to_vec()).collect::<Vec<f64>>();
                near(&what, &variances(&host(&ts)), at(&variances(&statistics)), 2e-5);
                if !batch {
                    // Stored ones: what the batch has, and more.
                    let more = |i: usize| [0.5, 2.0][i / c % 2];
                    statistics.iter_mut().enumerate().for_each(|(i, s)| *s += more(i));
                }

                let inverse = |i: usize| 1.0 / (statistics[place(i) + c] + f64::from(EPSILON)).sqrt();
                let hat = |i: usize| (x[i] - statistics[place(i)]) * inverse(i);
                // `(Σ g x̂, Σ g)` of every channel.
                let sums = |g: &[f64]| {
                    let mut sums = vec![0.0; 2 * k * c];
                    for (i, g) in g.iter().enumerate() {
                        sums[place(i)] += g * hat(i);
                        sums[place(i) + c] += g;
                    }
                    sums
                };
                // `γ s (g − mean g − x̂ mean(g x̂))`, without the means where the statistics are not those of the batch.
                let centred = |g: &[f64]| -> Vec<f64> {
                    let (sums, size) = (sums(g), if batch { size } else { f64::INFINITY });
                    let mean = |i: usize| sums[place(i) + c] / size + hat(i) * sums[place(i)] / size;
                    (0..g.len()).map(|i| affine[place(i)] * inverse(i) * (g[i] - mean(i))).collect()
                };
                let [ts, ta, td] = [&statistics, &affine, &daffine].map(|a| flat(on, k, 2 * c, a));
                let [s, a, d] = [&ts, &ta, &td].map(|t| t.matrices(3, 2 * c + 5, 2, c));
                let mut y = on.zeros(&[k, b, n]);
                let norm = Normalized { x: tx, statistics: s, affine: Some(a), of_batch: batch };
                batch_norm(norm, &mut y);
                close(&what, &y, |i| affine[place(i)] * hat(i) + affine[place(i) + c], 2e-5);

                // Without γ and β: what a layer norm takes.
                batch_norm(Normalized { affine: None, ..norm }, &mut y);
                close(&what, &y, hat, 2e-5);

                let [mut grad, mut alone] = [0, 1].map(|_| flat(on, k, 2 * c, &vec![0.0; 2 * k * c]));
                let mut back = on.zeros(&[own, b, n]);
                let to = shared_or_own(&mut back, own < k, [k, b, n]);
                batch_norm_vjp(norm, &tg, grad.matrices_mut(3, 2 * c + 5, k, 2, c), Some(to));
                near(&what, &unflat(k, 2 * c, &grad), at(&sums(&g)), 3e-5);
                let mut want = vec![0.0; own * b * n];
                centred(&g).iter().enumerate().for_each(|(i, v)| want[i % (own * b * n)] += v);
                close(&what, &back, at(&want), 3e-5);
                batch_norm_vjp(norm, &tg, alone.matrices_mut(3, 2 * c + 5, k, 2, c), None);
                assert_eq!(host(&alone), host(&grad), "{what}");

                let mut bare = on.zeros(&[own, b, n]);
                let to = shared_or_own(&mut bare, own < k, [k, b, n]);
                let plain = Normalized { affine: None, ..norm };
                batch_norm_vjp(plain, &tg, alone.matrices_mut(3, 2 * c + 5, k, 2, c), Some(to));
                let mut want = vec![0.0; own * b * n];
                let without_gamma = |(i, v): (usize, &f64)| want[i % (own * b * n)] += v / affine[place(i)];
                centred(&g).iter().enumerate().for_each(without_gamma);
                close(&what, &bare, at(&want), 3e-5);

                let centred = centred(&dx);
                let mut t = on.zeros(&[k, b, n]);
                batch_norm_jvp(plain, [Some(tdx), None], &mut t);
                close(&what, &t, |i| centred[i] / affine[place(i)], 3e-5);
                for (with_x, with_affine) in [(true, true), (true, false), (false, true)] {
                    let mut t = on.zeros(&[k, b, n]);
                    batch_norm_jvp(norm, [with_x.then_some(tdx), with_affine.then_some(d)], &mut t);
                    let tangent = |i: usize| daffine[place(i)] * hat(i) + daffine[place(i) + c];
                    let want = |i: usize| f64::from(with_x) * centred[i] + f64::from(with_affine) * tangent(i);
                    close(&what, &t, want, 3e-5);
                }
            }
        }
    });
}

fn averages_follow_what_is_measured(device: Device) {
    on(device, 25, |on| {
        for (k, n, own) in [(1, 1, 1), (3, 7, 1), (3, 7, 3), (2, 300, 1), (2, 300, 2)] {
            let ((x, tx), (y, _)) = (on.random(&[own, n]), on.random(&[k, n]));
            let mut ty = flat(on, k, n, &y);
            running_average(0.1, &tx, ty.matrices_mut(3, n + 5, k, 1, n));
            near("running_average", &unflat(k, n, &ty), |i| 0.9 * y[i] + 0.1 * x[i % (own * n)], 1e-6);
        }
    });
}

fn pooling(device: Device) {
    on(device, 26, |on| {
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
            let (mut x, _) = on.random(&[k, b, ni]);
            // Equals, and a NaN, which counts as the largest.
            x.iter_mut().step_by(3).for_each(|x| *x = 1.0);
            x[1] = f64::NAN;
            let tx = on.tensor(&[k, b, ni], &x);
            let ((dx, tdx), (g, tg)) = (on.random(&[k, b, ni]), on.random(&[k, b, no]));
            let pixels = |o: usize| {
                let (plane, r, s) = (o / small, o % small / across, o % across);
                let at = move |e: usize| (r * window[0] + e / window[1]) * width + s * window[1] + e % window[1];
                (plane * large, (0..window[0] * window[1]).map(at).collect::<Vec<usize>>())
            };
            let largest = |o: usize| {
                let (first, window) = pixels(o);
                let value = |p: usize| if x[first + p].is_nan() { f64::INFINITY } else { x[first + p] };
                window.into_iter().reduce(|a, p| if value(p) > value(a) { p } else { a }).unwrap()
            };
            let outputs = k * b * no;
            let places: Vec<usize> = (0..outputs).map(largest).collect();
            let (mut y, mut taken_at) = (on.zeros(&[k, b, no]), on.zeros(&[k, b, no]));
            max_pool(&pool, &tx, &mut y, &mut taken_at);
            assert_eq!(host(&taken_at), places.iter().map(|&p| p as f64).collect::<Vec<f64>>());
            let taken = |x: &[f64]| (0..outputs).map(|o| x[o / small * large + places[o]]).collect::<Vec<f64>>();
            let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
            assert!(host(&y).iter().zip(&taken(&x)).all(same));
            max_pool_jvp(&pool, &taken_at, &tdx, &mut y);
            assert_eq!(host(&y), taken(&dx));
            let sevens = on.tensor(&[k, b, ni], &vec![7.0; dx.len()]);
            let mut back = sevens.clone();
            max_pool_vjp(&pool, &taken_at, &tg, &mut back);
            let mut want = vec![0.0; dx.len()];
            (0..outputs).for_each(|o| want[o / small * large + places[o]] = g[o]);
            assert_eq!(host(&back), want);

            let share = 1.0 / (window[0] * window[1]) as f64;
            average_pool(&pool, &tdx, &mut y);
            let mean = |o: usize| {
                let (first, window) = pixels(o);
                window.iter().map(|p| dx[first + p]).sum::<f64>() * share
            };
            close("average_pool", &y, mean, 1e-6);
            let mut back = sevens;
            average_pool_vjp(&pool, &tg, &mut back);
            let mut want = vec![0.0; dx.len()];
            for (o, &g) in g.iter().enumerate() {
                let (first, window) = pixels(o);
                window.iter().for_each(|p| want[first + p] = share * g);
            }
            close("average_pool_vjp", &back, at(&want), 1e-6);
        }
    });
}

fn what_networks_share_is_spread_and_collected(device: Device) {
    on(device, 27, |on| {
        for (k, m, n) in [(1, 1, 1), (3, 5, 7), (2, 100, 64)] {
            for (own, store) in [(1, Store::Replace), (1, Store::Add), (k, Store::Replace), (k, Store::Add)] {
                let ((x, mut tx), (y, ty)) = (on.random(&[own, m, n]), on.random(&[k, m, n]));
                let before = |v: f64| if store == Store::Add { v } else { 0.0 };
                let mut out = ty.clone();
                spread(tx.matrices(0, if own == 1 { 0 } else { m * n }, m, n), store, &mut out);
                close("spread", &out, |i| before(y[i]) + x[i % x.len()], 1e-6);
                collect(&ty, store, &mut tx);
                let mut want: Vec<f64> = x.iter().map(|&x| before(x)).collect();
                y.iter().enumerate().for_each(|(i, y)| want[i % x.len()] += y);
                close("collect", &tx, at(&want), 1e-6);
            }
        }
    });
}

fn the_loss_of_a_classifier(device: Device) {
    on(device, 28, |on| {
        for (b, classes) in [(1, 2), (37, 10), (128, 10), (2500, 3), (5, 1000)] {
            let z: Vec<f64> = on.random(&[b, classes]).0.iter().map(|z| f64::from((20.0 * z) as f32)).collect();
            let labels: Vec<f64> = (0..b).map(|i| (i * 7 % classes) as f64).collect();
            // The gradient is compared in units of 1/b.
            let (mut loss, mut right, mut grad) = (0.0, 0.0, vec![0.0; b * classes]);
            for (i, row) in z.chunks_exact(classes).enumerate() {
                let (label, most) = (labels[i] as usize, row.iter().fold(f64::MIN, |a, b| a.max(*b)));
                let sum: f64 = row.iter().map(|z| (z - most).exp()).sum();
                loss += sum.ln() + most - row[label];
                right += f64::from(row.iter().position(|z| *z == most) == Some(label));
                let own = |c: usize| (row[c] - most).exp() / sum - f64::from(c == label);
                (0..classes).for_each(|c| grad[i * classes + c] = own(c));
            }
            let (tz, tl) = (on.tensor(&[1, b, classes], &z), on.tensor(&[b, 1], &labels));
            let (mut tg, mut totals) = (on.zeros(&[1, b, classes]), on.tensor(&[2], &[10.0, 5.0]));
            softmax_cross_entropy(&tz, &tl, Some(&mut tg), &mut totals);
            let got: Vec<f64> = host(&tg).iter().map(|g| g * b as f64).collect();
            near("gradient", &got, at(&grad), 1e-5);
            let got = host(&totals);
            near("loss", &got[..1], |_| 10.0 + loss, 1e-6);
            assert_eq!(got[1], 5.0 + right, "how many are right");
            softmax_cross_entropy(&tz, &tl, None, &mut totals);
            near("loss twice", &host(&totals)[..1], |_| 10.0 + 2.0 * loss, 1e-6);
        }
    });
}

fn views_of_images(device: Device) {
    on(device, 29, |on| {
        for (b, image) in [(1, [1, 1, 1]), (6, [2, 3, 5]), (50, [3, 32, 32])] {
            let [channels, height, width] = image;
            let (x, tx) = on.random(&[b, channels * height * width]);
            let mut by = || on.rng.below(9) as i32 - 4;
            let moves: Vec<Move> = (0..b).map(|i| Move { up: by(), left: by(), mirror: i % 2 == 1 }).collect();
            let mut out = on.zeros(&[0]);
            shift_mirror(&tx, image, &moves, &mut out).unwrap();
            let want = |i: usize| {
                let (plane, row, col) = (i / (height * width), i / width % height, i % width);
                let Move { up, left, mirror } = moves[plane / channels];
                let (row, col) = (row as i32 + up, col as i32 + left);
                let inside = (0..height as i32).contains(&row) && (0..width as i32).contains(&col);
                let col = if mirror { width as i32 - 1 - col } else { col };
                if inside { x[(plane * height + row as usize) * width + col as usize] } else { 0.0 }
            };
            assert_eq!(out.shape(), [b, x.len() / b]);
            assert_eq!(host(&out), (0..x.len()).map(want).collect::<Vec<f64>>());
        }
    });
}
