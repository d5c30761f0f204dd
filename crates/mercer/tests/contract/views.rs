//! Views of images and rows.

use super::*;

on_every_device! {
    pairs_of_views,
}

/// Two views of each of `x` `[b, d]`, standardised by mean 0.5 and deviation 2.
fn pair_views(on: &On, x: &[f64], image: Option<[usize; 3]>, white: f32, made: &[View]) -> Vec<f64> {
    let (b, d) = (made.len() / 2, 2 * x.len() / made.len());
    let numbers: Vec<f64> = made.iter().flat_map(View::numbers).map(f64::from).collect();
    let layout = ViewLayout { image, white, centre: on.tensor(&[d], &vec![0.5; d]), scale: 2.0 };
    let (mut work, mut out) = (on.zeros(&[0]), on.zeros(&[0]));
    let numbers = on.tensor(&[2 * b, View::NUMBERS], &numbers);
    views(&on.tensor(&[b, d], x), &numbers, &layout, &mut work, &mut out).unwrap();
    assert_eq!(out.shape(), [2 * b, d]);
    host(&out).iter().map(|v| 2.0 * v + 0.5).collect()
}

fn pairs_of_views(device: Device) {
    on(device, 31, |on| {
        let image = Some([3, 8, 6]);
        let x: Vec<f64> = (0..2 * 144).map(|_| f64::from(on.rng.uniform() as f32)).collect();
        let plain = View::plain(image);
        let one = |on: &On, view: View| pair_views(on, &x, image, 1.0, &[view; 4])[..144].to_vec();
        let pixel = |c: usize, row: usize, col: usize| x[(c * 8 + row) * 6 + col];
        let mean = |x: &[f64]| x.iter().sum::<f64>() / x.len() as f64;
        let grey = |p: usize| 0.299 * x[p] + 0.587 * x[48 + p] + 0.114 * x[96 + p];
        // Rows as they are, each twice; a part at its own size and twice as large, mirrored.
        let both = pair_views(on, &x, image, 1.0, &[plain; 4]);
        near("plain", &both, |i| x[i / 288 * 144 + i % 144], 1e-6);
        near("mirrored", &one(on, View { mirror: true, ..plain }), |i| pixel(i / 48, i / 6 % 8, 5 - i % 6), 1e-6);
        let part = one(on, View { part: [2.0, 3.0, 4.0, 3.0], ..plain });
        let line = |first: usize, size: usize, i: usize| {
            let at = ((i as f64 + 0.5) / 2.0 - 0.5).clamp(0.0, size as f64 - 1.0);
            let before = at.floor() as usize;
            (first + before, first + (before + 1).min(size - 1), at - at.floor())
        };
        let between = |i: usize| {
            let ((up, down, v), (near, far, u)) = (line(2, 4, i / 6 % 8), line(3, 3, i % 6));
            let across = |row: usize| (1.0 - u) * pixel(i / 48, row, near) + u * pixel(i / 48, row, far);
            (1.0 - v) * across(up) + v * across(down)
        };
        near("a part", &part, between, 1e-6);
        // Colours.
        let colour = |b: f32, c: f32, s: f32| View { colour: [b, c, s], ..plain };
        near("brightness", &one(on, colour(1.5, 1.0, 1.0)), |i| (1.5 * x[i]).min(1.0), 1e-6);
        let middle = (0..48).map(grey).sum::<f64>() / 48.0;
        near("contrast", &one(on, colour(1.0, 0.5, 1.0)), |i| middle + 0.5 * (x[i] - middle), 1e-6);
        near("saturation", &one(on, colour(1.0, 1.0, 0.25)), |i| grey(i % 48) + 0.25 * (x[i] - grey(i % 48)), 1e-6);
        near("grey", &one(on, View { grey: true, ..plain }), |i| grey(i % 48), 1e-6);
        near(
            "solarised",
            &one(on, View { solarise: 0.5, ..plain }),
            |i| if x[i] >= 0.5 { 1.0 - x[i] } else { x[i] },
            1e-6,
        );
        // Half a turn of hue there, half a turn back; pale colours, which stay between black and white.
        let pale: Vec<f64> = x.iter().map(|v| f64::from((0.45 + 0.1 * v) as f32)).collect();
        let turned = pair_views(on, &pale, image, 1.0, &[View { hue: 1.3, ..plain }; 4]);
        let twice: Vec<f64> =
            [&turned[..144], &turned[288..432]].concat().iter().map(|v| f64::from(*v as f32)).collect();
        let back = pair_views(on, &twice, image, 1.0, &[View { hue: -1.3, ..plain }; 4]);
        near("hue", &back[..144], at(&pale), 2e-3);
        assert!(turned[..144].iter().zip(&pale).any(|(a, b)| (a - b).abs() > 0.01));
        // A blur keeps what is even, and takes the spread off the rest.
        let even = pair_views(on, &[0.3f32 as f64; 288], image, 1.0, &[View { blur: 1.5, ..plain }; 4]);
        near("blur of one colour", &even, |_| 0.3, 1e-6);
        let blurred = one(on, View { blur: 0.8, ..plain });
        let weight = |step: i64| (-0.5 * (step as f64 / f64::from(0.8f32)).powi(2)).exp();
        let smooth = |i: usize| {
            let (mut sum, mut all) = (0.0, 0.0);
            for (down, across) in (-2..=2).flat_map(|a| (-2..=2).map(move |b| (a, b))) {
                let row = (i as i64 / 6 % 8 + down).clamp(0, 7) as usize;
                let w = weight(down) * weight(across);
                sum += w * pixel(i / 48, row, (i as i64 % 6 + across).clamp(0, 5) as usize);
                all += w;
            }
            sum / all
        };
        near("blur", &blurred, smooth, 1e-5);
        // Rows: noise of this deviation, cells and columns at zero, which is the mean of what is standardised.
        let (rows, d) = (40, 500);
        let (row, none) = (vec![1.5; rows * d], View::plain(None));
        let seeded = |view: View| {
            (0..2 * rows).map(|v| View { seeds: [7 * v as u32 + 1, v as u32 % 2 + 5], ..view }).collect::<Vec<_>>()
        };
        let noisy = pair_views(on, &row, None, 1.0, &seeded(View { noise: 0.5, ..none }));
        let deviations: Vec<f64> = noisy.iter().map(|v| v - 1.5).collect();
        let square = mean(&deviations.iter().map(|v| v * v).collect::<Vec<f64>>());
        assert!(mean(&deviations).abs() < 0.02 && (square - 1.0).abs() < 0.03, "{square}");
        let hidden = pair_views(on, &row, None, 1.0, &seeded(View { hidden: 0.3, ..none }));
        let share = hidden.iter().filter(|v| **v == 0.5).count() as f64 / hidden.len() as f64;
        assert!((share - 0.3).abs() < 0.02, "{share}");
        let dropped = pair_views(on, &row, None, 1.0, &seeded(View { dropped: 0.2, ..none }));
        let column = |v: usize, c: usize| dropped[v * d + c] == 0.5;
        assert!((0..d).all(|c| (0..2 * rows).all(|v| column(v, c) == column(v % 2, c))));
        assert!((0..d).any(|c| column(0, c) != column(1, c)));
        assert!(((0..d).filter(|c| column(0, *c)).count() as f64 / d as f64 - 0.2).abs() < 0.06);
        // Everything at once is the same on every device.
        as_on_the_cpu("views", on, 3, 2e-5, |mut on| {
            let views: Vec<View> = (0..6)
                .map(|v| View {
                    part: [1.0, v as f32 % 3.0, 5.0, 3.0],
                    mirror: v % 2 == 0,
                    colour: [1.1, 0.7, 1.4],
                    hue: 0.3 * v as f32,
                    grey: v == 3,
                    blur: [0.0, 0.6, 2.5][v % 3],
                    solarise: if v == 4 { 0.5 } else { 2.0 },
                    noise: 0.1,
                    hidden: 0.1,
                    dropped: 0.1,
                    seeds: [on.rng.below(1 << 24) as u32, v as u32 % 2],
                })
                .collect();
            let x: Vec<f64> = (0..3 * 144).map(|_| f64::from(on.rng.uniform() as f32)).collect();
            on.tensor(&[6, 144], &pair_views(&on, &x, image, 1.0, &views))
        });
    });
}
