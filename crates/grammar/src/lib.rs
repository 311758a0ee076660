//! The form of a reply: a JSON schema, a regular expression or a grammar, compiled for a model's own tokens into what
//! the engine asks for masks ([`engine::Constraint`]).
//!
//! Forms come from strangers. The work of a form is estimated before it is compiled (`work`: of schemas in `schema` and `extent`, of
//! grammars in `lark` and `gbnf`, of expressions in `regex`; `paths` bounds references). A doubtful one is compiled in a process
//! of its own first (`checker`). At most two are compiled at once, as long as somebody waits (`budget`), and a form must allow at
//! least one token before it is used (`form`). `llguidance` compiles the automata; no other crate depends on it.

#![forbid(unsafe_code)]

mod adapt;
mod budget;
mod checker;
mod error;
mod extent;
mod form;
mod gbnf;
mod lark;
mod limits;
mod parts;
mod paths;
mod regex;
mod runs;
mod schema;
mod state;
mod vocabulary;
mod work;

use engine::Notes;
use serde_json::Value;

pub use budget::CompileBudget;
pub use checker::{FormChecker, check_request};
pub use error::{GrammarError, Result};
pub use form::{Form, FormSource};
pub use parts::{FormPart, FormText, PartBudget};
pub use vocabulary::TokenTrie;

/// Returns a warning for each constraint of a schema that is known not to be enforced. A form may have more: see [`Form::notes`].
pub fn unenforced(schema: &Value) -> Notes {
    let mut notes = Notes::default();
    adapt::adapt(&mut schema.clone(), &mut notes);
    notes
}

/// Items that only tests use.
#[doc(hidden)]
pub mod internals {
    use engine::Notes;
    use serde_json::Value;

    use crate::work::Work;
    use crate::{Result, gbnf, regex, schema};

    pub use crate::adapt::{adapt, number};

    pub use crate::budget::running_compilations;
    pub use crate::gbnf::to_lark;

    /// Measures a schema and returns what is compiled.
    pub fn read_schema(text: &str) -> Result<Value> {
        schema::read(text, &mut Work::default(), &mut Notes::default())
    }

    /// Measures a regular expression.
    pub fn check_regex(text: &str) -> Result<()> {
        regex::check(regex::WHAT, text, "", &mut Work::default())
    }

    /// Measures a grammar in Lark.
    pub fn check_lark(text: &str) -> Result<()> {
        crate::lark::check(text, &mut Work::default())
    }

    /// What a grammar is called in errors.
    pub const GRAMMAR: &str = gbnf::WHAT;
}
