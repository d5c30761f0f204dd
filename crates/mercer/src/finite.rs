//! The numbers of a value that are not finite. Files hold none, and no fitted value has one.

use crate::{Error, Result, fail_if};
use ndarray::{Array2, ArrayView1, ArrayView2, Axis};
use serde::ser::{self, Serialize, Serializer};
use std::fmt;

/// The first number in the value called `name`, as serde shows it, that is NaN or infinite: `alpha is inf`,
/// `certificate.residual, entry 3 is NaN`.
pub(crate) fn non_finite(name: &str, value: &(impl Serialize + ?Sized)) -> Option<String> {
    let found = Search::field(name, value).err()?;
    found.value.map(|number| format!("{} is {number}", found.place))
}

/// The JSON of a file's header. JSON has no NaN and no infinity: a header with one could not be read again, and is refused.
pub(crate) fn finite_json(header: &impl Serialize) -> std::result::Result<String, String> {
    match non_finite("the header", header) {
        Some(what) => Err(format!("is not written, because a number in it is not finite ({what})")),
        None => serde_json::to_string(header).map_err(|e| e.to_string()),
    }
}

/// The first row of a matrix `[n, m]` with a NaN or an infinity, and that number.
pub(crate) fn non_finite_row(matrix: ArrayView2<f64>) -> Option<(usize, f64)> {
    // Whole rows at a time, without an early end, so that the loop becomes vector code.
    let bad = |row: &ArrayView1<f64>| row.iter().fold(false, |bad, v| bad | !v.is_finite());
    let i = matrix.axis_iter(Axis(0)).position(|row| bad(&row))?;
    matrix.row(i).iter().find(|v| !v.is_finite()).map(|v| (i, *v))
}

/// Results at points, `outputs` rows `[·, m]` for each; refuses a row with a number that is not finite. `what` names them.
pub(crate) fn finite_rows(what: &str, values: Array2<f64>, outputs: usize) -> Result<Array2<f64>> {
    match non_finite_row(values.view()) {
        None => Ok(values),
        Some((i, value)) => Err(Error::Numerical(format!(
            "{what} of row {} (counted from 1) is {value}: the kernel of that point with those of the fit is too large or too \
             small to be computed; scale the data, or leave the row out",
            i / outputs.max(1) + 1
        ))),
    }
}

/// Refuses targets so small that the squares of their errors are lost; zeros have none.
pub(crate) fn check_squares(targets: &[f64]) -> Result<()> {
    /// The square of an error of 1e-12 of such a target is still a normal number.
    const LEAST: f64 = 1e-140;
    let largest = targets.iter().fold(0.0f64, |most, y| most.max(y.abs()));
    fail_if!(
        largest > 0.0 && largest < LEAST,
        "the targets are {largest:e} at most, so small that their squared errors are lost in double precision; multiply them by a number"
    );
    Ok(())
}

/// Walks through a value; the "error" that ends the walk is what it looks for.
struct Search {
    /// Entries of a list seen so far.
    entry: usize,
}

/// A number that is not finite, and where it is.
#[derive(Debug)]
struct Found {
    /// Names of the fields and positions in lists on the way to it.
    place: String,
    /// None where serde itself failed, which is none of our business here.
    value: Option<f64>,
}

impl Found {
    fn inside(self, field: &str) -> Found {
        let dot = if self.place.is_empty() || self.place.starts_with(',') { "" } else { "." };
        Found { place: format!("{field}{dot}{}", self.place), ..self }
    }

    fn in_entry(self, i: usize) -> Found {
        let space = if self.place.is_empty() || self.place.starts_with(',') { "" } else { " " };
        Found { place: format!(", entry {i}{space}{}", self.place), ..self }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {:?}", self.place, self.value)
    }
}

impl std::error::Error for Found {}

impl ser::Error for Found {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Found { place: String::new(), value: None }
    }
}

type Walk = Result<(), Found>;

impl Search {
    fn next(&mut self, value: &(impl Serialize + ?Sized)) -> Walk {
        self.entry += 1;
        value.serialize(Search { entry: 0 }).map_err(|found| found.in_entry(self.entry))
    }

    fn field(name: &str, value: &(impl Serialize + ?Sized)) -> Walk {
        value.serialize(Search { entry: 0 }).map_err(|found| found.inside(name))
    }
}

/// Values that hold no floating-point number.
macro_rules! passed {
    ($($method:ident($($type:ty),*);)*) => {$(
        fn $method(self, $(_: $type),*) -> Walk {
            Ok(())
        }
    )*};
}

/// Lists and records are walked through in order.
macro_rules! begun {
    ($($method:ident($($type:ty),*) -> $Compound:ident;)*) => {$(
        fn $method(self, $(_: $type),*) -> Result<Self::$Compound, Found> {
            Ok(self)
        }
    )*};
}

impl Serializer for Search {
    type Ok = ();
    type Error = Found;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    passed! {
        serialize_bool(bool);
        serialize_i8(i8);
        serialize_i16(i16);
        serialize_i32(i32);
        serialize_i64(i64);
        serialize_u8(u8);
        serialize_u16(u16);
        serialize_u32(u32);
        serialize_u64(u64);
        serialize_char(char);
        serialize_str(&str);
        serialize_bytes(&[u8]);
        serialize_none();
        serialize_unit();
        serialize_unit_struct(&'static str);
        serialize_unit_variant(&'static str, u32, &'static str);
    }

    begun! {
        serialize_seq(Option<usize>) -> SerializeSeq;
        serialize_tuple(usize) -> SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> SerializeTupleVariant;
        serialize_map(Option<usize>) -> SerializeMap;
        serialize_struct(&'static str, usize) -> SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> SerializeStructVariant;
    }

    fn serialize_f32(self, v: f32) -> Walk {
        self.serialize_f64(v.into())
    }

    fn serialize_f64(self, v: f64) -> Walk {
        if v.is_finite() { Ok(()) } else { Err(Found { place: String::new(), value: Some(v) }) }
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Walk {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(self, _: &'static str, value: &T) -> Walk {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Walk {
        value.serialize(self)
    }
}

/// The parts of a list, one after the other.
macro_rules! lists {
    ($($Trait:ident::$method:ident),*) => {$(
        impl ser::$Trait for Search {
            type Ok = ();
            type Error = Found;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Walk {
                self.next(value)
            }

            fn end(self) -> Walk {
                Ok(())
            }
        }
    )*};
}
lists!(
    SerializeSeq::serialize_element,
    SerializeTuple::serialize_element,
    SerializeTupleStruct::serialize_field,
    SerializeTupleVariant::serialize_field
);

/// The fields of a record, each by its name.
macro_rules! records {
    ($($Trait:ident),*) => {$(
        impl ser::$Trait for Search {
            type Ok = ();
            type Error = Found;

            fn serialize_field<T: Serialize + ?Sized>(&mut self, name: &'static str, value: &T) -> Walk {
                Search::field(name, value)
            }

            fn end(self) -> Walk {
                Ok(())
            }
        }
    )*};
}
records!(SerializeStruct, SerializeStructVariant);

impl ser::SerializeMap for Search {
    type Ok = ();
    type Error = Found;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Walk {
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Walk {
        self.next(value)
    }

    fn end(self) -> Walk {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::array;
    use serde::Serialize;
    use std::collections::BTreeMap;

    #[derive(Serialize)]
    struct Inner {
        name: &'static str,
        interval: Vec<Option<[f64; 2]>>,
    }

    #[derive(Serialize)]
    enum Outer {
        Pair(f32, u8),
        Record { inner: Inner, scale: f64 },
        One(f64),
    }

    #[test]
    fn the_first_number_that_is_not_finite_is_found_with_its_place() {
        let record = |bound: f64, scale: f64| Outer::Record {
            inner: Inner { name: "a", interval: vec![None, Some([1.0, bound])] },
            scale,
        };
        let found = |value: &Outer| non_finite("v", value);
        assert_eq!(found(&record(2.0, 3.0)), None);
        assert_eq!(found(&record(2.0, f64::INFINITY)).unwrap(), "v.scale is inf");
        assert_eq!(found(&record(f64::NAN, 1.0)).unwrap(), "v.inner.interval, entry 2, entry 2 is NaN");
        assert_eq!(found(&Outer::Pair(f32::NEG_INFINITY, 1)).unwrap(), "v, entry 1 is -inf");
        assert_eq!(found(&Outer::One(f64::NAN)).unwrap(), "v is NaN");
        assert_eq!(non_finite("m", &BTreeMap::from([("k", 1.0), ("l", f64::NAN)])).unwrap(), "m, entry 2 is NaN");
        assert_eq!(non_finite("t", &(1, "x", [0.0; 3], true, 'c', ())), None);
        let list = vec![Inner { name: "b", interval: vec![Some([f64::NAN, 0.0])] }];
        assert_eq!(non_finite("l", &list).unwrap(), "l, entry 1 interval, entry 1, entry 1 is NaN");
    }

    #[test]
    fn the_first_bad_row_of_a_matrix_is_found() {
        assert_eq!(non_finite_row(array![[1.0, 2.0], [3.0, 4.0]].view()), None);
        let bad = array![[1.0, 2.0, 5.0], [3.0, f64::INFINITY, 6.0]];
        assert_eq!(non_finite_row(bad.view()), Some((1, f64::INFINITY)));
        assert_eq!(non_finite_row(bad.t()), Some((1, f64::INFINITY)));
        assert_eq!(non_finite_row(Array2::zeros((3, 0)).view()), None);
        let error = finite_rows("the score", bad.t().to_owned(), 3).unwrap_err().to_string();
        assert!(error.starts_with("the score of row 1 (counted from 1) is inf"), "{error}");
    }
}
