//! A source file with mutants that are switched on at run time: mutant number i runs where `crate::mutated(i)` is true.

use proc_macro2::{Literal, Span};
use quote::{ToTokens, quote};
use serde::Deserialize;
use std::collections::HashMap;
use syn::visit_mut::{self, VisitMut};
use syn::{BinOp, Block, Expr, ExprBinary, ImplItemFn, ItemFn, parse_quote};

/// One mutant, as `cargo mutants --list --json` describes it.
#[derive(Clone, Debug, Deserialize)]
pub struct Mutant {
    /// Path of its file from the root of the workspace.
    pub file: String,
    /// `FnValue`, `BinaryOperator`, `UnaryOperator`, …
    pub genre: String,
    /// What stands in its place.
    pub replacement: String,
    /// What is replaced: a function's body, or an operator.
    pub span: Range,
}

/// A part of a file.
#[derive(Clone, Debug, Deserialize)]
pub struct Range {
    /// Its first character.
    pub start: Place,
}

/// Line and column, both from 1.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Hash)]
pub struct Place {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
}

/// `source` with the given numbered mutants; also the numbers of those that found their place.
///
/// # Errors
/// `source` is not Rust.
pub fn with_switches(source: &str, mutants: &[(usize, &Mutant)]) -> syn::Result<(String, Vec<usize>)> {
    let mut file = syn::parse_file(source)?;
    let mut places: HashMap<Place, Vec<(usize, &Mutant)>> = HashMap::new();
    for &(number, mutant) in mutants {
        places.entry(mutant.span.start).or_default().push((number, mutant));
    }
    let mut switches = Switches { places, found: vec![] };
    switches.visit_file_mut(&mut file);
    Ok((file.to_token_stream().to_string(), switches.found))
}

struct Switches<'a> {
    places: HashMap<Place, Vec<(usize, &'a Mutant)>>,
    found: Vec<usize>,
}

impl<'a> Switches<'a> {
    fn at(&self, span: Span) -> Vec<(usize, &'a Mutant)> {
        let start = span.start();
        self.places.get(&Place { line: start.line, column: start.column + 1 }).cloned().unwrap_or_default()
    }

    /// `if crate::mutated(i) { return replacement; }` before the first statement.
    fn body(&mut self, block: &mut Block) {
        let Some(first) = block.stmts.first() else { return };
        let start = syn::spanned::Spanned::span(first);
        let mutants = [self.at(start), self.at(block.brace_token.span.open())].concat();
        for (number, mutant) in mutants.into_iter().filter(|(_, mutant)| mutant.genre == "FnValue") {
            let Ok(value) = syn::parse_str::<Expr>(&mutant.replacement) else { continue };
            let literal = Literal::usize_unsuffixed(number);
            block.stmts.insert(0, parse_quote! { if crate::mutated(#literal) { return #value; } });
            self.found.push(number);
        }
    }
}

impl VisitMut for Switches<'_> {
    fn visit_item_fn_mut(&mut self, function: &mut ItemFn) {
        if function.sig.constness.is_none() {
            // Its place is that of the source: find it before the statements change.
            self.body(&mut function.block);
            visit_mut::visit_item_fn_mut(self, function);
        }
    }

    fn visit_impl_item_fn_mut(&mut self, function: &mut ImplItemFn) {
        if function.sig.constness.is_none() {
            self.body(&mut function.block);
            visit_mut::visit_impl_item_fn_mut(self, function);
        }
    }

    fn visit_item_const_mut(&mut self, _: &mut syn::ItemConst) {}

    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let mutants = match expr {
            Expr::Binary(ExprBinary { op, .. }) => self.at(syn::spanned::Spanned::span(op)),
            Expr::Unary(unary) => self.at(syn::spanned::Spanned::span(&unary.op)),
            _ => vec![],
        };
        visit_mut::visit_expr_mut(self, expr);
        // What `if let` binds would be lost in a switch.
        if !mutants.is_empty() && expr.to_token_stream().to_string().contains("let ") {
            return;
        }
        // `(if crate::mutated(1) { first } else if crate::mutated(2) { second } else { original })`
        let (mut switch, mut placed) = (quote! { { #expr } }, false);
        for (number, mutant) in mutants.into_iter().rev() {
            let changed = match (&*expr, mutant.genre.as_str()) {
                (Expr::Binary(binary), "BinaryOperator") => match syn::parse_str::<BinOp>(&mutant.replacement) {
                    Ok(op) => Expr::Binary(ExprBinary { op, ..binary.clone() }),
                    Err(_) => continue,
                },
                (Expr::Unary(unary), "UnaryOperator") => *unary.expr.clone(),
                _ => continue,
            };
            let literal = Literal::usize_unsuffixed(number);
            switch = quote! { if crate::mutated(#literal) { #changed } else #switch };
            self.found.push(number);
            placed = true;
        }
        if placed {
            // Not parsed again: `a as f64 < b` would not be.
            *expr = Expr::Verbatim(quote! { (#switch) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(genre: &str, replacement: &str, line: usize, column: usize) -> Mutant {
        let span = Range { start: Place { line, column } };
        Mutant { file: String::new(), genre: genre.into(), replacement: replacement.into(), span }
    }

    #[test]
    fn every_mutant_becomes_a_switch() {
        let source = "fn f(a: i32, b: i32) -> i32 {\n    let c = a + b;\n    -c\n}\n";
        let mutants = [
            mutant("FnValue", "0", 2, 5),
            mutant("BinaryOperator", "-", 2, 15),
            mutant("BinaryOperator", "*", 2, 15),
            mutant("UnaryOperator", "", 3, 5),
            mutant("BinaryOperator", "*", 9, 9),
        ];
        let numbered: Vec<_> = mutants.iter().enumerate().collect();
        let (text, mut found) = with_switches(source, &numbered).unwrap();
        found.sort_unstable();
        assert_eq!(found, [0, 1, 2, 3], "the last has no place");
        let text: String = text.split_whitespace().collect();
        assert_eq!(
            text,
            "fnf(a:i32,b:i32)->i32{ifcrate::mutated(0){return0;}letc=(ifcrate::mutated(1){a-b}else\
             ifcrate::mutated(2){a*b}else{a+b});(ifcrate::mutated(3){c}else{-c})}"
        );
    }
}
