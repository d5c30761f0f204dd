//! The device functions of tanh, sigmoid and softplus: sums over pairs of nodes, as `kernel/infinite/logistic.rs` has them.

use crate::compute::Activation;
use crate::kernel::infinite::logistic::{NODES, factor, functions, rule};

const SUMS: &str = include_str!("logistic.cu");

/// The source of the functions among `calls`, each with its tables.
pub(in crate::operator) fn source(calls: &[&str]) -> String {
    let called = |phi: &Activation| functions(*phi).iter().any(|function| calls.contains(function));
    let all = [Activation::Tanh, Activation::Sigmoid, Activation::Softplus];
    all.into_iter().enumerate().filter(|(_, phi)| called(phi)).map(|(kind, phi)| of(phi, kind)).collect()
}

fn of(phi: Activation, kind: usize) -> String {
    let rule = rule(phi);
    let mut weights = vec![0.0; NODES * NODES];
    rule.pairs.iter().for_each(|&(i, j, weight)| weights[i * NODES + j] = factor(phi) * weight);
    let list = |numbers: &[f64]| numbers.iter().map(|v| format!("(real){v:?}")).collect::<Vec<_>>().join(", ");
    SUMS.replace("NAME", &phi.to_string())
        .replace("KIND", &kind.to_string())
        .replace("NODES", &NODES.to_string())
        .replace("SCALES", &list(&rule.scales.map(|scale| 2.0 * scale * scale)))
        .replace("WEIGHTS", &list(&weights))
}

/// The functions alone, for `.ci/emulate_logistic.py`, as `(name, text)`.
pub(super) fn sources() -> Vec<(String, String)> {
    let arithmetics = [("F64", 1), ("F32", 2)];
    let calls: Vec<&str> =
        [Activation::Tanh, Activation::Sigmoid, Activation::Softplus].into_iter().flat_map(functions).collect();
    let text = |number: i32| format!("#define ARITHMETIC {number}\n{}{}", crate::simd::source::PRELUDE, source(&calls));
    arithmetics.map(|(name, number)| (format!("logistic-{name}"), text(number))).to_vec()
}
