//! Neural eigenfunctions against the exact spectrum of the same points:
//! `cargo run --release -p mercer --example neural_bars -- [method] [kernel] [n] [steps] [rate] [seed] [batch] [architecture]`

use mercer::kernel::Kernel;
use mercer::rng::Rng;
use mercer::spectrum::neural::{Kind, Nesting, Neural};
use mercer::spectrum::{Exact, Problem, Spectrum};
use ndarray::Array2;

fn main() -> mercer::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |i: usize, default: &str| arguments.get(i).cloned().unwrap_or_else(|| default.into());
    let number = |i: usize, default: &str| argument(i, default).parse::<f64>().expect("a number");
    let (method, kernel, n) =
        (argument(0, "neuralef"), Kernel::parse(&argument(1, "rbf(1)"))?, number(2, "8192") as usize);
    let half_width = if kernel.to_string().contains("poly") { 1.0 } else { 2.0 };
    let mut rng = Rng::new(1);
    let x = Array2::from_shape_simple_fn((n, 1), || half_width * (2.0 * rng.uniform() - 1.0));
    let mut neural = Neural::new(match method.as_str() {
        "neuralef-averaged" => Kind::NeuralEf { averaged: true },
        "spin-decay" => Kind::Spin { decay: std::env::var("DECAY").unwrap().parse().unwrap() },
        "nested-joint" => Kind::Nested { nesting: Some(Nesting::Joint) },
        name => Kind::ALL.into_iter().find(|(n, _)| *n == name).expect("a method").1,
    });
    neural.settings.keep_best = std::env::var_os("LAST").is_none();
    if std::env::var_os("LAST").is_some() {
        neural.settings.patience = usize::MAX;
    }
    if arguments.len() > 3 {
        neural.settings.steps = number(3, "2000") as u64;
    }
    neural.settings.learning_rate = number(4, "0.001");
    neural.settings.batch = number(6, "256") as usize;
    neural.architecture = arguments.get(7).cloned();
    let mut problem = Problem::new(&kernel, x.view(), 10);
    problem.seed = number(5, "0") as u64;
    let mut cached = std::env::temp_dir();
    cached.push(format!("neural-bars-{}-{n}.mercer", kernel.to_string().replace(['/', ' ', '*'], "_")));
    let exact = match Spectrum::load(&cached) {
        Ok(exact) => exact,
        Err(_) => {
            let exact = Spectrum::fit(&Exact, &problem, None)?;
            exact.save(&cached)?;
            exact
        }
    };
    let exact_psi = exact.transform(x.view())?;
    let start = std::time::Instant::now();
    let spectrum = Spectrum::fit(&neural, &problem, None)?;
    let seconds = start.elapsed().as_secs_f64();
    let psi = spectrum.transform(x.view())?;
    let t = spectrum.training().expect("trained");
    println!(
        "{method} {kernel} n={n}: {} steps in {:.1} s, {seconds:.1} s in all, stop {:?}, kept {}, {}",
        t.steps, t.seconds, t.stop, t.kept, t.architecture
    );
    println!("validation {:?}", t.validation.iter().map(|[s, r]| format!("{s}: {r:.2e}")).collect::<Vec<_>>());
    println!("{:>3} {:>12} {:>10} {:>10} {:>10} {:>10}", "j", "exact", "raw", "finished", "1−|cos|", "residual");
    for j in 0..10 {
        let (a, b) = (psi.column(j), exact_psi.column(j));
        let cosine = a.dot(&b).abs() / (a.dot(&a) * b.dot(&b)).sqrt();
        let error = |μ: f64| μ / exact.eigenvalues[j] - 1.0;
        println!(
            "{:>3} {:>12.4e} {:>10.1e} {:>10.1e} {:>10.1e} {:>10.1e}",
            j + 1,
            exact.eigenvalues[j],
            error(t.raw_eigenvalues.get(j).copied().unwrap_or(f64::NAN)),
            error(spectrum.eigenvalues[j]),
            1.0 - cosine,
            spectrum.certificate.residual[j].unwrap_or(f64::NAN)
        );
    }
    println!("eigenvalues {:?}", spectrum.eigenvalues);
    Ok(())
}
