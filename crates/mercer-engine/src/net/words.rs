//! The words of an architecture: names with arguments in brackets.

use crate::error::nearest;
use crate::{Error, Result};

/// The widest layer accepted: anything wider is a slip of the fingers.
pub(super) const WIDEST: usize = 1 << 20;

/// `name(positional, …, key=value, …)`
#[derive(Debug, Default)]
pub(super) struct Word {
    pub name: String,
    /// What stands between the brackets, if there are any.
    pub inside: Option<String>,
    positional: Vec<String>,
    named: Vec<(String, String)>,
}

impl Word {
    fn new(name: &str, inside: Option<&str>) -> Word {
        let mut word = Word { name: name.into(), inside: inside.map(String::from), ..Word::default() };
        for argument in inside.unwrap_or("").split(',').map(str::trim).filter(|a| !a.is_empty()) {
            match argument.split_once('=') {
                Some((key, value)) => word.named.push((key.trim().into(), value.trim().into())),
                None => word.positional.push(argument.into()),
            }
        }
        word
    }

    /// Refuses any other number of positional arguments and unknown names.
    pub fn expects(&self, positional: usize, named: &[&str]) -> Result<()> {
        if self.positional.len() != positional {
            let (name, got) = (&self.name, self.positional.len());
            let example = match (name.as_str(), positional) {
                ("conv", _) => "16, 3",
                ("image", _) => "3, 32, 32",
                ("maxpool" | "avgpool", _) => "2",
                _ => "32",
            };
            return Err(Error::input(format!(
                "{name} takes {positional} number(s) in brackets, such as {name}({example}); {got} given"
            )));
        }
        match self.named.iter().find(|(key, _)| !named.contains(&key.as_str())) {
            None => Ok(()),
            Some((key, _)) => {
                let hint =
                    nearest(key, named.iter().copied()).map(|n| format!("; did you mean \"{n}\"?")).unwrap_or_default();
                Err(Error::input(format!("{} has no option \"{key}\"{hint} (known: {})", self.name, named.join(", "))))
            }
        }
    }

    /// Refuses any argument.
    pub fn expects_nothing(&self) -> Result<()> {
        if self.positional.is_empty() && self.named.is_empty() {
            return Ok(());
        }
        Err(Error::input(format!("{} takes no arguments", self.name)))
    }

    /// The first argument, as a width.
    pub fn width(&self) -> Result<usize> {
        self.whole(0, "width")
    }

    /// The `i`-th argument, as a whole number from 1.
    pub fn whole(&self, i: usize, what: &str) -> Result<usize> {
        let text = &self.positional[i];
        text.parse().ok().filter(|w| (1..=WIDEST).contains(w)).ok_or_else(|| {
            let all = self.inside.as_deref().unwrap_or("");
            Error::input(format!("{}({all}): the {what} must be a whole number from 1 to {WIDEST}", self.name))
        })
    }

    /// The option as it was written.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.named.iter().find(|(k, _)| k == key).map(|(_, text)| text.as_str())
    }

    /// The option as a number.
    pub fn option(&self, key: &str, valid: impl Fn(f64) -> bool, range: &str) -> Result<Option<f64>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() && valid(value) => Ok(Some(value)),
            _ => Err(Error::input(format!("{}: {key}={text} must be a number {range}", self.name))),
        }
    }
}

/// Splits into words; brackets, which may hold others, hold arguments, `|` is a word of its own.
pub(super) fn words(text: &str) -> Result<Vec<Word>> {
    let mut words = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        if first == '|' {
            words.push(Word::new("|", None));
            rest = rest[1..].trim_start();
            continue;
        }
        let end = rest.find(|c: char| c.is_whitespace() || c == '(' || c == '|').unwrap_or(rest.len());
        let (name, after) = (&rest[..end], rest[end..].trim_start());
        let Some(inside) = after.strip_prefix('(') else {
            words.push(Word::new(name, None));
            rest = after;
            continue;
        };
        let close = closing(inside).ok_or_else(|| Error::input(format!("\"{name}(\" has no closing bracket")))?;
        words.push(Word::new(name, Some(&inside[..close])));
        rest = inside[close + 1..].trim_start();
    }
    Ok(words)
}

/// Where the bracket closes that was open before `text`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1;
    text.char_indices().find_map(|(i, c)| {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        (depth == 0).then_some(i)
    })
}

/// The parts of the inside of a `res`: body, and what stands after a `;` outside of all brackets.
pub(super) fn branches(inside: &str) -> Vec<&str> {
    let (mut depth, mut parts, mut start) = (0usize, Vec::new(), 0);
    for (i, c) in inside.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ';' if depth == 0 => {
                parts.push(&inside[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[start..]);
    parts
}
