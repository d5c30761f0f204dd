//! Hidden units that are kept before their activation, and one unit on top of them, against sums in double precision.

use super::*;

on_every_device! {
    hidden_units_that_are_kept_before_their_activation,
}

fn hidden_units_that_are_kept_before_their_activation(device: Device) {
    // Rows of single numbers and of fours; several chunks of rows; a half of a sincos layer that ends within a four. With TF32 some GPUs
    // store the gradients of the last two transposed.
    let shapes = [(1, 1, 1), (3, 37, 8), (2, 700, 129), (2, 90, 132), (2, 132, 260), (2, 2500, 256)];
    on(device, 15, |on| {
        for phi in Activation::ALL {
            // Every formula is compiled for single numbers and values that are rounded to TF32 next, some for fours and full accuracy.
            let all = matches!(phi, Activation::SinCos | Activation::Relu | Activation::Gelu);
            for (case, (k, b, n)) in shapes.into_iter().enumerate().take(if all { shapes.len() } else { 3 }) {
                for math in if all { &[Math::Tf32, Math::F32][..] } else { &[Math::Tf32] } {
                    device.with_math(*math, || one_shape(on, phi, [k, b, n], case != 1));
                }
            }
        }
    });
}

/// `k` networks with `n` units at `b` points; vectors lie at odd places of a flat tensor.
fn one_shape(on: &mut On, phi: Activation, [k, b, n]: [usize; 3], has_bias: bool) {
    let (total, stride) = (k * b * n, 2 * n + 5);
    let ((z, tz), (numbers, flat)) = (on.random(&[k, b, n]), on.random(&[k * stride]));
    let (network, unit) = (|i: usize| i / (b * n), |i: usize| i % n);
    let bias = |j: usize, c: usize| if has_bias { numbers[j * stride + 1 + c] } else { 0.0 };
    let weight = |j: usize, c: usize| numbers[j * stride + n + 3 + c];
    let top = |j: usize| if has_bias { numbers[j * stride + 2 * n + 3] } else { 0.0 };
    // Kinks lie at zero, where no random number is.
    let both = |i: usize| phi.at(f64::from((z[i] + bias(network(i), unit(i))) as f32), unit(i) >= n / 2);
    let at_units: Vec<(f64, f64)> = (0..total).map(both).collect();
    let size = at_units.iter().fold(1.0f64, |s, (value, slope)| s.max(value.abs()).max(slope.abs()));
    let what = |name: &str| format!("{phi:?} {name} of [{k}, {b}, {n}]");
    let biases = has_bias.then(|| flat.matrices(1, stride, 1, n));
    let hidden = Hidden { z: &tz, bias: biases, phi };

    let mut y = on.zeros(&[0]);
    hidden.values(&mut y).unwrap();
    close(&what("values"), &y, |i| at_units[i].0, 1e-5);

    // The gradient by the units, in the order of the units.
    let in_order = |dz: &Tensor| -> Vec<f64> {
        let numbers = host(dz);
        let turned = dz.shape() != [k, b, n];
        assert!(!turned || dz.shape() == [k, n, b]);
        let at = |i: usize| if turned { network(i) * b * n + unit(i) * b + i / n % b } else { i };
        (0..total).map(|i| numbers[at(i)]).collect()
    };
    let ((g, tg), mut dz) = (on.random(&[k, b, n]), on.zeros(&[0]));
    let (kept, mut grad) = on.random(&[k * stride]);
    hidden.vjp(&tg, &mut dz, Some(grad.matrices_mut(2, stride, k, 1, n))).unwrap();
    near(&what("gradient"), &in_order(&dz), |i| g[i] * at_units[i].1, 1e-5);
    let mut sums = kept.clone();
    (0..k).for_each(|j| sums[j * stride + 2..][..n].fill(0.0));
    (0..total).for_each(|i| sums[network(i) * stride + 2 + unit(i)] += g[i] * at_units[i].1);
    close(&what("bias gradient"), &grad, at(&sums), 2e-5);
    let mut without = on.zeros(&[0]);
    hidden.vjp(&tg, &mut without, None).unwrap();
    assert_eq!(host(&without), host(&dz), "{}", what("gradient without a bias"));
    let rows = hidden.gradient(&dz);
    assert_eq!([rows.rows(), rows.cols()], [b, n], "{}", what("gradient"));

    let mut out = on.zeros(&[0]);
    let (w, above) = (flat.matrices(n + 3, stride, n, 1), has_bias.then(|| flat.matrices(2 * n + 3, stride, 1, 1)));
    hidden.head(w, above, &mut out).unwrap();
    let mut want: Vec<f64> = (0..k * b).map(|r| top(r / b)).collect();
    (0..total).for_each(|i| want[i / n] += at_units[i].0 * weight(network(i), unit(i)));
    assert_eq!(out.shape(), [k, b, 1]);
    near(&what("head"), &host(&out), at(&want), 1e-5 * size);

    let (flow, tf) = on.random(&[k, b, 1]);
    let mut grad = on.tensor(&[k * stride], &kept);
    let bias = has_bias.then_some(n + 4);
    hidden.head_vjp(w, &tf, &mut dz, HeadGradient { tensor: &mut grad, stride, w: 1, bias }).unwrap();
    let back = |i: usize| flow[i / n] * weight(network(i), unit(i)) * at_units[i].1;
    near(&what("gradient of the head"), &in_order(&dz), back, 1e-5);
    let mut sums = kept;
    for j in 0..k {
        sums[j * stride + 1..][..n].fill(0.0);
        sums[j * stride + n + 4..][..if has_bias { n } else { 0 }].fill(0.0);
    }
    for i in 0..total {
        sums[network(i) * stride + 1 + unit(i)] += flow[i / n] * at_units[i].0;
        if has_bias {
            sums[network(i) * stride + n + 4 + unit(i)] += back(i);
        }
    }
    close(&what("gradients of the head's weights"), &grad, at(&sums), 2e-5);
    let overlap = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let grad = HeadGradient { tensor: &mut grad, stride, w: 1, bias: Some(n) };
        hidden.head_vjp(w, &tf, &mut dz, grad).unwrap();
    }));
    assert!(overlap.is_err(), "{}", what("overlapping gradients"));
}
