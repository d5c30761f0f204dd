//! The kernel of a network's prior, `E_θ[g(x,θ) g(x',θ)ᵀ]`, from networks that are drawn.

use crate::compute::{Device, Tensor};
use crate::net::{Mode, Network};
use crate::rng::Rng;
use crate::{Error, Result, fail_if};
use rayon::prelude::*;

/// Networks whose parameters are drawn at the same time.
const TOGETHER: usize = 16;

/// Values `F_s = g(x, θ_s)` `[n, c]` of `count` freshly drawn networks of the architecture `text` at the points `x` `[n, d]`,
/// handed out one after the other: the rows `F` `[S, n, c]` of a low-rank operator, whose kernel
/// `(1/S) Σ_s F_s F_sᵀ` tends to the NNGP's as the networks widen and S grows. Network s depends on the seed and s alone.
///
/// ```
/// use mercer_engine::compute::{Device, Tensor};
/// use mercer_engine::net::ntk::sample_networks;
///
/// let x = Tensor::from_host(Device::Cpu, &[3, 1], &[-1.0, 0.0, 1.0])?;
/// let mut f = vec![];
/// sample_networks("dense(64) erf dense(2)", &x, 100, 0, |_, values| {
///     f.extend_from_slice(values);
///     Ok(())
/// })?;
/// assert_eq!(f.len(), 100 * 3 * 2);
/// # Ok::<(), mercer_engine::Error>(())
/// ```
pub fn sample_networks(
    text: &str,
    x: &Tensor,
    count: usize,
    seed: u64,
    mut each: impl FnMut(usize, &[f32]) -> Result<()>,
) -> Result<()> {
    let &[_, d] = x.shape() else {
        return Err(Error::input(format!("points of shape {:?} are not [n, d]", x.shape())));
    };
    fail_if!(count == 0, "0 networks were asked for; at least 1 is needed");
    let (net, device, rng) = (Network::parse(text, d, 1)?, x.device(), Rng::new(seed));
    let mut workspace = net.workspace(device)?;
    for start in (0..count).step_by(TOGETHER) {
        // Drawing takes as long as computing, and each network is drawn by itself.
        let drawn = (start..count.min(start + TOGETHER)).into_par_iter().map(|s| {
            let theta = net.init(Device::Cpu, &rng.fork(s as u64))?;
            Ok([theta.trained.to_host()?, theta.constants.to_host()?])
        });
        for (s, numbers) in (start..).zip(drawn.collect::<Result<Vec<_>>>()?) {
            let theta = net.parameters_from(device, &numbers[0], &numbers[1])?;
            let values = net.forward(&theta, x, Mode::Eval, &mut workspace)?.to_host()?;
            fail_if!(
                values.iter().any(|v| !v.is_finite()),
                "network {s} has values that are not finite; scale the points down"
            );
            each(s, &values)?;
        }
    }
    Ok(())
}
