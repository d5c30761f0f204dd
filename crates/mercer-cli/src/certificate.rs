//! A certificate in words and in rows, and the origin of a fit in words.

use crate::text::{GAP, count, error, number, percent, rounded, seconds};
use mercer::spectrum::{Certificate, Origin, Standing};

/// The kernel, the data (`on_data` is such as `of digits`), its size, what else is known of it, the method and its time.
pub fn origin(origin: &Origin, on_data: &str, more: &str) -> String {
    let (kernel, points, columns) = (rounded(&origin.kernel), count(origin.n, "point"), count(origin.d, "column"));
    format!("{kernel} {on_data}: {points} of {columns}{more}, by {} in {}", origin.method, seconds(origin.seconds))
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
            format!("{:?}", certificate.standing[j]).to_lowercase(),
        ]
    };
    (0..eigenvalues.len()).map(row).collect()
}

/// What the certificate says, a sentence each.
pub fn sentences(certificate: &Certificate) -> Vec<String> {
    let carriers = match certificate.residual.len() {
        1 => "the pair carries".into(),
        k => format!("the {k} pairs together carry"),
    };
    let (measured_on, place) = match certificate.held_out {
        0 => ("the fitted points themselves, as none were held out".into(), "fitted"),
        h => (format!("{} held out from the fit", count(h, "point")), "held-out"),
    };
    let (captured, total) = (percent(certificate.trace_captured), number(certificate.trace, 4));
    let mut said = vec![format!("Trace: {carriers} {captured} of the kernel's total, {total}.")];
    let residuals = certificate.residual.iter().enumerate().filter_map(|(j, r)| Some((j + 1, (*r)?)));
    if let Some((pair, worst)) = residuals.max_by(|a, b| a.1.total_cmp(&b.1)) {
        let rounding = certificate.rounding[pair - 1].filter(|rounding| worst <= *rounding);
        let rounding = if rounding.is_some() { "; rounding of kernel values explains it" } else { "" };
        said.push(format!("Residual: at most {} (pair {pair}), measured on {measured_on}{rounding}.", error(worst)));
    }
    said.extend(beyond_the_sample(certificate));
    let off = error(certificate.orthonormality);
    said.push(format!("Orthonormality: inner products on the {place} points are off by at most {off}."));
    said.extend(standings(certificate));
    said
}

/// How many leading pairs are shown to hold beyond the fitted points: averaged over fresh points, the residual is below a half
/// with 95 % confidence.
fn beyond_the_sample(certificate: &Certificate) -> Option<String> {
    const CONFIRMED: f64 = 0.5;
    let nonzero = certificate.residual.iter().flatten().count();
    if certificate.held_out < 10 || nonzero == 0 {
        return None;
    }
    let bounds = certificate.population_bound.iter().map_while(|bound| *bound);
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

fn standings(certificate: &Certificate) -> impl Iterator<Item = String> {
    let of = |standing: Standing| -> Vec<usize> {
        (0..certificate.standing.len()).filter(|&j| certificate.standing[j] == standing).map(|j| j + 1).collect()
    };
    let listed = |pairs: Vec<usize>| -> Option<String> {
        (!pairs.is_empty()).then(|| pairs.iter().map(usize::to_string).collect::<Vec<_>>().join(", "))
    };
    let rank = of(Standing::Zero)
        .first()
        .map(|first| format!("Rank: the kernel has rank {} on this data; pairs from {first} on are zero.", first - 1));
    let repeated = listed(of(Standing::Repeated)).map(|pairs| {
        format!("Repeated: on this data, pairs {pairs} have the eigenvalue of a neighbour; only the span of such functions is meaningful.")
    });
    let unresolved = listed(of(Standing::Unresolved)).map(|pairs| {
        format!(
            "Unresolved: this many points cannot tell the eigenvalues of pairs {pairs} from a neighbour's; another sample may mix \
             such functions, and only their span is meaningful."
        )
    });
    let cut = certificate.cuts_group.then(|| {
        let last = certificate.standing.len();
        format!(
            "Cut: pair {} may have the eigenvalue of pair {last}; ask for more pairs to have the whole group.",
            last + 1
        )
    });
    rank.into_iter().chain(repeated).chain(unresolved).chain(cut)
}
