//! Options of estimators, as JSON.

use mercer::options::Spelling;
use mercer::{Error, Result};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// Options by name; those that are taken are known, and what is left in the end is an error.
pub struct Options(Map<String, Value>);

impl Options {
    pub fn parse(json: &str) -> Result<Options> {
        serde_json::from_str(json).map(Options).map_err(|e| Error::input(format!("options must be a JSON object: {e}")))
    }

    /// The option, where it is given and not null.
    pub fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => T::deserialize(&value).map(Some).map_err(|_| {
                Error::input(format!("{name}={value} cannot be used: it is of another type than the option"))
            }),
        }
    }

    /// The option, which must be given.
    pub fn need<T: DeserializeOwned>(&mut self, name: &str) -> Result<T> {
        self.take(name)?.ok_or_else(|| Error::input(format!("the option '{name}' is missing")))
    }

    /// The option by one of a few words.
    pub fn word<T: Copy>(&mut self, name: &str, words: &[(&'static str, T)]) -> Result<Option<T>> {
        let Some(text) = self.take::<String>(name)? else { return Ok(None) };
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
        let known = words.iter().map(|(word, _)| *word);
        found.map(Some).ok_or_else(|| Error::unknown(name, &text, known))
    }

    /// What is left, as an entry of the library's registry takes it.
    pub fn rest(&mut self) -> mercer::options::Options {
        mercer::options::Options::new(std::mem::take(&mut self.0), Spelling::Python)
    }

    /// The method that the options name, or else what they are for.
    pub fn method(&self, kind: &str) -> String {
        format!("the method {}", self.0.get("method").and_then(Value::as_str).unwrap_or(kind))
    }

    /// Refuses options that `what` does not have.
    pub fn finish(&self, what: &str) -> Result<()> {
        match self.0.iter().find(|(_, value)| !value.is_null()) {
            None => Ok(()),
            Some((name, _)) => Err(Error::input(format!("{what} has no option '{name}'; leave it out"))),
        }
    }
}
