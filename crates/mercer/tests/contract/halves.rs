//! Images in bf16, channel last: what a device makes of them, against plain loops in double precision.

use super::*;
use mercer::compute::halves::{self, HalfNorm, Halves};

on_every_device! {
    images_and_filters_are_laid_out_channel_last,
    convolutions_of_images_in_bf16,
    batch_norms_of_images_in_bf16,
    means_of_planes,
}

impl On {
    /// Random numbers in bf16, on the host and on the device.
    fn halves(&mut self, shape: &[usize]) -> (Vec<f64>, Halves) {
        let bits: Vec<u16> = (0..shape.iter().product()).map(|_| halves::narrow(self.rng.normal() as f32)).collect();
        (
            bits.iter().map(|b| f64::from(halves::widen(*b))).collect(),
            Halves::from_host(self.device, shape, &bits).unwrap(),
        )
    }

    /// Rubbish to be overwritten.
    fn rubbish(&self, shape: &[usize]) -> Halves {
        Halves::from_host(self.device, shape, &vec![0x7fff; shape.iter().product()]).unwrap()
    }
}

fn wide(x: &Halves) -> Vec<f64> {
    x.to_host().unwrap().into_iter().map(|b| f64::from(halves::widen(b))).collect()
}

/// Each number within bf16's rounding of `want`, relative to itself and to the largest.
fn rounded(what: &str, got: &[f64], want: &[f64]) {
    assert_eq!(got.len(), want.len(), "{what}");
    let far = want.iter().fold(0.0f64, |a, b| a.max(b.abs()));
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        assert!((got - want).abs() <= want.abs() / 200.0 + 2e-5 * far, "{what}, {i}: {got} for {want}");
    }
}

fn images_and_filters_are_laid_out_channel_last(device: Device) {
    on(device, 3, |on| {
        for (b, c, plane, padded) in [(3, 3, 20, 8), (2, 16, 9, 16), (1, 11, 1, 16)] {
            let (x, tx) = on.random(&[b, c * plane]);
            let mut out = on.rubbish(&[b, plane, padded]);
            halves::images(&tx, c, &mut out);
            let want = |i: usize| {
                let (image, pixel, channel) = (i / (plane * padded), i / padded % plane, i % padded);
                if channel < c { x[(image * c + channel) * plane + pixel] } else { 0.0 }
            };
            rounded("images", &wide(&out), &(0..b * plane * padded).map(want).collect::<Vec<_>>());
        }
        let shape = Convolution { image: [8, 5, 5], channels: 16, size: 3, stride: 1, before: [1; 2], after: [1; 2] };
        // Filters of three channels, at an odd place.
        let (w, tw) = on.random(&[5 + 16 * 27]);
        let mut out = on.rubbish(&[16, 72]);
        halves::filters(&shape, tw.matrices(5, 0, 16, 27), &mut out);
        let want = |i: usize| {
            let (o, tap, c) = (i / 72, i / 8 % 9, i % 8);
            if c < 3 { w[5 + (o * 3 + c) * 9 + tap] } else { 0.0 }
        };
        rounded("filters", &wide(&out), &(0..16 * 72).map(want).collect::<Vec<_>>());
        let mut grad = on.zeros(&[5 + 16 * 27]);
        halves::filter_gradient(&shape, &out, grad.matrices_mut(5, 0, 1, 16, 27));
        rounded("their gradient", &host(&grad)[5..], &w[5..]);
        assert!(host(&grad)[..5].iter().all(|v| *v == 0.0));
    });
}

fn convolutions_of_images_in_bf16(device: Device) {
    on(device, 5, |on| {
        for (c, channels, side, size, stride, pad) in
            [(8, 16, 6, 3, 1, 1), (16, 8, 7, 3, 2, 1), (16, 24, 8, 1, 2, 0), (64, 64, 8, 3, 1, 1), (8, 8, 5, 3, 1, 0)]
        {
            let (b, height, width) = (4, side, side + 2);
            let shape =
                Convolution { image: [c, height, width], channels, size, stride, before: [pad; 2], after: [pad; 2] };
            let [down, across] = shape.out();
            let (x, tx) = on.halves(&[b, height * width, c]);
            let (w, tw) = on.halves(&[channels, size * size, c]);
            let (g, tg) = on.halves(&[b, down * across, channels]);
            let [mut y, mut dx, mut dw] = [vec![0.0; g.len()], vec![0.0; x.len()], vec![0.0; w.len()]];
            for i in 0..b * down * across * size * size {
                let (tap, at) = (i % (size * size), i / (size * size));
                let (image, r, s) = (at / (down * across), at / across % down, at % across);
                let (row, col) =
                    ((r * stride + tap / size).wrapping_sub(pad), (s * stride + tap % size).wrapping_sub(pad));
                if row >= height || col >= width {
                    continue;
                }
                let from = ((image * height + row) * width + col) * c;
                for o in 0..channels {
                    for l in 0..c {
                        let (to, weight) = (at * channels + o, (o * size * size + tap) * c + l);
                        y[to] += w[weight] * x[from + l];
                        dx[from + l] += w[weight] * g[to];
                        dw[weight] += g[to] * x[from + l];
                    }
                }
            }
            let what = format!("{shape:?}");
            let mut out = on.rubbish(&[b, down * across, channels]);
            halves::convolve(&shape, &tx, &tw, &mut out);
            rounded(&what, &wide(&out), &y);
            let mut out = on.rubbish(&[b, height * width, c]);
            halves::convolve_vjp_input(&shape, &tg, &tw, &mut out);
            rounded(&format!("{what}, input"), &wide(&out), &dx);
            let mut out = on.rubbish(&[channels, size * size, c]);
            halves::convolve_vjp_weights(&shape, &tx, &tg, &mut out);
            rounded(&format!("{what}, weights"), &wide(&out), &dw);
        }
    });
}

fn batch_norms_of_images_in_bf16(device: Device) {
    on(device, 7, |on| {
        // Fewer rows than a block has, groups that do not divide a block, and more rows than all blocks take at once.
        for (rows, c) in [(7, 8), (300, 24), (1000, 16), (700, 2048), (20_000, 64), (3, 512)] {
            let (mut z, mut tz) = on.halves(&[rows, c]);
            // A channel far from zero.
            let bits: Vec<u16> = z
                .iter()
                .enumerate()
                .map(|(i, v)| halves::narrow((v + 40.0 * f64::from(u8::from(i % c == 1))) as f32))
                .collect();
            tz.copy_from_host(&bits).unwrap();
            z = wide(&tz);
            let n = rows as f64;
            let mean: Vec<f64> = (0..c).map(|c0| z.iter().skip(c0).step_by(c).sum::<f64>() / n).collect();
            let variance: Vec<f64> = (0..c)
                .map(|c0| z.iter().skip(c0).step_by(c).map(|v| (v - mean[c0]).powi(2)).sum::<f64>() / n)
                .collect();
            let mut statistics = on.zeros(&[1, 2, c]);
            halves::statistics(&tz, &mut statistics);
            let found = host(&statistics);
            for c0 in 0..c {
                assert!((found[c0] - mean[c0]).abs() < 1e-5 * (1.0 + mean[c0].abs()), "{rows} {c0}: {}", found[c0]);
                assert!(
                    (found[c + c0] - variance[c0]).abs() < 2e-5 * (1.0 + variance[c0]),
                    "{rows} {c0}: {}",
                    found[c + c0]
                );
            }
            let (affine, taffine) = on.random(&[2 * c]);
            let (plus, tplus) = on.halves(&[rows, c]);
            let (g, tg) = on.halves(&[rows, c]);
            let (more, tmore) = on.halves(&[rows, c]);
            let hat = |i: usize| (z[i] - mean[i % c]) / (variance[i % c] + f64::from(EPSILON)).sqrt();
            for (relu, sum, two) in [
                (true, false, false),
                (true, true, false),
                (true, true, true),
                (false, false, true),
                (false, true, false),
            ] {
                let what = format!("{rows} rows of {c}: {relu} {sum} {two}");
                let norm = HalfNorm { z: &tz, statistics: &statistics, affine: taffine.matrices(0, 0, 2, c), relu };
                let value = |i: usize| affine[i % c] * hat(i) + affine[c + i % c] + if sum { plus[i] } else { 0.0 };
                let mut y = on.rubbish(&[rows, c]);
                halves::batch_norm(norm, sum.then_some(&tplus), &mut y);
                let want: Vec<f64> = (0..rows * c).map(|i| if relu { value(i).max(0.0) } else { value(i) }).collect();
                // Rounding of γ s z against β − γ s μ where the mean is large.
                let got = wide(&y);
                for (i, (got, want)) in got.iter().zip(&want).enumerate() {
                    assert!((got - want).abs() < want.abs() / 200.0 + 1e-3, "{what}, {i}: {got} for {want}");
                }
                // Behind the ReLU as the device has it, so that no sign is in doubt.
                let open = |i: usize| !relu || if sum { got[i] > 0.0 } else { value(i) > 1e-4 };
                let doubt = |i: usize| relu && !sum && value(i).abs() < 1e-4;
                let behind: Vec<f64> = (0..rows * c)
                    .map(|i| {
                        let sum = g[i] + if two { more[i] } else { 0.0 };
                        if open(i) { f64::from(halves::widen(halves::narrow(sum as f32))) } else { 0.0 }
                    })
                    .collect();
                let doubts = (0..rows * c).filter(|i| doubt(*i)).count() as f64;
                let (mut product, mut total) = (vec![0.0; c], vec![0.0; c]);
                for (i, g) in behind.iter().enumerate() {
                    product[i % c] += g * hat(i);
                    total[i % c] += g;
                }
                let dz = |i: usize| {
                    let s = 1.0 / (variance[i % c] + f64::from(EPSILON)).sqrt();
                    affine[i % c] * s * (behind[i] - total[i % c] / n - hat(i) * product[i % c] / n)
                };
                let (mut gradient, mut grad, mut out) = (tg.clone(), on.zeros(&[3 + 2 * c]), on.rubbish(&[rows, c]));
                let added = sum.then_some((&y, &mut out));
                let place = grad.matrices_mut(3, 0, 1, 2, c);
                halves::batch_norm_vjp(norm, &mut gradient, two.then_some(&tmore), place, added);
                let found = host(&grad)[3..].to_vec();
                let near = 1e-4 * n.sqrt() + 10.0 * doubts;
                for c0 in 0..c {
                    assert!(
                        (found[c0] - product[c0]).abs() < near + 1e-4 * product[c0].abs(),
                        "{what}: {} {}",
                        found[c0],
                        product[c0]
                    );
                    assert!(
                        (found[c + c0] - total[c0]).abs() < near + 1e-4 * total[c0].abs(),
                        "{what}: {} {}",
                        found[c + c0],
                        total[c0]
                    );
                }
                if sum {
                    rounded(&format!("{what}, what was added"), &wide(&gradient), &behind);
                }
                let found = wide(if sum { &out } else { &gradient });
                for i in (0..rows * c).filter(|i| !doubt(*i)) {
                    let want = dz(i);
                    assert!(
                        (found[i] - want).abs() < want.abs() / 150.0 + 2e-3 + 10.0 * doubts / n,
                        "{what}, {i}: {} for {want}",
                        found[i]
                    );
                }
            }
        }
    });
}

fn means_of_planes(device: Device) {
    on(device, 9, |on| {
        for (b, plane, c) in [(5, 16, 24), (3, 1, 8), (2, 64, 512)] {
            let (x, tx) = on.halves(&[b, plane, c]);
            let mut y = on.zeros(&[1, b, c]);
            halves::means(&tx, plane, &mut y);
            let mean = |i: usize| (0..plane).map(|p| x[(i / c * plane + p) * c + i % c]).sum::<f64>() / plane as f64;
            close("means", &y, mean, 1e-6);
            let (g, tg) = on.random(&[1, b, c]);
            let mut dx = on.rubbish(&[b, plane, c]);
            halves::means_vjp(&tg, plane, &mut dx);
            let want: Vec<f64> = (0..b * plane * c).map(|i| g[i / (plane * c) * c + i % c] / plane as f64).collect();
            rounded("their gradient", &wide(&dx), &want);
        }
    });
}
