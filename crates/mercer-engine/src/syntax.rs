//! The parser of calls, `name(value, key=value, …)`: kernels, layers and data sets are written so.
//!
//! ```text
//! call     := word [ '(' [ argument (',' argument)* ] ')' ]
//! argument := [ word '=' ] (text in quotes | anything without ',' and ')' but in brackets of its own)
//! ```

use crate::error::{SHOWN, did_you_mean, excerpt};
use crate::{Error, Result, fail_if};
use std::str::FromStr;

/// A name and its arguments, each as it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Call<'a> {
    /// The name.
    pub name: &'a str,
    /// What is between the brackets; nothing where there are none.
    pub arguments: Vec<Argument<'a>>,
}

/// One argument of a [`Call`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Argument<'a> {
    /// Its name, if it was given one.
    pub key: Option<&'a str>,
    /// Its value, without quotes.
    pub value: &'a str,
    /// Whether the value was in quotes.
    pub quoted: bool,
}

impl<'a> Call<'a> {
    /// Reads `text` as one call, whose name may hold any character but `(`; `what` is what error messages call the text.
    ///
    /// ```
    /// use mercer_engine::syntax::Call;
    /// let call = Call::parse("data set", "two-moons(n=500, noise=0.1)")?;
    /// assert_eq!((call.name, call.number("n")?), ("two-moons", Some(500)));
    /// # Ok::<(), mercer_engine::Error>(())
    /// ```
    pub fn parse(what: &'static str, text: &'a str) -> Result<Call<'a>> {
        let end = text.find('(').unwrap_or(text.len());
        let mut scanner = Scanner { what, text, rest: &text[end..], depth: 0 };
        let name = text[..end].trim();
        let call = Call { name, arguments: scanner.arguments(name)? };
        if scanner.peek().is_some() { Err(scanner.error("expected the end after ')'")) } else { Ok(call) }
    }

    /// Refuses more than `most` arguments without a name, names that are not `known`, and names given twice.
    pub fn check(&self, most: usize, known: &[&str]) -> Result<()> {
        let name = self.name;
        fail_if!(most + known.len() == 0 && !self.arguments.is_empty(), "{name} takes no arguments");
        if self.values().count() > most {
            if let (0, [first, ..]) = (most, known) {
                return Err(Error::input(format!("{name}: write its parameters by name, such as {first}=…")));
            }
            return Err(Error::input(format!("{name} takes at most {most} value(s) without a name")));
        }
        let keys: Vec<&str> = self.arguments.iter().filter_map(|a| a.key).collect();
        for (i, key) in keys.iter().enumerate() {
            if !known.contains(key) {
                let hint = did_you_mean(key, known.iter().copied());
                return Err(Error::input(format!("{name} has no parameter '{}'{hint}", excerpt(key))));
            }
            fail_if!(keys[..i].contains(key), "{name}: {key} is given twice");
        }
        Ok(())
    }

    /// The values without a name, in order.
    pub fn values(&self) -> impl Iterator<Item = &'a str> {
        self.arguments.iter().filter(|a| a.key.is_none()).map(|a| a.value)
    }

    /// The value of a name.
    pub fn value(&self, key: &str) -> Option<&'a str> {
        self.arguments.iter().find(|a| a.key == Some(key)).map(|a| a.value)
    }

    /// The value of a name as a number of type `T`.
    pub fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>> {
        let Some(text) = self.value(key) else { return Ok(None) };
        let kind = if std::any::type_name::<T>() == "f64" { "number" } else { "whole number" };
        let bad = |_| Error::input(format!("{}: {key} must be a {kind}, not '{}'", self.name, excerpt(text)));
        text.parse().map(Some).map_err(bad)
    }
}

/// Reads a text from left to right; spaces between words are skipped.
#[derive(Clone, Debug)]
pub struct Scanner<'a> {
    what: &'static str,
    text: &'a str,
    rest: &'a str,
    /// Brackets that are open.
    depth: usize,
}

/// Brackets within brackets, up to this depth: parsers call themselves for each, and what they build is walked through in the
/// same way.
const DEEPEST: usize = 32;

impl<'a> Scanner<'a> {
    /// At the start of `text`; `what` is what error messages call it.
    pub fn new(what: &'static str, text: &'a str) -> Scanner<'a> {
        Scanner { what, text, rest: text, depth: 0 }
    }

    /// The next character that is not a space.
    pub fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    /// Moves over `token`, if it is next.
    pub fn take(&mut self, token: char) -> bool {
        let found = self.peek() == Some(token);
        if found {
            self.rest = &self.rest[token.len_utf8()..];
        }
        found
    }

    /// Reads what is within a bracket; more than 32 within each other are refused.
    pub fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        fail_if!(self.depth == DEEPEST; self.error(&format!("brackets are nested deeper than {DEEPEST}")));
        self.depth += 1;
        let read = read(self);
        self.depth -= 1;
        read
    }

    /// A letter, then letters, digits and `_`.
    pub fn word(&mut self) -> Option<&'a str> {
        self.peek().filter(|c| c.is_alphabetic())?;
        Some(self.split(|_, c| !(c.is_alphanumeric() || c == '_')))
    }

    /// A number such as `-2.5e-3`.
    pub fn number(&mut self) -> Option<f64> {
        self.peek()?;
        let (before, bytes) = (self.rest, self.rest.as_bytes());
        let number = self.split(|i, c| {
            let sign = matches!(c, '-' | '+') && (i == 0 || matches!(bytes[i - 1], b'e' | b'E'));
            !(c.is_ascii_digit() || c == '.' || sign || (i > 0 && matches!(c, 'e' | 'E')))
        });
        number.parse().ok().or_else(|| {
            self.rest = before;
            None
        })
    }

    /// What is in brackets behind `name`; nothing where there are no brackets.
    pub fn arguments(&mut self, name: &str) -> Result<Vec<Argument<'a>>> {
        let mut arguments = vec![];
        if !self.take('(') || self.take(')') {
            return Ok(arguments);
        }
        while self.peek().is_some() {
            arguments.push(self.argument()?);
            if self.take(')') {
                return Ok(arguments);
            }
            fail_if!(!self.take(',') && self.peek().is_some(); self.error("expected ',' or ')'"));
        }
        Err(self.error(&format!("'{name}(' has no closing bracket")))
    }

    fn argument(&mut self) -> Result<Argument<'a>> {
        let start = self.rest;
        let key = self.word().filter(|_| self.take('='));
        if key.is_none() {
            self.rest = start;
        }
        if let Some(quote) = self.peek().filter(|c| matches!(c, '"' | '\'')) {
            let inside = &self.rest[1..];
            let end = inside.find(quote).ok_or_else(|| self.error("the text that begins here has no closing quote"))?;
            self.rest = &inside[end + 1..];
            return Ok(Argument { key, value: &inside[..end], quoted: true });
        }
        // What a value has in brackets of its own belongs to it: act=leaky_relu(0.2), lengthscale=[1, 2].
        let mut depth = 0usize;
        let ends = |_, c| match c {
            ',' | ')' if depth == 0 => true,
            '(' | '[' => {
                depth += 1;
                false
            }
            ')' | ']' => {
                depth = depth.saturating_sub(1);
                false
            }
            _ => false,
        };
        match self.split(ends).trim_end() {
            "" => Err(self.error("expected a value")),
            value => Ok(Argument { key, value, quoted: false }),
        }
    }

    /// Everything up to the first character that ends it.
    fn split(&mut self, mut ends: impl FnMut(usize, char) -> bool) -> &'a str {
        let end = self.rest.char_indices().find(|&(i, c)| ends(i, c)).map_or(self.rest.len(), |(i, _)| i);
        let (before, rest) = self.rest.split_at(end);
        self.rest = rest;
        before
    }

    /// An error at this place of the text; of a long text, its surroundings are shown.
    pub fn error(&self, what: &str) -> Error {
        let (before, behind) = self.text.split_at(self.text.len() - self.rest.len());
        let at = before.chars().count();
        let here = if self.rest.is_empty() { "the end".into() } else { format!("character {}", at + 1) };
        let left: String = before.chars().skip(at.saturating_sub(SHOWN)).collect();
        let right: String = behind.chars().take(SHOWN).collect();
        let dots = |whole: &str, shown: &str| if whole.len() > shown.len() { "…" } else { "" };
        let text = format!("{}{left}{right}{}", dots(before, &left), dots(behind, &right));
        Error::input(format!("{} '{}', at {here}: {what}", self.what, text.trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_arguments_are_read() {
        let call = Call::parse("set", " moons( 7, n = 500, noise=0.1, text='a, (b)' ) ").unwrap();
        assert_eq!((call.name, call.values().collect::<Vec<_>>()), ("moons", vec!["7"]));
        assert_eq!(call.number::<usize>("n").unwrap(), Some(500));
        assert_eq!(call.number::<f64>("noise").unwrap(), Some(0.1));
        assert_eq!(call.number::<u64>("seed").unwrap(), None);
        assert_eq!(call.value("text"), Some("a, (b)"));
        assert_eq!(Call::parse("set", "cifar-10").unwrap().name, "cifar-10");
        assert_eq!(Call::parse("set", "digits()").unwrap().arguments, []);
        let call = Call::parse("set", "net(act=ab_relu(-1, 2), depth=3)").unwrap();
        assert_eq!((call.value("act"), call.value("depth")), (Some("ab_relu(-1, 2)"), Some("3")));
    }

    #[test]
    fn long_texts_are_shown_around_the_mistake() {
        let text = format!("{}!{}", "é ".repeat(500), "b ".repeat(500));
        let mut scanner = Scanner::new("text", &text);
        while scanner.word().is_some() {}
        let message = scanner.error("what is this?").to_string();
        assert!(message.contains("at character 1001: what is this?"), "{message}");
        assert!(message.contains("'…") && message.contains("é é !b b") && message.contains("…'"), "{message}");
        assert!(message.chars().count() < 200);
    }

    #[test]
    fn brackets_are_nested_up_to_a_bound() {
        fn brackets(scanner: &mut Scanner) -> Result<usize> {
            match scanner.take('(') {
                true => scanner.nested(|inner| Ok(brackets(inner)? + 1)),
                false => Ok(0),
            }
        }
        let depth = |count: usize| brackets(&mut Scanner::new("text", &"(".repeat(count)));
        assert_eq!(depth(DEEPEST).unwrap(), DEEPEST);
        assert!(depth(DEEPEST + 1).unwrap_err().to_string().contains("nested deeper than 32"));
        assert!(depth(1_000_000).is_err());
    }

    #[test]
    fn mistakes_are_named() {
        for (malformed, says) in [
            ("moons(", "'moons(' has no closing bracket"),
            ("moons(n=1", "no closing bracket"),
            ("moons(n=1,,)", "at character 11: expected a value"),
            ("moons(n=1) x", "expected the end"),
            ("moons('n", "closing quote"),
            ("moons('n' 2)", "expected ',' or ')'"),
        ] {
            let error = Call::parse("set", malformed).unwrap_err().to_string();
            assert!(error.contains(says), "{malformed}: {error}");
        }
        let message = |text, known: &[&str]| Call::parse("set", text).unwrap().check(0, known).unwrap_err().to_string();
        assert!(message("moons(nois=1)", &["n", "noise"]).contains("did you mean 'noise'?"));
        assert!(message("moons(weight=1)", &["n", "noise"]).contains("(known: n, noise)"));
        assert!(message("moons(n=1, n=2)", &["n"]).contains("twice"));
        assert!(message("moons(5)", &["n"]).contains("such as n="));
        assert!(message("moons(5)", &[]).contains("takes no arguments"));
        let call = Call::parse("set", "moons(n=1.5)").unwrap();
        assert!(call.number::<usize>("n").unwrap_err().to_string().contains("whole number, not '1.5'"));
    }
}
