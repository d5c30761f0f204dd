//! The kernel of functions known only by their values, from a file that need not fit into memory: networks are drawn, their
//! values at the points are written as `F` `[S, n]`, and the eigenfunctions of `FᵀF/S` come back — at the points, and at new
//! ones where the same networks are evaluated. Anything that can write an `.npy` can stand in for the first half; see
//! `examples/perturbed_logits.py`. `cargo run --release -p mercer --example sampled_kernel`

use mercer::compute::{Device, Tensor};
use mercer::data::{MappedArray, generate, write_npy_rows};
use mercer::net::ntk::sample_networks;
use mercer::operator::{FunctionSamples, LowRankOperator};
use mercer::spectrum::{Krylov, Problem, Spectrum};
use ndarray::ArrayView2;
use std::path::Path;

const NET: &str = "dense(64, w=1.4, b=0.3) relu dense(64, w=1.4, b=0.3) relu dense(1)";
const COUNT: usize = 500;

fn main() -> mercer::Result<()> {
    let folder = std::env::temp_dir();
    let file = |name: &str| folder.join(format!("mercer-{name}-{}.npy", std::process::id()));
    let (fitted, new) = (generate::moons(300, 0.05, 0)?.x, generate::moons(5, 0.05, 1)?.x);
    let (old_file, new_file) = (file("fitted"), file("new"));
    write_values(&old_file, fitted.view())?;
    write_values(&new_file, new.view())?;

    let f = FunctionSamples::in_file(MappedArray::open(&old_file)?)?;
    println!("{:?} values of networks in {}", f.dim(), old_file.display());
    let operator = LowRankOperator::of_samples(&f, false)?;
    let spectrum = Spectrum::fit(&Krylov::default(), &Problem::new(&operator, 3), None)?;
    for (j, (μ, residual)) in spectrum.eigenvalues.iter().zip(&spectrum.certificate.residual).enumerate() {
        println!("μ_{} = {μ:.4}, residual {:.1e}", j + 1, residual.unwrap_or(0.0));
    }
    let psi = spectrum.transform(&FunctionSamples::in_file(MappedArray::open(&new_file)?)?)?;
    println!("ψ at five new points:\n{psi:.3}");
    for file in [old_file, new_file] {
        std::fs::remove_file(&file).map_err(|e| mercer::Error::io(&file, e))?;
    }
    Ok(())
}

/// The values of the same `COUNT` networks at the points `x` `[n, 2]`, as an array `[S, n]`.
fn write_values(path: &Path, x: ArrayView2<f64>) -> mercer::Result<()> {
    let points: Vec<f32> = x.iter().map(|v| *v as f32).collect();
    let points = Tensor::from_host(Device::Cpu, &[x.nrows(), 2], &points)?;
    write_npy_rows(path, &[COUNT, x.nrows()], |put| sample_networks(NET, &points, COUNT, 7, |_, values| put(values)))
}
