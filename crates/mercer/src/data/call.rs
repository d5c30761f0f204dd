//! A set's name with its parameters: `moons(n=500, noise=0.1)`.

use std::str::FromStr;

use crate::error::nearest;
use crate::{Error, Result};

/// A name and the parameters after it, each as it was written.
#[derive(Debug, PartialEq)]
pub(super) struct Call<'a> {
    pub name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Call<'a> {
    /// Reads `name` or `name(key=value, key=value)`; `None` when `source` does not have that form.
    pub fn parse(source: &'a str) -> Option<Call<'a>> {
        let source = source.trim();
        let Some((name, rest)) = source.split_once('(') else { return Some(Call { name: source, parameters: vec![] }) };
        let inside = rest.strip_suffix(')')?.trim();
        let parameters = if inside.is_empty() {
            vec![]
        } else {
            inside
                .split(',')
                .map(|p| p.split_once('=').map(|(key, value)| (key.trim(), value.trim())))
                .collect::<Option<_>>()?
        };
        Some(Call { name: name.trim(), parameters })
    }

    /// Refuses parameters that are not `known`, and parameters given twice.
    pub fn only(&self, known: &[&str]) -> Result<()> {
        for (i, (key, _)) in self.parameters.iter().enumerate() {
            if !known.contains(key) {
                let hint = match nearest(key, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None if known.is_empty() => "it has none".into(),
                    None => format!("it has {}", known.join(", ")),
                };
                return Err(Error::input(format!("`{}` has no parameter `{key}`; {hint}", self.name)));
            }
            if self.parameters[..i].iter().any(|(other, _)| other == key) {
                return Err(Error::input(format!("`{}` is given the parameter `{key}` twice", self.name)));
            }
        }
        Ok(())
    }

    /// The parameter as it was written.
    pub fn text(&self, key: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(k, _)| *k == key).map(|(_, value)| *value)
    }

    /// The parameter as a number.
    pub fn number<T: FromStr>(&self, key: &str) -> Result<Option<T>> {
        let Some(text) = self.text(key) else { return Ok(None) };
        let bad = |_| {
            let kind = if std::any::type_name::<T>() == "f64" { "number" } else { "whole number" };
            Error::input(format!("`{}`: {key} must be a {kind}, not `{text}`", self.name))
        };
        text.parse().map(Some).map_err(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_parameters_are_read() {
        let call = Call::parse(" moons( n = 500, noise=0.1 ) ").unwrap();
        assert_eq!(call.name, "moons");
        assert_eq!(call.number::<usize>("n").unwrap(), Some(500));
        assert_eq!(call.number::<f64>("noise").unwrap(), Some(0.1));
        assert_eq!(call.number::<u64>("seed").unwrap(), None);
        assert_eq!(Call::parse("digits").unwrap().name, "digits");
        assert_eq!(Call::parse("digits()").unwrap().parameters, []);
    }

    #[test]
    fn mistakes_are_named() {
        for malformed in ["moons(", "moons(n)", "moons(n=1", "moons(n=1,,)", "moons(n=1) x"] {
            assert_eq!(Call::parse(malformed), None, "{malformed}");
        }
        let message = |source, known: &[&str]| Call::parse(source).unwrap().only(known).unwrap_err().to_string();
        assert!(message("moons(nois=1)", &["n", "noise"]).contains("did you mean `noise`?"));
        assert!(message("moons(weight=1)", &["n", "noise"]).contains("it has n, noise"));
        assert!(message("moons(n=1, n=2)", &["n"]).contains("twice"));
        let call = Call::parse("moons(n=1.5)").unwrap();
        assert!(call.number::<usize>("n").unwrap_err().to_string().contains("whole number, not `1.5`"));
    }
}
