//! The main task in twenty lines: a kernel on data, its leading eigenfunctions, their accuracy, and their values at new
//! points. `cargo run --release -p mercer --example decompose`

use mercer::kernel::Expression;
use mercer::spectrum::{Krylov, Landmarks, Method, Nystrom, Problem, Spectrum};
use mercer::{FitContext, data};

fn main() -> mercer::Result<()> {
    let (fit, held_out) = data::open("digits", &Default::default())?.split(0.2, 0)?;
    let (x, new) = (fit.x.to_f64(), held_out.x.to_f64());
    let kernel = Expression::parse("rbf(lengthscale=median)")?.resolve(x.view(), 0)?;
    let operator = FitContext::default().kernel_operator(&kernel, x.view())?;
    println!("{kernel} on {} digits", fit.n());

    let nystrom = Nystrom { landmarks: 300, choice: Landmarks::KMeansPlusPlus };
    for method in [&Krylov::default() as &dyn Method, &nystrom] {
        let spectrum = Spectrum::fit(method, &Problem::new(&operator, 5), Some(new.view().into()))?;
        println!("\nby {} in {:.2} s:", method.name(), spectrum.origin.seconds);
        for (j, (μ, residual)) in spectrum.eigenvalues.iter().zip(&spectrum.certificate.residual).enumerate() {
            let [low, high] = spectrum.certificate.interval[j].unwrap_or_default();
            println!(
                "  μ_{} = {μ:.4}, between {low:.4} and {high:.4}; residual {:.1e}",
                j + 1,
                residual.unwrap_or(0.0)
            );
        }
        let z = spectrum.transform(new.view())?; // [held-out points, 5]
        println!("  the first new digit has coordinates {:.2}", z.row(0));
    }
    Ok(())
}
