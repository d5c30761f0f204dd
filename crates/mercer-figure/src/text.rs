//! Numbers and tables as plain text.

/// The longest line of a table, in characters.
const LONGEST_LINE: usize = 100;

/// Characters between two columns.
const GUTTER: usize = 2;

/// A table with headings: columns of numbers are aligned to the right, others to the left. Where lines would be longer than
/// 100 characters, long headings and texts take several lines; where that is not enough, the table is cut into parts with fewer
/// columns, one below the other, each of which begins with the first column.
pub fn table(headings: &[impl AsRef<str>], rows: &[Vec<String>]) -> String {
    let narrow = narrowed(headings, rows);
    let rows = narrow.as_deref().unwrap_or(rows);
    let cells: Vec<usize> =
        (0..headings.len()).map(|j| rows.iter().map(|row| length(&row[j])).max().unwrap_or(0)).collect();
    let widths = |headings: &[Vec<String>]| -> Vec<usize> {
        let longest = |lines: &Vec<String>| lines.iter().map(|line| length(line)).max().unwrap_or(0);
        headings.iter().zip(&cells).map(|(lines, cells)| longest(lines).max(*cells) + GUTTER).collect()
    };
    let most = LONGEST_LINE + GUTTER;
    let mut lines: Vec<Vec<String>> = headings.iter().map(|heading| vec![heading.as_ref().to_owned()]).collect();
    if widths(&lines).iter().sum::<usize>() > most {
        lines = headings.iter().zip(&cells).map(|(heading, cells)| wrapped(heading.as_ref(), *cells)).collect();
    }
    let widths = widths(&lines);
    let parts = parts(&widths, 1, most);
    parts.iter().map(|columns| part(&lines, rows, columns, &widths)).collect::<Vec<_>>().join("\n")
}

/// The rows of a table that is too wide, with the texts of columns after the first on several lines; `None` where that is not
/// needed, or not enough.
fn narrowed(headings: &[impl AsRef<str>], rows: &[Vec<String>]) -> Option<Vec<Vec<String>>> {
    const LEAST: usize = 24;
    let columns = headings.len();
    let is_text: Vec<bool> = (0..columns).map(|j| j > 0 && !is_numeric(rows, j)).collect();
    let width = |j: usize, most: usize| {
        let cells = rows.iter().map(|row| length(&row[j])).max().unwrap_or(0);
        let word = headings[j].as_ref().split([' ', '-']).map(length).max().unwrap_or(0);
        if is_text[j] { cells.min(most) } else { cells }.max(word) + GUTTER
    };
    let fits = |most: &usize| (0..columns).map(|j| width(j, *most)).sum::<usize>() <= LONGEST_LINE + GUTTER;
    if fits(&usize::MAX) {
        return None;
    }
    let most = (LEAST..LONGEST_LINE).rev().find(fits)?;
    let lines = rows.iter().flat_map(|row| {
        let lines = |(j, cell): (usize, &String)| if is_text[j] { wrapped(cell, most) } else { vec![cell.clone()] };
        let cells: Vec<Vec<String>> = row.iter().enumerate().map(lines).collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(0);
        let line = move |i: usize| cells.iter().map(|lines| lines.get(i).cloned().unwrap_or_default()).collect();
        (0..height).map(line)
    });
    Some(lines.collect())
}

/// Number of characters.
fn length(text: &str) -> usize {
    text.chars().count()
}

/// Some columns of a table; headings are at the bottom of their lines.
fn part(headings: &[Vec<String>], rows: &[Vec<String>], columns: &[usize], widths: &[usize]) -> String {
    let right: Vec<bool> = columns.iter().map(|&j| is_numeric(rows, j)).collect();
    let line = |cell: &dyn Fn(usize) -> String| {
        let mut line = String::new();
        for (&j, right) in columns.iter().zip(&right) {
            let (cell, width) = (cell(j), widths[j] - GUTTER);
            line += &if *right { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            line += &" ".repeat(GUTTER);
        }
        line.truncate(line.trim_end().len());
        line + "\n"
    };
    let height = columns.iter().map(|&j| headings[j].len()).max().unwrap_or(0);
    let heading = |i: usize| {
        line(&|j| {
            let i = (i + headings[j].len()).checked_sub(height);
            i.map(|i| headings[j][i].clone()).unwrap_or_default()
        })
    };
    let rows = rows.iter().map(|row| line(&|j| row[j].clone()));
    (0..height).map(heading).chain(rows).collect()
}

/// The columns of each part of a table that must not be wider than `limit`: the first `key` of them, and some of the others.
/// Where one column alone is too wide, so is its part.
pub(crate) fn parts(widths: &[usize], key: usize, limit: usize) -> Vec<Vec<usize>> {
    let key: Vec<usize> = (0..key.min(widths.len())).collect();
    let others: Vec<usize> = (key.len()..widths.len()).collect();
    let width = |columns: &[usize]| columns.iter().map(|&j| widths[j]).sum::<usize>();
    let cut = |count: usize| others.chunks(others.len().div_ceil(count).max(1));
    let fits = |count: &usize| cut(*count).all(|part| width(&key) + width(part) <= limit);
    let most = others.len().max(1);
    let found = cut((1..=most).find(fits).unwrap_or(most)).map(|part| [&key, part].concat()).collect::<Vec<_>>();
    if found.is_empty() { vec![key] } else { found }
}

/// Words on lines of at most `width` characters, or of the longest word; a word may end at a hyphen.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let words: Vec<&str> = text.split_inclusive([' ', '-']).collect();
    let width = words.iter().map(|word| length(word.trim_end())).max().unwrap_or(0).max(width);
    let mut lines = vec![String::new()];
    for word in words {
        match lines.last_mut() {
            Some(line) if length(line) + length(word.trim_end()) <= width => line.push_str(word),
            _ => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().map(|line| line.trim_end().to_owned()).collect()
}

/// The length of the longest word.
pub(crate) fn longest_word(text: &str) -> usize {
    text.split_whitespace().map(length).max().unwrap_or(0)
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
    fn wide_tables_wrap_their_headings_and_then_split() {
        let longest = |text: &str| text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let row = |cells: usize| vec![[vec!["a method".into()], vec!["1.234567".into(); cells]].concat()];
        let headings = |cells: usize| [vec!["method"], vec!["error of the eigenvalue"; cells]].concat();
        // 8 + 4·(2 + 23) = 108 characters with one line of headings.
        let wrapped = table(&headings(4), &row(4));
        assert!(longest(&wrapped) <= 100 && wrapped.lines().count() == 4, "{wrapped}");
        assert!(wrapped.starts_with("            error of    error of"), "{wrapped}");
        let split = table(&headings(20), &row(20));
        assert!(longest(&split) <= 100, "{split}");
        assert_eq!(split.matches("1.234567").count(), 20);
        assert_eq!(split.matches("a method").count(), 3, "each part has the first column");
        let words =
            table(&["name", "text"], &[vec!["a".into(), "some words ".repeat(20)], vec!["b".into(), "few".into()]]);
        assert!(longest(&words) <= 100 && words.lines().count() == 5, "{words}");
        assert!(words.lines().nth(2).unwrap().starts_with("      words some"), "{words}");
        let wide = table(&["name"], &[vec!["x".repeat(150)]]);
        assert!(wide.contains(&"x".repeat(150)), "nothing is cut off");
    }

    #[test]
    fn parts_hold_every_column_once_and_the_key_always() {
        assert_eq!(parts(&[10, 5, 5, 5, 5], 1, 100), [vec![0, 1, 2, 3, 4]]);
        assert_eq!(parts(&[10, 5, 5, 5, 5], 1, 20), [vec![0, 1, 2], vec![0, 3, 4]]);
        assert_eq!(parts(&[10, 5, 90, 5], 2, 20), [vec![0, 1, 2], vec![0, 1, 3]]);
        assert_eq!(parts(&[10], 1, 5), [vec![0]]);
    }

    #[test]
    fn columns_are_aligned() {
        let rows = [vec!["a".into(), "1.5".into()], vec!["bcd".into(), GAP.into()], vec![GAP.into(), "60 000".into()]];
        assert_eq!(table(&["name", "n"], &rows), "name       n\na        1.5\nbcd        –\n–     60 000\n");
    }
}
