//! A certificate in words and in rows, and the origin of a fit in words.

use crate::text::{GAP, count, error, number, percent, seconds};
use mercer::spectrum::{Certificate, Origin, Standing};

/// The size of the data, what else is known of it, the method and its time.
pub fn origin(origin: &Origin, more: &str) -> String {
    let (points, columns) = (count(origin.n, "point"), count(origin.d, "column"));
    format!("{points} of {columns}{more}, by {} in {}", origin.method, seconds(origin.seconds))
}

/// The headings of [`rows`].
pub const HEADINGS: [&str; 5] = ["j", "eigenvalue", "95 % interval", "residual", "standing"];

/// One row a pair.
pub fn rows(eigenvalues: &[f64], certificate: &Certificate) -> Vec<Vec<String>> {
    let interval = |[low, high]: [f64; 2]| format!("{} … {}", number(low, 4), number(high, 4));
    let row = |j: usize| {
        vec![
            (j + 1).to_string(),
            number(eigenvalues[j], 6),
            certificate.interval[j].map_or_else(|| GAP.into(), interval),
            certificate.residual[j].map_or_else(|| GAP.into(), error),
            match certificate.standing[j] {
                Standing::Simple => "simple".into(),
                Standing::Repeated => "repeated".into(),
                Standing::Zero => "zero".into(),
            },
        ]
    };
    (0..eigenvalues.len()).map(row).collect()
}

/// What the certificate says, a sentence each.
pub fn sentences(certificate: &Certificate) -> Vec<String> {
    let k = certificate.residual.len();
    let mut said = vec![trace(certificate, k)];
    said.extend(solver_error(certificate));
    said.extend(beyond_the_sample(certificate));
    said.push(orthonormality(certificate));
    said.extend(standings(certificate));
    said
}

fn trace(certificate: &Certificate, k: usize) -> String {
    let all = if k == 1 { "the pair carries".into() } else { format!("the {k} pairs together carry") };
    format!(
        "Trace: {all} {} of the kernel's total, {}.",
        percent(certificate.trace_captured),
        number(certificate.trace, 4)
    )
}

/// Where the certificate was measured.
fn measured_on(certificate: &Certificate) -> String {
    match certificate.held_out {
        0 => "the fitted points themselves, as none were held out".into(),
        h => format!("{} held out from the fit", count(h, "point")),
    }
}

fn solver_error(certificate: &Certificate) -> Option<String> {
    let (j, worst) = largest(&certificate.residual)?;
    Some(format!("Residual: at most {} (pair {}), measured on {}.", error(worst), j + 1, measured_on(certificate)))
}

/// How many leading pairs are shown to hold beyond the fitted points: averaged over fresh points, the residual and the
/// noise of measuring it stay below a half.
fn beyond_the_sample(certificate: &Certificate) -> Option<String> {
    const CONFIRMED: f64 = 0.5;
    let (residual, noise) = (&certificate.population_residual, &certificate.population_noise);
    let nonzero = residual.iter().flatten().count();
    if certificate.held_out < 10 || nonzero == 0 {
        return None;
    }
    let bounds = residual.iter().zip(noise).map_while(|(r, noise)| Some(r.as_ref()?.max(*noise.as_ref()?)));
    let confirmed: Vec<f64> = bounds.take_while(|bound| *bound < CONFIRMED).collect();
    let worst = confirmed.iter().copied().fold(0.0, f64::max);
    Some(match confirmed.len() {
        0 => "Beyond the sample: no pair is confirmed on fresh points; use more points, or hold out more.".into(),
        m if m == nonzero => {
            format!("Beyond the sample: averaged over fresh points, the residual is at most {}.", percent(worst))
        }
        m => format!(
            "Beyond the sample: averaged over fresh points, the residual of the first {} is at most {}; the others would \
             need more points to be confirmed.",
            if m == 1 { "pair".into() } else { format!("{m} pairs") },
            percent(worst)
        ),
    })
}

fn orthonormality(certificate: &Certificate) -> String {
    let place = if certificate.held_out == 0 { "fitted" } else { "held-out" };
    format!(
        "Orthonormality: inner products on the {place} points are off by at most {}.",
        error(certificate.orthonormality)
    )
}

fn standings(certificate: &Certificate) -> Vec<String> {
    let of = |standing: Standing| -> Vec<usize> {
        (0..certificate.standing.len()).filter(|&j| certificate.standing[j] == standing).map(|j| j + 1).collect()
    };
    let (zero, repeated) = (of(Standing::Zero), of(Standing::Repeated));
    let mut said = Vec::new();
    if let Some(first) = zero.first() {
        said.push(format!("Rank: the kernel has rank {} on this data; pairs from {first} on are zero.", first - 1));
    }
    if !repeated.is_empty() {
        let listed: Vec<String> = repeated.iter().map(usize::to_string).collect();
        said.push(format!(
            "Repeated: the eigenvalues of pairs {} cannot be distinguished from a neighbour's; only the span of such functions is meaningful.",
            listed.join(", ")
        ));
    }
    said
}

/// The largest value and its place.
fn largest(values: &[Option<f64>]) -> Option<(usize, f64)> {
    let known = values.iter().enumerate().filter_map(|(j, v)| v.map(|v| (j, v)));
    known.max_by(|a, b| a.1.total_cmp(&b.1))
}
