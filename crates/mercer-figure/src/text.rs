//! Numbers and tables as plain text.

/// A table with headings: columns of numbers are aligned to the right, others to the left.
pub fn table(headings: &[impl AsRef<str>], rows: &[Vec<String>]) -> String {
    let headings: Vec<&str> = headings.iter().map(AsRef::as_ref).collect();
    let width = |j: usize| {
        let cells = rows.iter().map(|row| row[j].chars().count());
        cells.chain([headings[j].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let right: Vec<bool> = (0..headings.len()).map(|j| is_numeric(rows, j)).collect();
    let line = |cells: &[&str]| {
        let mut line = String::new();
        for (j, cell) in cells.iter().enumerate() {
            let (gap, width) = (if j == 0 { "" } else { "  " }, widths[j]);
            line += &if right[j] { format!("{gap}{cell:>width$}") } else { format!("{gap}{cell:<width$}") };
        }
        line.truncate(line.trim_end().len());
        line + "\n"
    };
    let rows = rows.iter().map(|row| line(&row.iter().map(String::as_str).collect::<Vec<_>>()));
    [line(&headings)].into_iter().chain(rows).collect()
}

/// Whether every cell of column `j` is a number or a gap, and one is a number.
fn is_numeric(rows: &[Vec<String>], j: usize) -> bool {
    let mut cells = rows.iter().map(|row| row[j].as_str()).filter(|c| !c.is_empty() && *c != GAP).peekable();
    cells.peek().is_some() && cells.all(|c| c.replace(' ', "").parse::<f64>().is_ok())
}

/// Shown where there is no value.
pub const GAP: &str = "–";

/// `value` to `digits` significant digits, in scientific notation where it is very small or very large.
pub fn number(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let exponent = value.abs().log10().floor() as i32;
    if !(-4..6).contains(&exponent) {
        return format!("{value:.*e}", digits - 1);
    }
    format!("{value:.*}", (digits as i32 - 1 - exponent).max(0) as usize)
}

/// `value` to four digits, without zeros at the end.
pub fn short(value: f64) -> String {
    let shown = number(value, 4);
    let (digits, exponent) = shown.split_at(shown.find('e').unwrap_or(shown.len()));
    let digits = if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits };
    format!("{digits}{exponent}")
}

/// An error or a residual: two digits.
pub fn error(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        0.01..1000.0 => number(value, 2),
        _ => format!("{value:.1e}"),
    }
}

/// A share as a percentage; less than 1 is never rounded up to 100 %.
pub fn percent(share: f64) -> String {
    let shown = 100.0 * share;
    if (99.95..100.0).contains(&shown) { format!("{:.6} %", shown.min(99.999_999)) } else { format!("{shown:.1} %") }
}

/// A kernel expression with its numbers rounded to six digits, for display only.
pub fn rounded(expression: &str) -> String {
    let is_digit = |c: &char| c.is_ascii_digit() || *c == '.';
    let characters: Vec<char> = expression.chars().collect();
    let runs = characters.chunk_by(|a, b| is_digit(a) == is_digit(b)).map(|run| run.iter().collect::<String>());
    let shown = |run: String| match run.parse() {
        Ok(value) if run.contains('.') && run.len() > 8 => number(value, 6),
        _ => run,
    };
    runs.map(shown).collect()
}

/// A duration for display.
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 0.1 => format!("{:.1} ms", 1e3 * s),
        s if s < 120.0 => format!("{s:.2} s"),
        s => format!("{} min {} s", (s / 60.0) as u64, (s % 60.0) as u64),
    }
}

/// `1 point`, `2 points`, `12 000 points`.
pub fn count(n: usize, noun: &str) -> String {
    format!("{} {noun}{}", grouped(n), if n == 1 { "" } else { "s" })
}

/// With a space between thousands: `60 000`.
pub fn grouped(n: usize) -> String {
    in_groups(&n.to_string(), " ")
}

/// Digits with a separator between thousands from 10 000 on.
pub(crate) fn in_groups(digits: &str, separator: &str) -> String {
    let size = if digits.len() > 4 { 3 } else { 4 };
    let groups = digits.as_bytes().rchunks(size).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(separator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_significant_digits() {
        assert_eq!(number(0.123_456_789, 6), "0.123457");
        assert_eq!(number(12.345_678_9, 6), "12.3457");
        assert_eq!(number(1.5e-7, 3), "1.50e-7");
        assert_eq!(number(2e9, 3), "2.00e9");
        assert_eq!(number(0.0, 6), "0");
        assert_eq!(number(-0.5, 2), "-0.50");
        assert_eq!([short(0.01), short(1e-8), short(1234.5), short(2.0)], ["0.01", "1e-8", "1234", "2"]);
        assert_eq!([error(2.5), error(0.21), error(3e-15)], ["2.5", "0.21", "3.0e-15"]);
        assert_eq!(percent(0.5), "50.0 %");
        assert_eq!(percent(1.0), "100.0 %");
        assert_eq!(percent(0.999_999_999_9), "99.999999 %");
        assert_eq!(count(60_000, "point"), "60 000 points");
        assert_eq!(count(1, "row"), "1 row");
    }

    #[test]
    fn only_long_numbers_are_rounded() {
        let long = "0.5*rbf(lengthscale=49.13247398615299) + matern52(2)";
        assert_eq!(rounded(long), "0.5*rbf(lengthscale=49.1325) + matern52(2)");
        assert_eq!(rounded("poly(degree=4)"), "poly(degree=4)");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".into(), "1.5".into()], vec!["bcd".into(), GAP.into()], vec![GAP.into(), "60 000".into()]];
        assert_eq!(table(&["name", "n"], &rows), "name       n\na        1.5\nbcd        –\n–     60 000\n");
    }
}
