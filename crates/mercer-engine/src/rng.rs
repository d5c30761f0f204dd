//! The random generator of the library. A seed gives the same numbers on every machine; the state is four words.

use ndarray::Array2;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Up to one of so many, a sample is drawn without a list of all.
const FEW: usize = 16;

/// xoshiro256++ (Blackman and Vigna), seeded through splitmix64.
///
/// ```
/// use mercer_engine::rng::Rng;
/// let (mut a, mut b) = (Rng::new(7), Rng::new(7));
/// assert_eq!(a.normal().to_bits(), b.normal().to_bits());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// A generator seeded with `seed`.
    pub fn new(seed: u64) -> Self {
        let mut s = seed;
        Rng { state: std::array::from_fn(|_| splitmix64(&mut s)) }
    }

    /// An independent generator for the given purpose. This generator does not advance.
    pub fn fork(&self, purpose: u64) -> Self {
        Rng::new(self.state[0] ^ self.state[2].rotate_left(17) ^ purpose.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.state;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// Uniform on [0, 1), 53 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }

    /// Standard normal, by the Box–Muller method. The second number of each pair is dropped, so that there is none to store.
    pub fn normal(&mut self) -> f64 {
        let u = 1.0 - self.uniform();
        let v = self.uniform();
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    /// Independent standard normal numbers `[n, m]`, row by row.
    ///
    /// ```
    /// use mercer_engine::rng::Rng;
    /// let mut rng = Rng::new(7);
    /// assert_eq!(Rng::new(7).normals((2, 1)), ndarray::array![[rng.normal()], [rng.normal()]]);
    /// ```
    pub fn normals(&mut self, shape: (usize, usize)) -> Array2<f64> {
        Array2::from_shape_simple_fn(shape, || self.normal())
    }

    /// Uniform on {0, …, n−1}, without bias (Lemire's method). Panics if `n` is zero.
    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "below(0): n must be positive");
        let n = n as u64;
        let threshold = n.wrapping_neg() % n;
        loop {
            let wide = u128::from(self.next_u64()) * u128::from(n);
            if wide as u64 >= threshold {
                return (wide >> 64) as usize;
            }
        }
    }

    /// −1 or +1, each with probability one half.
    pub fn sign(&mut self) -> f64 {
        if self.next_u64() >> 63 == 0 { 1.0 } else { -1.0 }
    }

    /// Shuffles `items` (Fisher–Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }

    /// `k` different indices of `0..n` in random order; all of them, shuffled, if `k >= n`. A few of many take memory for the few.
    pub fn sample(&mut self, n: usize, k: usize) -> Vec<usize> {
        if k < n / FEW {
            return self.sample_few(n, k);
        }
        let (mut all, k): (Vec<usize>, usize) = ((0..n).collect(), k.min(n));
        for i in 0..k {
            let j = i + self.below(n - i);
            all.swap(i, j);
        }
        all.truncate(k);
        all
    }

    /// The same numbers as [`Self::sample`], with a map of the places that were swapped in the place of the whole list.
    fn sample_few(&mut self, n: usize, k: usize) -> Vec<usize> {
        let mut moved: HashMap<usize, usize> = HashMap::with_capacity(k);
        let mut drawn = Vec::with_capacity(k);
        for i in 0..k {
            let j = i + self.below(n - i);
            let here = moved.remove(&i).unwrap_or(i);
            drawn.push(if i == j { here } else { moved.insert(j, here).unwrap_or(j) });
        }
        drawn
    }
}

fn splitmix64(s: &mut u64) -> u64 {
    *s = s.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *s;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_uniform_and_normal() {
        let mut rng = Rng::new(1);
        let (n, mut sums) = (200_000, [0.0; 4]);
        for _ in 0..n {
            let (u, z) = (rng.uniform(), rng.normal());
            sums.iter_mut().zip([u, z, z * z, z.powi(4)]).for_each(|(sum, value)| *sum += value);
        }
        // Means and variances of u, z, z² and z⁴.
        for (sum, (mean, variance)) in sums.iter().zip([(0.5, 1.0 / 12.0), (0.0, 1.0), (1.0, 2.0), (3.0, 96.0)]) {
            assert!((sum / f64::from(n) - mean).abs() < 4.0 * (variance / f64::from(n)).sqrt(), "{mean}");
        }
    }

    #[test]
    fn sample_is_a_set_of_distinct_indices() {
        let sample = Rng::new(3).sample(100, 40);
        let distinct: std::collections::HashSet<usize> = sample.iter().copied().filter(|&i| i < 100).collect();
        assert_eq!((sample.len(), distinct.len()), (40, 40));
        assert_eq!(Rng::new(3).sample(5, 9).len(), 5);
    }

    #[test]
    fn below_is_uniform() {
        let mut rng = Rng::new(5);
        let mut counts = [0usize; 7];
        for _ in 0..70_000 {
            counts[rng.below(7)] += 1;
        }
        assert!(counts.iter().all(|&c| (c as f64 - 10_000.0).abs() < 5.0 * 100.0));
    }

    /// The list of all indices and the map of those that moved give the same sample.
    #[test]
    fn a_few_of_many_are_those_of_the_whole_list() {
        for (n, k, seed) in [(17, 1, 1), (1000, 61, 2), (5000, 300, 3), (100, 0, 4)] {
            assert!(k < n / FEW || k == 1, "{n} {k}");
            let (mut a, mut b) = (Rng::new(seed), Rng::new(seed));
            let mut all: Vec<usize> = (0..n).collect();
            (0..k).for_each(|i| all.swap(i, i + a.below(n - i)));
            assert_eq!(b.sample_few(n, k), all[..k]);
            assert_eq!(a, b);
        }
        let mut large = Rng::new(5).sample(1 << 50, 1000);
        large.sort_unstable();
        large.dedup();
        assert_eq!(large.len(), 1000);
    }

    #[test]
    fn forks_differ_from_each_other_and_the_parent() {
        let parent = Rng::new(9);
        let mut streams = [parent.clone(), parent.fork(0), parent.fork(1)];
        let first: Vec<u64> = streams.iter_mut().map(Rng::next_u64).collect();
        assert!(first[0] != first[1] && first[1] != first[2] && first[0] != first[2]);
    }
}
