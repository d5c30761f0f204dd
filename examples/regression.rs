//! Kernel ridge regression three ways, on the same data: directly, by conjugate gradients without storing the kernel
//! matrix, and on the eigenfunctions of a spectrum. `cargo run --release -p mercer --example regression`

use mercer::FitContext;
use mercer::apply::{Alpha, Fit, Predict, Ridge, RidgeSolver, SpectralRidge};
use mercer::data::{self, Target};
use mercer::kernel::Kernel;
use mercer::operator::Precision;
use mercer::spectrum::{Krylov, Problem, Spectrum};

fn main() -> mercer::Result<()> {
    // The target is the position along the roll, a smooth function of the three coordinates.
    let (train, test) = data::open("swiss-roll(n=1500)", &Default::default())?.split(0.2, 0)?;
    let (y, truth) = (train.y.clone().expect("has a target"), test.y.as_ref().expect("has a target").values());
    let (x, new) = (train.x.to_f64(), test.x.to_f64());
    let (kernel, context, alpha) = (Kernel::parse("matern52(4)")?, FitContext::default(), Alpha::Fixed(1e-3));

    let direct = Ridge { solver: RidgeSolver::Direct, ..Ridge::new(kernel.clone()) };
    let direct = direct.fit(x.view(), &y, &context)?;
    println!("direct, α = {:.1e} by leave-one-out: {:.4}", direct.alpha, error(&direct.predict(new.view())?, &truth));

    let solver = RidgeSolver::conjugate_gradients(Precision::F64);
    let iterative = Ridge { alpha, solver, ..Ridge::new(kernel.clone()) }.fit(x.view(), &y, &context)?;
    let products = iterative.convergence.iterations.unwrap_or_default();
    println!("{products} products with K: {:.4}", error(&iterative.predict(new.view())?, &truth));

    let operator = context.kernel_operator(&kernel, x.view())?;
    let problem = Problem { operator: &operator, k: 100, context };
    let spectrum = Spectrum::fit(&Krylov::default(), &problem, Some(new.view().into()))?;
    let on_functions = SpectralRidge { alpha, ..SpectralRidge::new(spectrum.into()) }.fit(x.view(), &y, &context)?;
    println!("on 100 eigenfunctions: {:.4}", error(&on_functions.predict(new.view())?, &truth));
    Ok(())
}

/// Root mean square error, as a share of the target's standard deviation.
fn error(predicted: &Target, truth: &[f64]) -> f64 {
    let n = truth.len() as f64;
    let mean = truth.iter().sum::<f64>() / n;
    let variance = truth.iter().map(|y| (y - mean).powi(2)).sum::<f64>();
    (predicted.values().iter().zip(truth).map(|(p, y)| (p - y).powi(2)).sum::<f64>() / variance).sqrt()
}
