//! Rewrites a template before the engine sees it, token by token, with the engine's own lexer.
//!
//! - The template's own text and string constants pass through a function that marks control tokens in them
//!   (`provenance.rs`): this is how a prompt knows which of its text is the template's.
//! - What can grow memory is routed through functions that count (`limits.rs`): operands of `+` and `~`, `*`, slices,
//!   literals of lists and maps, assignments to attributes, results of filters.
//! - Depth, lengths of chains and numbers of tags are bounded, because the engine's compiler recurses.
//! - `{% generation %}` tags go; tags that reach outside the template are refused. Lines keep their numbers.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::limits::{AMOUNT, CHARGE, REPEAT, RESERVED, TEXT, TREE};
use crate::{Error, Result};

/// Deepest nesting, of tags and of brackets.
const MAX_DEPTH: usize = 64;
/// Most operators, filters, calls and the like in one expression between commas.
const MAX_CHAIN: usize = 500;
/// Most tags.
const MAX_TAGS: usize = 4_000;

/// Tags that reach for other templates.
const REFUSED: &[&str] = &["include", "import", "from", "extends", "block"];
/// Tags that have an end tag (`set` only without `=`).
const BLOCKS: &[&str] = &["if", "for", "macro", "call", "filter", "set", "with", "autoescape"];

/// The rewritten template; `mark` sees every text and string constant of it.
pub(super) fn rewrite(source: &str, mark: &dyn Fn(&str) -> String) -> Result<String> {
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|e| super::error(&e))?;
    let mut rewriter = Rewriter { out: String::new(), lines: 1, tags: 0, blocks: Vec::new(), mark };
    let mut tokens = tokenize(source, false, syntax);
    while let Some(token) = tokens.next() {
        let (token, span) = token.map_err(|e| super::error(&e))?;
        let line = usize::from(span.start_line);
        let is_end: fn(&Token<'_>) -> bool = match token {
            Token::TemplateData(text) => {
                if !text.is_empty() {
                    let text = quote(&mark(text));
                    rewriter.tag(line, "{{", &text, "}}")?;
                }
                continue;
            }
            Token::VariableStart => |t| matches!(t, Token::VariableEnd),
            Token::BlockStart => |t| matches!(t, Token::BlockEnd),
            other => return Err(Error::template(Some(line), format!("unexpected {other}"))),
        };
        let mut inside = Vec::new();
        loop {
            let next =
                tokens.next().ok_or_else(|| Error::template(Some(line), "tag is not closed"))?;
            let (token, _) = next.map_err(|e| super::error(&e))?;
            if is_end(&token) {
                break;
            }
            inside.push(token);
        }
        if matches!(token, Token::VariableStart) {
            let text = Expression::new(&inside, line, mark).whole()?;
            rewriter.tag(line, "{{", &text, "}}")?;
        } else {
            rewriter.statement(line, &inside)?;
        }
    }
    Ok(rewriter.out)
}

struct Rewriter<'m> {
    out: String,
    /// Line that the end of `out` is on.
    lines: usize,
    tags: usize,
    /// Open blocks: how many levels each one nests (`elif` adds one).
    blocks: Vec<usize>,
    mark: &'m dyn Fn(&str) -> String,
}

impl Rewriter<'_> {
    fn tag(&mut self, line: usize, open: &str, inside: &str, close: &str) -> Result<()> {
        self.tags += 1;
        if self.tags > MAX_TAGS {
            return Err(Error::template(Some(line), format!("more than {MAX_TAGS} tags")));
        }
        self.out.push_str(open);
        while self.lines < line {
            self.out.push('\n');
            self.lines += 1;
        }
        for part in [" ", inside, " ", close] {
            self.out.push_str(part);
        }
        Ok(())
    }

    fn statement(&mut self, line: usize, tokens: &[Token<'_>]) -> Result<()> {
        let Some((Token::Ident(name), rest)) = tokens.split_first() else {
            return Err(Error::template(Some(line), "tag without a name"));
        };
        if REFUSED.contains(name) {
            return Err(Error::template(Some(line), format!("`{name}` is not supported")));
        }
        if matches!(*name, "generation" | "endgeneration") {
            return Ok(());
        }
        let expression = |tokens| Expression::new(tokens, line, self.mark).whole();
        let plain = |tokens| Expression::new(tokens, line, self.mark).verbatim();
        let assigned = find(rest, |t| matches!(t, Token::Assign)).filter(|_| *name == "set");
        let inside = match *name {
            "set" if let Some(at) = assigned => {
                let (target, value) = (&rest[..at], expression(&rest[at + 1..])?);
                let attribute = target.iter().any(|t| matches!(t, Token::Dot));
                let value = if attribute { format!("{TREE}(({value}))") } else { value };
                format!("{} = {value}", plain(target)?)
            }
            "for" if let Some(at) = find(rest, |t| matches!(t, Token::Ident("in"))) => {
                format!("{} in {}", plain(&rest[..at])?, expression(&rest[at + 1..])?)
            }
            _ => expression(rest)?,
        };
        if BLOCKS.contains(name) && assigned.is_none() {
            self.blocks.push(1);
        } else if *name == "elif" {
            if let Some(levels) = self.blocks.last_mut() {
                *levels += 1;
            }
        } else if name.starts_with("end") {
            self.blocks.pop();
        }
        if self.blocks.iter().sum::<usize>() > MAX_DEPTH {
            return Err(Error::template(Some(line), format!("nested deeper than {MAX_DEPTH}")));
        }
        self.tag(line, "{%", &format!("{name} {inside}"), "%}")
    }
}

/// Where a token stands outside all brackets.
fn find(tokens: &[Token<'_>], is: impl Fn(&Token<'_>) -> bool) -> Option<usize> {
    let mut depth = 0_usize;
    tokens.iter().position(|token| {
        match token {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => depth += 1,
            Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                depth = depth.saturating_sub(1)
            }
            _ => {}
        }
        depth == 0 && is(token)
    })
}

/// The tokens of an expression, on their way to text.
struct Expression<'t, 's, 'm> {
    tokens: std::slice::Iter<'t, Token<'s>>,
    line: usize,
    depth: usize,
    /// Operators and the like since the last comma, in this bracket and those around it.
    chain: usize,
    mark: &'m dyn Fn(&str) -> String,
}

/// What stands between two brackets.
#[derive(Default)]
struct Group {
    text: String,
    has_comma: bool,
    has_colon: bool,
}

/// Operands joined by arithmetic, and the operand being read.
#[derive(Default)]
struct Terms {
    done: Vec<(String, &'static str)>,
    operand: String,
    /// Whether `operand` could end here.
    complete: bool,
    /// Whether the name of a test follows.
    test: bool,
}

impl<'t, 's, 'm> Expression<'t, 's, 'm> {
    fn new(
        tokens: &'t [Token<'s>],
        line: usize,
        mark: &'m dyn Fn(&str) -> String,
    ) -> Expression<'t, 's, 'm> {
        Expression { tokens: tokens.iter(), line, depth: 0, chain: 0, mark }
    }

    fn error(&self, message: impl AsRef<str>) -> Error {
        Error::template(Some(self.line), message)
    }

    fn whole(mut self) -> Result<String> {
        Ok(self.group(None)?.text)
    }

    /// The tokens as they are: targets of assignments.
    fn verbatim(self) -> Result<String> {
        let mut text = String::new();
        for token in self.tokens.clone() {
            text.push_str(&self.word(token)?);
            text.push(' ');
        }
        Ok(text)
    }

    fn link(&mut self) -> Result<()> {
        self.chain += 1;
        if self.chain > MAX_CHAIN {
            return Err(self.error(format!("expression of more than {MAX_CHAIN} operations")));
        }
        Ok(())
    }

    /// Everything up to a closing bracket, or to the end.
    fn group(&mut self, close: Option<&str>) -> Result<Group> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH}")));
        }
        let chain_before = self.chain;
        let (mut group, mut terms) = (Group::default(), Terms::default());
        loop {
            let Some(token) = self.tokens.next() else {
                if close.is_some() {
                    return Err(self.error("bracket is not closed"));
                }
                break;
            };
            match token {
                Token::ParenClose | Token::BracketClose | Token::BraceClose => {
                    if close == Some(symbol(token)) {
                        break;
                    }
                    return Err(self.error(format!("unexpected {token}")));
                }
                Token::Plus
                | Token::Minus
                | Token::Tilde
                | Token::Mul
                | Token::Div
                | Token::FloorDiv
                | Token::Mod
                    if terms.complete =>
                {
                    self.link()?;
                    terms.operator(symbol(token));
                }
                Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => {
                    self.bracket(token, &mut terms)?
                }
                Token::Pipe => self.filter(&mut terms)?,
                Token::Comma | Token::Colon | Token::Assign => {
                    group.has_comma |= matches!(token, Token::Comma);
                    group.has_colon |= matches!(token, Token::Colon);
                    self.chain = chain_before;
                    terms.flush(&mut group.text, symbol(token));
                }
                Token::Eq | Token::Ne | Token::Gt | Token::Gte | Token::Lt | Token::Lte => {
                    self.link()?;
                    terms.flush(&mut group.text, symbol(token));
                }
                Token::Ident(
                    word @ ("and" | "or" | "not" | "in" | "if" | "else" | "recursive"),
                ) if !terms.test => {
                    self.link()?;
                    terms.flush(&mut group.text, word);
                }
                Token::Ident("is") => {
                    self.link()?;
                    terms.push("is", false);
                    terms.test = true;
                }
                _ => {
                    let complete = !matches!(token, Token::Dot | Token::Pow | Token::Minus);
                    if !complete {
                        self.link()?;
                    }
                    terms.push(&self.word(token)?, complete);
                    terms.test &= matches!(token, Token::Ident("not"));
                }
            }
        }
        terms.flush(&mut group.text, "");
        self.chain = chain_before;
        self.depth -= 1;
        Ok(group)
    }

    /// An opening bracket: a call, an index or slice, or a literal.
    fn bracket(&mut self, open: &Token<'_>, terms: &mut Terms) -> Result<()> {
        self.link()?;
        let close = match open {
            Token::ParenOpen => ")",
            Token::BracketOpen => "]",
            _ => "}",
        };
        let inside = self.group(Some(close))?;
        let text = format!("{}{}{close}", symbol(open), inside.text);
        if terms.complete {
            if close == "]" && inside.has_colon {
                terms.operand = format!("{AMOUNT}({})", terms.operand);
            }
            terms.operand.push_str(&text);
        } else if close == ")" && !inside.has_comma {
            terms.push(&text, true);
        } else {
            terms.push(&format!("{TREE}({text})"), true);
        }
        terms.test = false;
        Ok(())
    }

    /// A filter: its name, perhaps arguments, and then the count of what it returned.
    fn filter(&mut self, terms: &mut Terms) -> Result<()> {
        self.link()?;
        terms.push("|", false);
        let Some(name) = self.tokens.next() else {
            return Err(self.error("filter without a name"));
        };
        terms.push(&self.word(name)?, false);
        if let Some(Token::ParenOpen) = self.tokens.as_slice().first() {
            self.tokens.next();
            let arguments = self.group(Some(")"))?.text;
            terms.push(&format!("({arguments})"), false);
        }
        terms.push(&format!("| {CHARGE}"), true);
        Ok(())
    }

    /// A token as source text.
    fn word(&self, token: &Token<'_>) -> Result<String> {
        Ok(match token {
            Token::Ident(name) if name.starts_with(RESERVED) => {
                return Err(self.error(format!("name `{name}` is reserved")));
            }
            Token::Ident(name) => (*name).to_owned(),
            Token::Str(text) => quote(&(self.mark)(text)),
            Token::String(text) => quote(&(self.mark)(text)),
            Token::Int(n) => n.to_string(),
            Token::Int128(n) => n.to_string(),
            Token::Float(x) => format!("{x:?}"),
            other => symbol(other).to_owned(),
        })
    }
}

impl Terms {
    fn push(&mut self, text: &str, complete: bool) {
        if !self.operand.is_empty() {
            self.operand.push(' ');
        }
        self.operand.push_str(text);
        self.complete = complete;
    }

    fn operator(&mut self, operator: &'static str) {
        self.done.push((std::mem::take(&mut self.operand), operator));
        self.complete = false;
        self.test = false;
    }

    /// Ends the terms with a separator that binds looser than arithmetic.
    fn flush(&mut self, out: &mut String, separator: &str) {
        let Terms { done, operand, .. } = std::mem::take(self);
        // Products first: `*` becomes a call, so that what stands before it is its first argument.
        let mut sums: Vec<(String, &str)> = Vec::new();
        let mut product = String::new();
        let mut before = "";
        for (operand, after) in done.into_iter().chain([(operand, "")]) {
            product = match before {
                "*" => format!("{REPEAT}({product}, {operand})"),
                "/" | "//" | "%" => format!("{product} {before} {operand}"),
                _ => operand,
            };
            if matches!(after, "+" | "-" | "~" | "") {
                sums.push((std::mem::take(&mut product), after));
            }
            before = after;
        }
        let mut before = "";
        for (operand, after) in sums {
            let text = if before == "~" || after == "~" {
                format!("{TEXT}({operand})")
            } else if before == "+" || after == "+" {
                format!("{AMOUNT}({operand})")
            } else {
                operand
            };
            for part in [&text, " ", after, " "] {
                out.push_str(part);
            }
            before = after;
        }
        out.push_str(separator);
        out.push(' ');
    }
}

fn symbol(token: &Token<'_>) -> &'static str {
    match token {
        Token::Plus => "+",
        Token::Minus => "-",
        Token::Mul => "*",
        Token::Div => "/",
        Token::FloorDiv => "//",
        Token::Pow => "**",
        Token::Mod => "%",
        Token::Dot => ".",
        Token::Comma => ",",
        Token::Colon => ":",
        Token::Tilde => "~",
        Token::Assign => "=",
        Token::Pipe => "|",
        Token::Eq => "==",
        Token::Ne => "!=",
        Token::Gt => ">",
        Token::Gte => ">=",
        Token::Lt => "<",
        Token::Lte => "<=",
        Token::BracketOpen => "[",
        Token::BracketClose => "]",
        Token::ParenOpen => "(",
        Token::ParenClose => ")",
        Token::BraceOpen => "{",
        Token::BraceClose => "}",
        _ => "",
    }
}

/// A string constant on one line.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}
