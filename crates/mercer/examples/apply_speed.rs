//! Seconds that the estimators take: `cargo run --release --example apply_speed -- <kpca|ridge|cg> n d [f32|f64]`.

use mercer::apply::{Alpha, KernelPca, Means, Ridge, RidgeSolver};
use mercer::data::Target;
use mercer::kernel::Kernel;
use mercer::operator::Precision;
use mercer::rng::Rng;
use mercer::spectrum::Progress;
use ndarray::Array2;
use std::time::Instant;

/// Prints every step where `STEPS` is set.
struct Steps;

impl Progress for Steps {
    fn step(&self, what: &str, done: usize, total: usize, note: &str) {
        if std::env::var_os("STEPS").is_some() {
            eprintln!("{what} {done}/{total} {note}");
        }
    }
}

fn main() -> mercer::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |i: usize, default: usize| arguments.get(i).and_then(|a| a.parse().ok()).unwrap_or(default);
    let (n, d) = (number(1, 5000), number(2, 50));
    let precision = if arguments.iter().any(|a| a == "f32") { Precision::F32 } else { Precision::F64 };
    let mut rng = Rng::new(0);
    let x = Array2::from_shape_simple_fn((n, d), || rng.normal());
    let y = Target::Values(x.rows().into_iter().map(|r| r[0].sin() + 0.1 * rng.normal()).collect());
    // scikit-learn's default γ = 1/d.
    let kernel = Kernel::parse(&format!("rbf({})", (d as f64 / 2.0).sqrt()))?;
    let means = Means { precision, progress: &Steps, ..Default::default() };
    for _ in 0..3 {
        let start = Instant::now();
        match arguments.first().map_or("kpca", String::as_str) {
            "ridge" => {
                let ridge = Ridge { alpha: Alpha::Fixed(1.0), solver: RidgeSolver::Direct };
                let fitted = ridge.fit(&kernel, x.view(), &y, &means)?;
                println!("ridge {:.3} s, c_0 = {:e}", start.elapsed().as_secs_f64(), fitted.coefficients()[[0, 0]]);
            }
            "cg" => {
                let ridge = Ridge { alpha: Alpha::Fixed(1.0), solver: RidgeSolver::conjugate_gradients(precision) };
                let fitted = ridge.fit(&kernel, x.view(), &y, &means)?;
                let seconds = start.elapsed().as_secs_f64();
                println!("cg {seconds:.3} s, {:?} products, residual {:?}", fitted.iterations, fitted.residual);
            }
            _ => {
                let fitted = KernelPca { k: 10, ..Default::default() }.fit(&kernel, x.view(), &means)?;
                println!("kpca {:.3} s, {:?}", start.elapsed().as_secs_f64(), fitted.eigenvalues);
            }
        }
    }
    Ok(())
}
