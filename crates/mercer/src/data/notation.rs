//! Words that look like numbers or dates in a notation that is not read: they would become levels of a category without order.

/// Signs of currencies.
const CURRENCIES: [char; 7] = ['$', '€', '£', '¥', '₹', '₽', '₩'];
const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// What a word looks like: `a number`, such as `1,5`, `1,234.5`, `5%`, `$5` or `−5` (U+2212), or `a date`, such as `31.01.2020`, `01/31/2020
/// 10:00` or `Jan 1 2000`; none for other words, and for numbers that are read.
pub(super) fn notation(word: &str) -> Option<&'static str> {
    let word = word.trim_ascii();
    if word.parse::<f64>().is_ok() || !word.contains(char::is_numeric) {
        return None;
    }
    if is_number(word) {
        return Some("a number");
    }
    (is_date(word) || is_time(word) || has_month(word)).then_some("a date")
}

/// How many of the words look like numbers or dates, and the first that does, if most do.
pub(super) fn mostly(words: &[String]) -> Option<(&str, &'static str)> {
    let mut found = words.iter().filter_map(|word| Some((word.as_str(), notation(word)?)));
    let first = found.next()?;
    (2 * (found.count() + 1) > words.len()).then_some(first)
}

/// Digits of any script with separators of thousands and decimals, a sign, a currency, a percentage.
fn is_number(word: &str) -> bool {
    let around = |c: char| c.is_whitespace() || c == '%' || CURRENCIES.contains(&c);
    let word = word.trim_matches(around).trim_start_matches(['-', '+', '−', '–']).trim_matches(around);
    let separators: Vec<char> = word.chars().filter(|c| !c.is_numeric()).collect();
    let groups: Vec<usize> = word.split(|c: char| !c.is_numeric()).map(|group| group.chars().count()).collect();
    if separators.iter().any(|c| !(matches!(c, ',' | '.' | '\'' | '’') || c.is_whitespace())) || groups.contains(&0) {
        return false;
    }
    let (count, last) = (separators.len(), groups[groups.len() - 1]);
    match separators[..] {
        [] => true,
        [one] => !one.is_whitespace() || last == 3,
        [first, .., end] => {
            let thousands = separators[..count - 1].iter().all(|c| *c == first);
            thousands && groups[0] <= 3 && groups[1..count].iter().all(|len| *len == 3) && (end != first || last == 3)
        }
    }
}

/// Day, month and year in some order, perhaps with a time.
fn is_date(word: &str) -> bool {
    let (date, time) = word.split_once([' ', 'T']).unwrap_or((word, ""));
    let Some(separator) = date.chars().find(|c| matches!(c, '/' | '.' | '-')) else { return false };
    let parts: Vec<&str> = date.trim_end_matches(separator).split(separator).collect();
    let numbers: Option<Vec<u32>> = parts.iter().map(|part| part.parse().ok()).collect();
    let Some([a, b, c]) = numbers.as_deref().and_then(|numbers| <[u32; 3]>::try_from(numbers).ok()) else {
        return false;
    };
    let of_month = |day: u32, month: u32| (1..=31).contains(&day) && (1..=31).contains(&month) && day.min(month) <= 12;
    let year = |part: &str| matches!(part.len(), 2 | 4);
    let fits = parts[0].len() == 4 && of_month(c, b) || year(parts[2]) && of_month(a, b);
    fits && (time.is_empty() || is_time(time))
}

/// Hours, minutes and perhaps seconds.
fn is_time(word: &str) -> bool {
    let word = word.trim().trim_end_matches(['Z', 'z']).trim_end_matches(" AM").trim_end_matches(" PM");
    let parts: Vec<&str> = word.split(':').collect();
    let digits = |part: &&str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit() || c == '.');
    matches!(parts.len(), 2 | 3) && parts.iter().all(digits) && parts[0].len() <= 2 && parts[1].len() == 2
}

/// The name of a month beside numbers, such as `Jan 1 2000` or `31-Jan-00`.
fn has_month(word: &str) -> bool {
    let tokens: Vec<String> =
        word.split(|c: char| !c.is_alphanumeric()).filter(|t| !t.is_empty()).map(str::to_lowercase).collect();
    let is_month = |token: &String| token.len() >= 3 && MONTHS.iter().any(|month| month.starts_with(token.as_str()));
    let is_number = |token: &String| token.len() <= 4 && token.chars().all(|c| c.is_ascii_digit());
    let (months, numbers) =
        (tokens.iter().filter(|t| is_month(t)).count(), tokens.iter().filter(|t| is_number(t)).count());
    months == 1 && (1..=5).contains(&numbers) && months + numbers == tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notations_of_numbers_and_dates_are_known() {
        for word in [
            "1,5",
            "-1,5",
            "1,234.5",
            "1.234,5",
            "1 234,5",
            "1'234.50",
            "5%",
            "5 %",
            "$5",
            "$1,200.00",
            "12,50 €",
            "−5",
            "5\u{a0}",
            "٣٤",
            "1,234,567",
        ] {
            assert_eq!(notation(word), Some("a number"), "{word}");
        }
        for word in [
            "31.01.2020",
            "2020/01/31",
            "01/31/2020 10:00",
            "31-01-20",
            "1/2/03",
            "2010/01/01 00:00:00",
            "Jan 1 2000",
            "31-Jan-00",
            "March 2020",
            "12:30",
            "2020-1-5",
        ] {
            assert_eq!(notation(word), Some("a date"), "{word}");
        }
        for word in [
            "red",
            "5 kg",
            "a1",
            "1.5",
            "12345-678",
            "1.2.3.4",
            "192.168.0.1",
            "555 1234",
            "10-20",
            "A,B",
            "",
            "%",
            "$",
            "may",
            "Mar-a",
            "3 doors",
            "99/99/9999",
            "1-2-3-4",
        ] {
            assert_eq!(notation(word), None, "{word}");
        }
    }
}
