//! All figures: well formed whatever the data, and drawn where they should be.

use super::*;

#[test]
fn empty() {
    let _ = Plot::new("").svg();
}
