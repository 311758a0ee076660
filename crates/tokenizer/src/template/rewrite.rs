//! Rewrites a template before the engine sees it, token by token, with the engine's own lexer.
//!
//! - The template's own text and string constants pass through a function that marks control tokens in them
//!   (`provenance.rs`): this is how a prompt knows which of its text is the template's.
//! - What can grow memory or read much is routed through functions that count (`operators.rs`): operands of `+` and
//!   `~`, `*`, comparisons, indices and slices, literals of lists and maps, assignments to attributes, loops.
//! - Depth, lengths of chains and names, and numbers of tags are bounded, because the engine's compiler recurses.
//! - `{% generation %}` tags go; tags that reach outside the template are refused. Lines keep their numbers.

use minijinja::machinery::{Token, tokenize};
use minijinja::syntax::SyntaxConfig;

use super::operators::{AMOUNT, COMPARE, EACH, ITEM, JOINED, REPEAT, RESERVED, SLICE, TEXT, TREE};
use crate::{Error, Result};

/// Deepest nesting, of tags and of brackets.
const MAX_DEPTH: usize = 64;
/// Most operators, filters, calls and the like in one expression between commas, those in brackets included.
const MAX_CHAIN: usize = 500;
/// Longest name, in bytes: it is looked up again at each use.
const MAX_NAME: usize = 256;
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
                let (target, list) = (plain(&rest[..at])?, &rest[at + 1..]);
                // What is gone over ends at a condition or at `recursive`.
                let end = find(list, |t| matches!(t, Token::Ident("if" | "recursive")));
                let (list, rest) = list.split_at(end.unwrap_or(list.len()));
                format!("{target} in {EACH}({}) {}", expression(list)?, expression(rest)?)
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
    /// Where in `text` colons stand.
    colons: Vec<usize>,
    /// Whether it is one string constant.
    is_name: bool,
}

/// Operands joined by arithmetic, and the operand being read.
#[derive(Default)]
struct Terms {
    done: Vec<(String, &'static str)>,
    operand: String,
    /// Comparisons before: what was compared, as text, and the operator behind it.
    compared: Vec<(String, &'static str)>,
    /// Where in `operand` the name, constant or bracket starts that an index or a call would belong to.
    primary: usize,
    /// Whether `operand` could end here.
    complete: bool,
    /// Whether the name of a test follows.
    test: bool,
    /// Whether the name of a test stood just before: what follows is its argument.
    tested: bool,
    /// Whether a dot stood just before: what follows belongs to the same operand.
    dot: bool,
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
        let (chain_before, mut longest) = (self.chain, self.chain);
        let (mut group, mut terms) = (Group::default(), Terms::default());
        if let [Token::Str(text), Token::BracketClose, ..] = self.tokens.as_slice() {
            group.is_name = text.len() <= MAX_NAME;
        }
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
                    longest = longest.max(self.chain);
                    self.chain = chain_before;
                    terms.flush(&mut group.text);
                    group.has_comma |= matches!(token, Token::Comma);
                    if matches!(token, Token::Colon) {
                        group.colons.push(group.text.len());
                    }
                    group.text.push_str(symbol(token));
                    group.text.push(' ');
                }
                Token::Eq | Token::Ne | Token::Gt | Token::Gte | Token::Lt | Token::Lte => {
                    self.link()?;
                    terms.compare(symbol(token));
                }
                Token::Ident("in") if !terms.test && terms.complete => {
                    self.link()?;
                    terms.compare("in");
                }
                Token::Ident("not") if !terms.test && terms.complete => {
                    let Some(Token::Ident("in")) = self.tokens.next() else {
                        return Err(self.error("`not` behind a value: expected `in`"));
                    };
                    self.link()?;
                    terms.compare("not in");
                }
                Token::Ident(word @ ("and" | "or" | "not" | "if" | "else" | "recursive"))
                    if !terms.test =>
                {
                    self.link()?;
                    terms.flush(&mut group.text);
                    group.text.push_str(word);
                    group.text.push(' ');
                }
                Token::Ident("is") if !terms.dot => {
                    self.link()?;
                    terms.push("is", false);
                    terms.test = true;
                }
                Token::Mul | Token::Pow if !terms.complete => {
                    return Err(self.error("unpacking with `*` is not supported"));
                }
                _ => {
                    let complete = !matches!(token, Token::Dot | Token::Pow | Token::Minus);
                    if !complete {
                        self.link()?;
                    }
                    let is_test = terms.test && !matches!(token, Token::Ident("not"));
                    terms.push(&self.word(token)?, complete);
                    terms.tested = is_test;
                    terms.test &= !is_test;
                    terms.dot = matches!(token, Token::Dot);
                }
            }
        }
        terms.flush(&mut group.text);
        // What stands around brackets is compiled around all that is in them.
        self.chain = longest.max(self.chain);
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
        let is_argument = terms.tested && close != ")";
        if !terms.complete || is_argument {
            let text =
                if close == ")" && !inside.has_comma { text } else { format!("{TREE}({text})") };
            terms.push(&text, true);
        } else if close == "]" && !inside.is_name {
            let operand = terms.operand.split_off(terms.primary);
            let bounds = inside.bounds();
            let call = match bounds.as_slice() {
                [_] => format!("{ITEM}({operand}, {})", inside.text),
                [_, _] | [_, _, _] => format!("{SLICE}({operand}, {})", bounds.join(", ")),
                _ => return Err(self.error("slice of more than three parts")),
            };
            terms.operand.push_str(&call);
        } else if close == ")"
            && terms.operand.ends_with(". cycle")
            && inside.text.trim().is_empty()
        {
            return Err(self.error("`cycle` of nothing"));
        } else if close == ")" && terms.operand.ends_with(". changed") {
            // Compared with what it was given before: charged like a literal that holds it.
            terms.operand.push_str(&format!("({TREE}(({},)))", inside.text));
        } else {
            terms.operand.push_str(&text);
        }
        terms.test = false;
        terms.tested = false;
        Ok(())
    }

    /// A filter: its name and perhaps arguments.
    fn filter(&mut self, terms: &mut Terms) -> Result<()> {
        self.link()?;
        terms.push("|", false);
        let Some(name) = self.tokens.next() else {
            return Err(self.error("filter without a name"));
        };
        terms.push(&self.word(name)?, true);
        if let Some(Token::ParenOpen) = self.tokens.as_slice().first() {
            self.tokens.next();
            let arguments = self.group(Some(")"))?.text;
            terms.operand.push_str(&format!("({arguments})"));
        }
        terms.tested = false;
        Ok(())
    }

    /// A token as source text.
    fn word(&self, token: &Token<'_>) -> Result<String> {
        Ok(match token {
            Token::Ident(name) if name.starts_with(RESERVED) => {
                return Err(self.error(format!("name `{name}` is reserved")));
            }
            Token::Ident(name) if name.len() > MAX_NAME => {
                return Err(self.error(format!("name of more than {MAX_NAME} bytes")));
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

impl Group {
    /// The parts between colons; `none` for those left out.
    fn bounds(&self) -> Vec<&str> {
        let mut parts = Vec::new();
        let mut start = 0;
        for end in self.colons.iter().copied().chain([self.text.len()]) {
            let part = self.text[start..end].trim();
            parts.push(if part.is_empty() { "none" } else { part });
            start = end + 1;
        }
        parts
    }
}

impl Terms {
    fn push(&mut self, text: &str, complete: bool) {
        if !self.operand.is_empty() {
            self.operand.push(' ');
        }
        if !std::mem::take(&mut self.dot) && complete {
            self.primary = self.operand.len();
        }
        self.operand.push_str(text);
        self.complete = complete;
        self.tested = false;
    }

    fn operator(&mut self, operator: &'static str) {
        self.done.push((std::mem::take(&mut self.operand), operator));
        self.complete = false;
        self.test = false;
    }

    /// Ends what is compared.
    fn compare(&mut self, operator: &'static str) {
        let compared = std::mem::take(&mut self.compared);
        let sum = std::mem::take(self).sum();
        *self = Terms { compared, ..Terms::default() };
        self.compared.push((sum, operator));
    }

    /// Ends the terms before something that binds looser than comparisons.
    fn flush(&mut self, out: &mut String) {
        let compared = std::mem::take(&mut self.compared);
        let last = std::mem::take(self).sum();
        if compared.is_empty() {
            out.push_str(&last);
        } else {
            out.push_str(COMPARE);
            out.push('(');
            for (operand, operator) in compared {
                out.push_str(&format!("{operand}, \"{operator}\", "));
            }
            out.push_str(&last);
            out.push(')');
        }
        out.push(' ');
    }

    /// The arithmetic as text.
    fn sum(self) -> String {
        let Terms { done, operand, .. } = self;
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
        let mut out = String::new();
        let (_, others) = sums.split_last().expect("there is an operand");
        // Safe text escapes what is added to it.
        let is_safe = |operand: &str| operand.ends_with("| safe");
        if others.iter().all(|(_, operator)| *operator == "+")
            && !others.is_empty()
            && sums.iter().any(|(operand, _)| is_safe(operand))
        {
            let operands: Vec<&str> = sums.iter().map(|(operand, _)| operand.as_str()).collect();
            return format!("{JOINED}({})", operands.join(", "));
        }
        let mut before = "";
        let mut copies = sums.len();
        for (operand, after) in sums {
            copies -= 1;
            let text = if before == "~" || after == "~" {
                format!("{TEXT}({operand}, {copies})")
            } else if before == "+" || after == "+" {
                format!("{AMOUNT}({operand}, {copies})")
            } else {
                operand
            };
            for part in [&text, " ", after, " "] {
                out.push_str(part);
            }
            before = after;
        }
        out.truncate(out.trim_end().len());
        out
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
