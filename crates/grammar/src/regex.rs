//! Regular expressions before they are compiled: how often they repeat, and what they cost.

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{Ast, ClassSet, ClassSetItem, GroupKind, RepetitionKind, RepetitionRange};

use crate::work::Work;
use crate::{Result, limits};

pub(crate) const WHAT: &str = "regular expression";

/// Microseconds of a class by a property of Unicode, and of one in an expression that ignores case.
const UNICODE: f64 = 50.0;
const UNICODE_ANY_CASE: f64 = 300.0;
/// Microseconds for each character of a range in an expression that ignores case.
const FOLDED: f64 = 0.006;
/// Microseconds for each pair of parts in a run of parts that may all be empty: each may be followed by each behind it.
pub(crate) const EMPTY_PAIR: f64 = 0.015;

/// Refuses an expression that is too large, repeats too often, or is too much work. One that cannot be read is left to the compiler,
/// which says what is wrong with it.
///
/// # Errors
/// [`TooLarge`](crate::GrammarError::TooLarge).
pub(crate) fn check(what: &'static str, pattern: &str, flags: &str, work: &mut Work) -> Result<()> {
    limits::check(what, "bytes", pattern.len() as u64, limits::BYTES)?;
    let mut parser = ParserBuilder::new();
    parser.nest_limit(limits::DEPTH as u32).ignore_whitespace(flags.contains('x'));
    match parser.build().parse(pattern) {
        Ok(ast) => {
            // a letter too many makes it seem dearer than it is
            let any_case = flags.contains('i') || (pattern.contains("(?") && pattern.contains('i'));
            let mut walk = Walk { what, any_case, work };
            walk.part(&ast).map(|_| ())
        }
        Err(error)
            if matches!(error.kind(), regex_syntax::ast::ErrorKind::NestLimitExceeded(_)) =>
        {
            limits::check(what, "brackets within each other", limits::DEPTH + 1, limits::DEPTH)
        }
        Err(_) => Ok(()),
    }
}

/// What is known of a part.
struct Part {
    /// The greatest product of counts within it.
    repeats: u64,
    /// It may match nothing.
    may_be_empty: bool,
}

struct Walk<'w> {
    what: &'static str,
    any_case: bool,
    work: &'w mut Work,
}

impl Walk<'_> {
    /// Walks through a part, whose nesting the parser bounds.
    fn part(&mut self, ast: &Ast) -> Result<Part> {
        let one = Part { repeats: 1, may_be_empty: false };
        match ast {
            Ast::Empty(_) | Ast::Flags(_) | Ast::Assertion(_) => {
                Ok(Part { may_be_empty: true, ..one })
            }
            Ast::Literal(_) | Ast::Dot(_) => self.cost(0.5).map(|()| one),
            Ast::ClassUnicode(_) | Ast::ClassPerl(_) => self.class(0).map(|()| one),
            Ast::ClassBracketed(class) => self.set(&class.kind).map(|()| one),
            Ast::Group(group) => {
                if let GroupKind::NonCapturing(_) = group.kind {
                    self.cost(0.5)?;
                }
                self.part(&group.ast)
            }
            Ast::Repetition(repetition) => {
                let inner = self.part(&repetition.ast)?;
                let (least, most) = match &repetition.op.kind {
                    RepetitionKind::ZeroOrOne | RepetitionKind::ZeroOrMore => (0, 1),
                    RepetitionKind::OneOrMore => (1, 1),
                    RepetitionKind::Range(range) => match *range {
                        RepetitionRange::Exactly(n) => (n, n),
                        RepetitionRange::AtLeast(least) => (least, least),
                        RepetitionRange::Bounded(least, most) => (least, most),
                    },
                };
                let repeats = inner.repeats.saturating_mul(u64::from(most.max(1)));
                limits::check(self.what, "repetitions", repeats, limits::REPEATS)?;
                Ok(Part { repeats, may_be_empty: least == 0 || inner.may_be_empty })
            }
            Ast::Alternation(all) => {
                let mut whole = Part { repeats: 1, may_be_empty: false };
                for ast in &all.asts {
                    let part = self.part(ast)?;
                    whole.repeats = whole.repeats.max(part.repeats);
                    whole.may_be_empty |= part.may_be_empty;
                }
                self.cost(2.0 * all.asts.len() as f64)?;
                Ok(whole)
            }
            Ast::Concat(all) => self.sequence(&all.asts),
        }
    }

    fn sequence(&mut self, all: &[Ast]) -> Result<Part> {
        let mut whole = Part { repeats: 1, may_be_empty: true };
        let mut run = 0.0;
        for ast in all {
            let part = self.part(ast)?;
            whole.repeats = whole.repeats.max(part.repeats);
            whole.may_be_empty &= part.may_be_empty;
            run = if part.may_be_empty { run + 1.0 } else { 0.0 };
            // the sum over a run is half of its square
            self.cost(2.0 * EMPTY_PAIR * run)?;
        }
        Ok(whole)
    }

    fn set(&mut self, set: &ClassSet) -> Result<()> {
        match set {
            ClassSet::Item(item) => self.item(item),
            ClassSet::BinaryOp(op) => {
                self.set(&op.lhs)?;
                self.set(&op.rhs)
            }
        }
    }

    fn item(&mut self, item: &ClassSetItem) -> Result<()> {
        match item {
            ClassSetItem::Empty(_) | ClassSetItem::Literal(_) | ClassSetItem::Ascii(_) => {
                self.cost(0.5)
            }
            ClassSetItem::Range(range) => {
                self.class(u32::from(range.end.c).saturating_sub(u32::from(range.start.c)))
            }
            ClassSetItem::Unicode(_) | ClassSetItem::Perl(_) => self.class(0),
            ClassSetItem::Bracketed(class) => self.set(&class.kind),
            ClassSetItem::Union(union) => union.items.iter().try_for_each(|item| self.item(item)),
        }
    }

    /// Adds the work of a class. `range`: its number of characters, 0 for a class by a property.
    fn class(&mut self, range: u32) -> Result<()> {
        self.cost(match (range, self.any_case) {
            (0, true) => UNICODE_ANY_CASE,
            (0, false) => UNICODE,
            (_, true) => 1.0 + FOLDED * f64::from(range),
            (_, false) => 2.0,
        })
    }

    fn cost(&mut self, micros: f64) -> Result<()> {
        self.work.add(self.what, micros)
    }
}
