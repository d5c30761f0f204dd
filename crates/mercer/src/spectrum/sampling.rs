//! Standard normal vectors for random features, drawn in three ways. Each vector by itself is `N(0, I)` under all
//! three, so features built on them are unbiased; what differs is how the vectors spread.

use super::by_name;
use crate::linalg::view;
use crate::rng::Rng;
use crate::special::normal_quantile;
use crate::{Error, Result};
use ndarray::{Array2, ArrayViewMut1, s};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// How the frequencies of random features are drawn. Example: [`crate::spectrum::Fourier`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sampling {
    /// Independent.
    Plain,
    /// In blocks of d orthogonal directions with independent lengths: never worse for the Gaussian kernel, and most
    /// better when there are several times d frequencies or fewer.
    #[default]
    Orthogonal,
    /// The Halton sequence with every digit randomly permuted, through the normal quantile. Much better in a few
    /// dimensions; as they grow to ten and more it fades into stratified plain sampling.
    QuasiMonteCarlo,
}

impl Sampling {
    /// The ways by name.
    pub const NAMED: [(&'static str, Sampling); 3] =
        [("plain", Sampling::Plain), ("orthogonal", Sampling::Orthogonal), ("qmc", Sampling::QuasiMonteCarlo)];

    /// `count` vectors of `d + extra` standard normals, `[count, d + extra]`; the first `d` of each are the direction.
    pub(crate) fn normals(self, count: usize, d: usize, extra: usize, rng: &mut Rng) -> Array2<f64> {
        match self {
            Sampling::Plain => rng.normals((count, d + extra)),
            Sampling::Orthogonal => {
                let mut z = rng.normals((count, d + extra));
                for start in (0..count).step_by(d) {
                    orthogonalise(z.slice_mut(s![start..count.min(start + d), ..d]), rng);
                }
                z
            }
            Sampling::QuasiMonteCarlo => {
                let mut z = Array2::zeros((count, d + extra));
                for (column, p) in z.columns_mut().into_iter().zip(primes()) {
                    scrambled_halton(column, p, rng);
                }
                z.mapv_into(|u| normal_quantile(u.clamp(f64::EPSILON / 4.0, 1.0 - f64::EPSILON / 2.0)))
            }
        }
    }
}

impl FromStr for Sampling {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        by_name("sampling", text, &Self::NAMED)
    }
}

/// Makes Gaussian rows `[b, d]`, `b ≤ d`, orthogonal: `Zᵀ = QR` with positive diagonal of R has Q uniform over
/// orthonormal frames, and each row gets back the length of an independent Gaussian vector.
fn orthogonalise(mut z: ndarray::ArrayViewMut2<f64>, rng: &mut Rng) {
    let (b, d) = z.dim();
    let qr = view(z.t()).qr();
    let (q, r) = (qr.compute_thin_Q(), qr.thin_R().to_owned());
    for i in 0..b {
        let length = (0..d).map(|_| rng.normal().powi(2)).sum::<f64>().sqrt();
        let factor = length * r[(i, i)].signum();
        for j in 0..d {
            z[[i, j]] = factor * q[(j, i)];
        }
    }
}

/// Coordinate of base `p` of the Halton sequence, `u_i = Σ_k π_k(digit_k(i)) p^{−k−1}`, with a random permutation of
/// the digits at every place (Owen's randomised Halton sequence). `out` `[count]`
fn scrambled_halton(mut out: ArrayViewMut1<f64>, p: usize, rng: &mut Rng) {
    let (mut place, mut weight) = (1usize, 1.0 / p as f64);
    while weight > f64::EPSILON / 4.0 {
        if place < out.len() {
            let mut permutation: Vec<usize> = (0..p).collect();
            rng.shuffle(&mut permutation);
            out.iter_mut().enumerate().for_each(|(i, u)| *u += permutation[i / place % p] as f64 * weight);
            place = place.saturating_mul(p);
        } else {
            // All digits here are zero, and one permuted digit stands for them.
            let digit = rng.below(p) as f64;
            out.iter_mut().for_each(|u| *u += digit * weight);
        }
        weight /= p as f64;
    }
}

fn primes() -> impl Iterator<Item = usize> {
    (2..).filter(|&n: &usize| (2..).take_while(|d| d * d <= n).all(|d| n % d != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Sampling; 3] = [Sampling::Plain, Sampling::Orthogonal, Sampling::QuasiMonteCarlo];

    #[test]
    fn every_vector_is_standard_normal() {
        for sampling in ALL {
            // First, middle and last vector over many seeds: mean 0, covariance I, fourth moments 3 and 1.
            let draws: Vec<Array2<f64>> =
                (0..8000).map(|seed| sampling.normals(5, 3, 1, &mut Rng::new(seed))).collect();
            let mean = |f: &dyn Fn(&Array2<f64>) -> f64| draws.iter().map(f).sum::<f64>() / draws.len() as f64;
            for row in [0, 2, 4] {
                for a in 0..4 {
                    assert!(mean(&|z| z[[row, a]]).abs() < 0.05, "{sampling:?} mean");
                    assert!((mean(&|z| z[[row, a]].powi(4)) - 3.0).abs() < 0.5, "{sampling:?} fourth moment");
                    for b in 0..4 {
                        let want = if a == b { 1.0 } else { 0.0 };
                        assert!((mean(&|z| z[[row, a]] * z[[row, b]]) - want).abs() < 0.07, "{sampling:?} covariance");
                    }
                }
            }
        }
    }

    #[test]
    fn orthogonal_blocks_are_orthogonal() {
        let z = Sampling::Orthogonal.normals(7, 4, 2, &mut Rng::new(1));
        let directions = z.slice(s![.., ..4]);
        let gram = directions.dot(&directions.t());
        for ((i, j), g) in gram.indexed_iter().filter(|((i, j), _)| i != j && i / 4 == j / 4) {
            assert!(g.abs() < 1e-12, "{i} {j} {g}");
        }
        assert!(gram[[0, 4]].abs() > 1e-6);
    }

    #[test]
    fn halton_fills_every_stratum_once() {
        for p in [2usize, 3, 7] {
            let mut u = ndarray::Array1::zeros(p * p);
            scrambled_halton(u.view_mut(), p, &mut Rng::new(2));
            let mut strata: Vec<usize> = u.iter().map(|u| (u * (p * p) as f64) as usize).collect();
            strata.sort_unstable();
            assert_eq!(strata, (0..p * p).collect::<Vec<_>>());
        }
    }
}
