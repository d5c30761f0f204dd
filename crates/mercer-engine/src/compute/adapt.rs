//! Layer-wise adaptive rates (LARS): the gradient of each tensor brought to a share of the tensor's own norm.

use super::cuda::adapt as cuda;
use super::parallel::for_each;
use super::tensor::{Device, Indices, Tensor, on_gpu};
use crate::Result;
use std::ops::Range;

/// Tensors inside a flat buffer, each of which has a rate of its own.
#[derive(Debug)]
pub struct Adapted {
    ranges: Vec<Range<usize>>,
    /// On a GPU, of each piece of at most [`PIECE`] numbers: where it starts, its length, the first piece of its tensor, and how many that
    /// has; `[pieces, 4]`.
    table: Indices,
}

/// Numbers that one block of a GPU's kernel sees.
const PIECE: usize = 8192;

impl Adapted {
    /// The tensors at these places; no two overlap.
    pub fn new(device: Device, ranges: Vec<Range<usize>>) -> Result<Adapted> {
        let mut table = vec![];
        for range in &ranges {
            let (first, pieces) = (table.len() / 4, range.len().div_ceil(PIECE));
            for start in range.clone().step_by(PIECE) {
                let numbers = [start, PIECE.min(range.end - start), first, pieces];
                table.extend(numbers.map(|n| u32::try_from(n).expect("fewer than 2^32 parameters")));
            }
        }
        let table = Indices::from_host(device, &[table.len()], &table)?;
        Ok(Adapted { ranges, table })
    }

    /// Rows of the table.
    pub(super) fn pieces(&self) -> (usize, &Indices) {
        (self.table.len() / 4, &self.table)
    }
}

/// `g ← η ‖θ‖/‖g + λθ‖ (g + λθ)` for every tensor, with trust η and decay λ; the factor is one where a norm is zero. Other numbers stay as
/// they are.
pub fn adapt(tensors: &Adapted, trust: f32, decay: f32, theta: &Tensor, grad: &mut Tensor) {
    assert!(
        theta.len() == grad.len() && tensors.ranges.iter().all(|range| range.end <= grad.len()),
        "adaptation of {grad} to {theta}"
    );
    on_gpu!(theta, |gpu| cuda::adapt(gpu, tensors, trust, decay, theta, grad));
    let (theta, work) = (theta.host(), 6 * grad.len());
    let (mut rest, mut at, mut tasks) = (grad.host_mut(), 0, vec![]);
    let mut order: Vec<&Range<usize>> = tensors.ranges.iter().collect();
    order.sort_by_key(|range| range.start);
    for range in order {
        let own;
        (_, rest) = rest.split_at_mut(range.start - at);
        (own, rest) = rest.split_at_mut(range.len());
        at = range.end;
        tasks.push((own, &theta[range.clone()]));
    }
    for_each(tasks.into_iter(), work, |(g, theta)| {
        let sum = |f: &dyn Fn(f64, f64) -> f64| -> f64 {
            g.iter().zip(theta).map(|(g, theta)| f(f64::from(*g), f64::from(*theta))).sum()
        };
        let norms = [sum(&|_, theta| theta * theta), sum(&|g, theta| (g + f64::from(decay) * theta).powi(2))];
        let rate = rate(trust, norms);
        g.iter_mut().zip(theta).for_each(|(g, theta)| *g = rate * (*g + decay * theta));
    });
}

/// The factor from the squared norms of θ and of g + λθ.
fn rate(trust: f32, [theta, g]: [f64; 2]) -> f32 {
    if theta > 0.0 && g > 0.0 {
        (f64::from(trust) * (theta / g).sqrt()) as f32
    } else if g.is_nan() {
        f32::NAN
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// θ = (3, 4), g = (1, −2), λ = 0.1: g + λθ = (1.3, −1.6) of norm √4.25, and the factor is η 5/√4.25. By hand.
    #[test]
    fn a_step_by_hand() {
        let theta = Tensor::from_host(Device::Cpu, &[7], &[9.0, 3.0, 4.0, 7.0, 0.0, 0.0, 2.0]).unwrap();
        let mut grad = Tensor::from_host(Device::Cpu, &[7], &[5.0, 1.0, -2.0, 6.0, 1.0, -1.0, 0.0]).unwrap();
        // The second tensor has no norm, and the gradient of the third is nothing but its decay.
        let tensors = Adapted::new(Device::Cpu, vec![4..6, 1..3, 6..7]).unwrap();
        adapt(&tensors, 0.5, 0.1, &theta, &mut grad);
        let factor = 0.5 * 5.0 / 4.25f32.sqrt();
        let want = [5.0, 1.3 * factor, -1.6 * factor, 6.0, 1.0, -1.0, 0.5 * 2.0];
        assert!(grad.host().iter().zip(want).all(|(g, w)| (g - w).abs() < 1e-6), "{:?}", grad.host());
    }

    #[test]
    fn a_gradient_that_is_not_finite_stays_so() {
        let theta = Tensor::from_host(Device::Cpu, &[2], &[1.0, 1.0]).unwrap();
        let mut grad = Tensor::from_host(Device::Cpu, &[2], &[f32::NAN, 1.0]).unwrap();
        adapt(&Adapted::new(Device::Cpu, std::iter::once(0..2).collect()).unwrap(), 0.1, 0.0, &theta, &mut grad);
        assert!(grad.host().iter().all(|g| g.is_nan()));
    }
}
