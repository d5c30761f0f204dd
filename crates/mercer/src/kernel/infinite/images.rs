//! Networks that look at images, by the definition: the covariance of every pair of positions. The operator's tiles
//! compute the same in a better order (`operator/images/`); this is the oracle.

use super::{Expectations, Network, Side, Step};
use crate::net::Window;

/// The covariances of two images x, x' between all positions, `[h·w, h·w]` each.
#[derive(Clone)]
struct Covariances {
    size: (usize, usize),
    /// `K(x,x')`
    xy: Vec<f64>,
    /// `Θ(x,x')`
    theta: Vec<f64>,
    /// `K(x,x)`
    xx: Vec<f64>,
    /// `K(x',x')`
    yy: Vec<f64>,
}

/// Θ (or K, without `ntk`) of two images of `network`'s shape, each `[channels, height, width]` and divided by the root of its channels.
pub(in crate::kernel) fn value(network: &Network, ntk: bool, x: &[f64], y: &[f64]) -> f64 {
    let [h, w, channels] = network.shape().expect("a network of images");
    let positions = h * w;
    let products = |x: &[f64], y: &[f64]| -> Vec<f64> {
        let of = |p: usize, q: usize| (0..channels).map(|c| x[c * positions + p] * y[c * positions + q]).sum();
        (0..positions * positions).map(|i| of(i / positions, i % positions)).collect()
    };
    let zeros = vec![0.0; positions * positions];
    let mut now =
        Covariances { size: (h, w), xy: products(x, y), theta: zeros, xx: products(x, x), yy: products(y, y) };
    let mut aside = vec![];
    for step in network.steps() {
        match step {
            Step::Dense(v) => now.weigh(v.weight, v.bias),
            Step::Conv(window, v) => {
                now.means(*window, &equal_places(*window));
                now.weigh(v.weight, v.bias);
            }
            Step::AvgPool(window) => now.means(*window, &all_places(*window)),
            Step::Activation(phi) => {
                let n = now.size.0 * now.size.1;
                let sides = |k: &[f64]| (0..n).map(|p| Side::of(k[p * n + p])).collect::<Vec<_>>();
                let (x, y) = (sides(&now.xx), sides(&now.yy));
                for i in 0..n * n {
                    let (p, q) = (i / n, i % n);
                    let (value, slope) = phi.dual(now.xy[i], x[p], y[q]);
                    (now.xy[i], now.theta[i]) = (value, now.theta[i] * slope);
                    now.xx[i] = phi.dual(now.xx[i], x[p], x[q]).0;
                    now.yy[i] = phi.dual(now.yy[i], y[p], y[q]).0;
                }
            }
            Step::Flatten | Step::Gap => now.read_out(*step == Step::Gap),
            Step::Fork => aside.push(now.clone()),
            Step::Shortcut => std::mem::swap(&mut now, aside.last_mut().expect("a fork comes before")),
            Step::Join => now.add(aside.pop().expect("a fork comes before")),
        }
    }
    if ntk { now.theta[0] } else { now.xy[0] }
}

impl Covariances {
    fn parts(&mut self) -> [&mut Vec<f64>; 4] {
        [&mut self.xy, &mut self.theta, &mut self.xx, &mut self.yy]
    }

    /// `K ← w K + b`, `Θ ← K + w Θ`
    fn weigh(&mut self, w: f64, b: f64) {
        for k in [&mut self.xy, &mut self.xx, &mut self.yy] {
            k.iter_mut().for_each(|k| *k = w * *k + b);
        }
        self.theta.iter_mut().zip(&self.xy).for_each(|(theta, k)| *theta = k + w * *theta);
    }

    /// The mean of K over pairs of places in the windows at `q` and `q'`; outside the image K is zero.
    fn means(&mut self, window: Window, places: &[[usize; 4]]) {
        let (h, w) = self.size;
        let (down, across) = (window.along(h), window.along(w));
        let (rows, columns, up, left) = (down.count, across.count, down.before, across.before);
        let place = |q: usize, dy: usize, dx: usize| {
            let y = (q / columns * window.stride + dy).checked_sub(up).filter(|&y| y < h)?;
            let x = (q % columns * window.stride + dx).checked_sub(left).filter(|&x| x < w)?;
            Some(y * w + x)
        };
        let n = rows * columns;
        for k in self.parts() {
            let at = |q: usize, r: usize, &[ey, ex, fy, fx]: &[usize; 4]| -> Option<f64> {
                Some(k[place(q, ey, ex)? * h * w + place(r, fy, fx)?])
            };
            let mean = |i: usize| places.iter().filter_map(|p| at(i / n, i % n, p)).sum::<f64>() / places.len() as f64;
            *k = (0..n * n).map(mean).collect();
        }
        self.size = (rows, columns);
    }

    /// The mean over all pairs of positions, or over equal ones.
    fn read_out(&mut self, all: bool) {
        let n = self.size.0 * self.size.1;
        let (step, count) = if all { (1, n * n) } else { (n + 1, n) };
        for k in self.parts() {
            *k = vec![k.iter().step_by(step).sum::<f64>() / count as f64];
        }
        self.size = (1, 1);
    }

    fn add(&mut self, mut other: Covariances) {
        for (mine, theirs) in self.parts().into_iter().zip(other.parts()) {
            mine.iter_mut().zip(theirs).for_each(|(m, t)| *m += *t);
        }
    }
}

/// The same place in both windows: weights are shared.
fn equal_places(window: Window) -> Vec<[usize; 4]> {
    (0..window.size * window.size).map(|e| [e / window.size, e % window.size]).map(|[y, x]| [y, x, y, x]).collect()
}

/// Every place of one window with every place of the other.
fn all_places(window: Window) -> Vec<[usize; 4]> {
    let one = equal_places(window);
    one.iter().flat_map(|a| one.iter().map(|b| [a[0], a[1], b[0], b[1]])).collect()
}
