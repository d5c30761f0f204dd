//! A certificate in words and in rows, and the origin of a fit in words.

use crate::text::{GAP, count, error, number, percent, rounded, seconds};
use mercer::spectrum::{Certificate, Origin, Standing};
use std::ops::Range;

/// A kernel expression in which at most three of the lengthscales of columns are shown.
pub fn shortened(kernel: &str) -> String {
    let parts = kernel.split_inclusive(']').map(|part| match part.split_once('[') {
        Some((before, list)) if list.matches(',').count() > 2 => {
            let first: Vec<&str> = list.split(',').take(3).collect();
            format!("{before}[{}, …]", first.join(","))
        }
        _ => part.to_owned(),
    });
    parts.collect()
}

/// The kernel, the data (`on_data` is such as `of digits`), its size, what else is known of it, the method and its time.
pub fn origin(origin: &Origin, on_data: &str, more: &str) -> String {
    let kernel = rounded(&shortened(&origin.kernel));
    let (points, columns) = (count(origin.n, "point"), count(origin.d, "column"));
    format!("{kernel} {on_data}: {points} of {columns}{more}, by {} in {}", origin.method, seconds(origin.seconds))
}

/// The headings of [`rows`].
pub const HEADINGS: [&str; 5] = ["j", "eigenvalue", "95 % interval", "residual", "standing"];

/// One row a pair; of many pairs, one row for each of the first and the last, and one for each range between them, with the
/// largest residual in it.
pub fn rows(eigenvalues: &[f64], certificate: &Certificate) -> Vec<Vec<String>> {
    ranges(eigenvalues.len()).into_iter().map(|pairs| row(eigenvalues, certificate, pairs)).collect()
}

/// The row of some pairs that follow each other.
fn row(eigenvalues: &[f64], certificate: &Certificate, pairs: Range<usize>) -> Vec<String> {
    let (first, last) = (pairs.start, pairs.end - 1);
    let joined = |a: String, b: String, by: &str| if first == last || a == b { a } else { format!("{a}{by}{b}") };
    let intervals: Vec<[f64; 2]> = certificate.interval[pairs.clone()].iter().flatten().copied().collect();
    let lowest = intervals.iter().map(|i| i[0]).reduce(f64::min);
    let highest = intervals.iter().map(|i| i[1]).reduce(f64::max);
    let worst = certificate.residual[pairs.clone()].iter().flatten().copied().reduce(f64::max);
    let standings: Vec<String> =
        certificate.standing[pairs].iter().map(|standing| format!("{standing:?}").to_lowercase()).collect();
    vec![
        joined((first + 1).to_string(), (last + 1).to_string(), "–"),
        joined(number(eigenvalues[first], 6), number(eigenvalues[last], 6), " … "),
        lowest.zip(highest).map_or(GAP.into(), |(low, high)| format!("{} … {}", number(low, 4), number(high, 4))),
        worst.map_or(GAP.into(), |worst| format!("{}{}", if first == last { "" } else { "≤ " }, error(worst))),
        counted(&standings),
    ]
}

/// Whether some of the [`rows`] of `k` pairs are ranges.
pub fn has_ranges(k: usize) -> bool {
    k > MOST
}

/// Pairs that all have a row of their own.
const MOST: usize = 30;

/// Pairs that have a row of their own before and after the ranges.
const HEAD: usize = 10;
const TAIL: usize = 5;

/// The pairs of each row: one, or more between the first and the last of many. Ranges end at 20, 50, 100, 200, …
fn ranges(k: usize) -> Vec<Range<usize>> {
    let single = |pairs: Range<usize>| pairs.map(|j| j..j + 1);
    if k <= MOST {
        return single(0..k).collect();
    }
    let (mut found, last): (Vec<Range<usize>>, usize) = (single(0..HEAD).collect(), k - TAIL);
    let mut start = HEAD;
    for end in (1..).flat_map(|power: u32| [2, 5, 10].map(|digit| digit * 10usize.pow(power))) {
        found.push(start..end.min(last));
        start = end;
        if end >= last {
            break;
        }
    }
    found.extend(single(last..k));
    found
}

/// `simple`, or how many there are of each, `simple 7, repeated 3`.
fn counted(words: &[String]) -> String {
    let mut counts: Vec<(&String, usize)> = vec![];
    for word in words {
        match counts.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => counts.push((word, 1)),
        }
    }
    match &counts[..] {
        [(word, _)] => word.to_string(),
        many => many.iter().map(|(word, count)| format!("{word} {count}")).collect::<Vec<_>>().join(", "),
    }
}

/// Numbers in words: `2, 5–9, 12`.
fn listed(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let run = |run: &[usize]| match run {
        [first, _, .., last] => format!("{first}–{last}"),
        few => few.iter().map(usize::to_string).collect::<Vec<_>>().join(", "),
    };
    runs.map(run).collect::<Vec<_>>().join(", ")
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
    let mut said = match certificate.negative {
        0.0 => vec![format!("Trace: {carriers} {captured} of the kernel's total, {total}.")],
        share => vec![
            format!("Trace: {carriers} {captured} of the sum of absolute eigenvalues."),
            format!(
                "Indefinite: negative eigenvalues hold {} of that sum; no function belongs to them.",
                percent(share)
            ),
        ],
    };
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
    let listed = |pairs: Vec<usize>| -> Option<String> { (!pairs.is_empty()).then(|| listed(&pairs)) };
    let rank = of(Standing::Zero).first().map(|first| match certificate.negative {
        0.0 => format!("Rank: the kernel has rank {} on this data; pairs from {first} on are zero.", first - 1),
        _ => format!("Rank: the matrix has {} positive eigenvalues; pairs from {first} on are zero.", first - 1),
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pairs_are_head_ranges_and_tail_and_none_is_left_out() {
        for k in [1, 30, 31, 35, 50, 55, 56, 300, 1000, 12_345] {
            let found = ranges(k);
            let all: Vec<usize> = found.iter().cloned().flatten().collect();
            assert!(all.into_iter().eq(0..k), "{k}: {found:?}");
            assert!(found.len() <= 30 && found.iter().all(|pairs| !pairs.is_empty()), "{k}: {found:?}");
        }
        let ends: Vec<[usize; 2]> = ranges(300)[HEAD..15].iter().map(|pairs| [pairs.start + 1, pairs.end]).collect();
        assert_eq!(ends, [[11, 20], [21, 50], [51, 100], [101, 200], [201, 295]]);
        assert_eq!(ranges(300).len(), HEAD + 5 + TAIL);
    }

    #[test]
    fn numbers_and_words_are_listed_in_short() {
        assert_eq!(listed(&[2, 3, 5, 6, 7, 8, 12]), "2, 3, 5–8, 12");
        assert_eq!(counted(&["simple", "simple"].map(String::from)), "simple");
        assert_eq!(counted(&["simple", "zero", "simple"].map(String::from)), "simple 2, zero 1");
    }
}
