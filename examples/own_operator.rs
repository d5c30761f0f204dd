//! An operator written outside the crate: a kernel between words, which have no coordinates. Every method that needs no formula
//! decomposes it. `cargo run --release -p mercer --example own_operator`

use mercer::Result;
use mercer::operator::Operator;
use mercer::spectrum::{Exact, Krylov, Method, Problem, Spectrum};
use ndarray::{Array1, Array2, ArrayView2};
use std::collections::BTreeSet;

/// `κ(v, w) = |A ∩ B| / √(|A| |B|)` for the sets A and B of letter pairs of the words v and w.
struct Words(Vec<BTreeSet<String>>);

/// The letter pairs of a word, with its ends marked: `^s`, `si`, `in`, `ng`, `g$`.
fn pairs(word: &str) -> BTreeSet<String> {
    let letters: Vec<char> = format!("^{word}$").chars().collect();
    letters.windows(2).map(|pair| pair.iter().collect()).collect()
}

fn similarity(a: &BTreeSet<String>, b: &BTreeSet<String>) -> f64 {
    a.intersection(b).count() as f64 / ((a.len() * b.len()) as f64).sqrt()
}

impl Operator for Words {
    fn n(&self) -> usize {
        self.0.len()
    }

    fn apply(&self, v: ArrayView2<f64>) -> Result<Array2<f64>> {
        Ok(self.to_dense(&mercer::Silent)?.dot(&v))
    }

    fn block(&self, rows: &[usize], columns: &[usize]) -> Result<Array2<f64>> {
        let value = |(a, b): (usize, usize)| similarity(&self.0[rows[a]], &self.0[columns[b]]);
        Ok(Array2::from_shape_fn((rows.len(), columns.len()), value))
    }

    fn diagonal(&self) -> Result<Array1<f64>> {
        Ok(Array1::ones(self.n()))
    }
}

fn main() -> Result<()> {
    let words = ["singing", "ringing", "bringing", "kitten", "mitten", "smitten", "written"];
    let operator = Words(words.iter().map(|word| pairs(word)).collect());
    for method in [&Exact as &dyn Method, &Krylov::default()] {
        let spectrum = Spectrum::fit(method, &Problem::new(&operator, 2), None)?;
        // A new word is given by its kernel values with the fitted words.
        let row =
            |word: &str| Array2::from_shape_fn((1, words.len()), |(_, i)| similarity(&pairs(word), &operator.0[i]));
        let second = |word: &str| spectrum.transform(row(word).view()).map(|psi| psi[[0, 1]]);
        println!("{}: μ = {:.3?}", method.name(), spectrum.eigenvalues);
        println!("  ψ_2(stinging) = {:.2}, ψ_2(bitten) = {:.2}", second("stinging")?, second("bitten")?);
        assert!(second("stinging")? * second("bitten")? < 0.0, "the two families have opposite signs");
    }
    Ok(())
}
