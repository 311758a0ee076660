//! Directives and statements of a module.

use super::SyntaxError;
use super::lex::{Spanned, Token};

/// Operand as written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand<'a> {
    /// Register, label or variable.
    Word(&'a str),
    /// Integer literal; negative ones in two's complement of 64 bits.
    Int(u64),
    F32(u32),
    F64(f64),
    /// `{a, b, ...}`.
    Vector(Vec<Self>),
    /// `[base + offset]`; `base` is empty where the address is a number.
    Address(&'a str, i64),
    /// `a|b`.
    Pair(&'a str, &'a str),
    /// `!p`.
    Not(&'a str),
}

/// Statement of a kernel's body.
#[derive(Debug)]
pub(crate) enum Kind<'a> {
    Label(&'a str),
    /// Type, and names with their counts: `%r<4>`.
    Registers(&'a str, Vec<(&'a str, Option<u32>)>),
    Variable(Variable<'a>),
    Instruction {
        guard: Option<(&'a str, bool)>,
        mnemonic: &'a str,
        operands: Vec<Operand<'a>>,
    },
}

/// `.shared` or `.local` variable.
#[derive(Clone, Debug)]
pub(crate) struct Variable<'a> {
    pub(crate) space: &'a str,
    pub(crate) align: u32,
    pub(crate) ty: &'a str,
    pub(crate) name: &'a str,
    /// Elements; `None` for `[]`.
    pub(crate) count: Option<u64>,
    pub(crate) line: u32,
}

/// Statement and its line.
#[derive(Debug)]
pub(crate) struct Statement<'a> {
    pub(crate) line: u32,
    pub(crate) kind: Kind<'a>,
}

/// A parameter: one value, or so many of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parameter<'a> {
    pub(crate) ty: &'a str,
    pub(crate) name: &'a str,
    /// Bytes that it is aligned to at least.
    pub(crate) align: u32,
    pub(crate) count: u32,
}

/// Kernel of a module.
#[derive(Debug, Default)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) line: u32,
    /// The parameters in order.
    pub(crate) params: Vec<Parameter<'a>>,
    pub(crate) required_block: Option<[u32; 3]>,
    pub(crate) max_block: Option<[u32; 3]>,
    pub(crate) body: Vec<Statement<'a>>,
}

/// Module as written.
#[derive(Debug, Default)]
pub(crate) struct Module<'a> {
    pub(crate) version: Option<(u64, u64, u32)>,
    pub(crate) target: Option<(&'a str, u32)>,
    pub(crate) address_size: Option<u64>,
    pub(crate) variables: Vec<Variable<'a>>,
    pub(crate) entries: Vec<Entry<'a>>,
}

type Result<T> = std::result::Result<T, SyntaxError>;

/// Reads a module.
///
/// # Errors
/// The first statement that is not PTX, or that this library does not know.
pub(crate) fn module<'a>(tokens: &'a [Spanned<'a>]) -> Result<Module<'a>> {
    let mut p = Parser { tokens, at: 0 };
    let mut module = Module::default();
    while let Some(&Spanned { token, line }) = p.peek() {
        let Token::Word(word) = token else { return Err(p.unexpected("a directive")) };
        match word {
            ".version" => {
                p.at += 1;
                module.version = Some(p.version(line)?);
            }
            ".target" => {
                p.at += 1;
                module.target = Some((p.word()?, line));
                while p.eat(',') {
                    p.word()?;
                }
            }
            ".address_size" => {
                p.at += 1;
                module.address_size = Some(p.int()?);
            }
            ".visible" | ".weak" => p.at += 1,
            ".entry" => {
                p.at += 1;
                module.entries.push(p.entry(line)?);
            }
            ".shared" | ".extern" => {
                if word == ".extern" {
                    p.at += 1;
                }
                module.variables.push(p.variable()?);
            }
            ".file" | ".loc" => p.skip_line(line),
            _ => {
                return Err(SyntaxError::new(line, format!("directive `{word}` is not known")));
            }
        }
    }
    Ok(module)
}

struct Parser<'a> {
    tokens: &'a [Spanned<'a>],
    at: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a Spanned<'a>> {
        self.tokens.get(self.at)
    }

    fn line(&self) -> u32 {
        self.peek().or(self.tokens.last()).map_or(0, |t| t.line)
    }

    fn unexpected(&self, wanted: &str) -> SyntaxError {
        let found = match self.peek().map(|t| t.token) {
            None => "the end of the text".to_owned(),
            Some(Token::Word(w)) => format!("`{w}`"),
            Some(Token::Punct(c)) => format!("`{c}`"),
            Some(Token::Text(t)) => format!("\"{t}\""),
            Some(Token::Int(_) | Token::F32(_) | Token::F64(_)) => "a number".to_owned(),
        };
        SyntaxError::new(self.line(), format!("expected {wanted}, found {found}"))
    }

    fn is(&self, c: char) -> bool {
        self.peek().is_some_and(|t| t.token == Token::Punct(c))
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.is(c);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, c: char) -> Result<()> {
        if self.eat(c) { Ok(()) } else { Err(self.unexpected(&format!("`{c}`"))) }
    }

    fn word(&mut self) -> Result<&'a str> {
        match self.peek().map(|t| t.token) {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            _ => Err(self.unexpected("a name")),
        }
    }

    fn int(&mut self) -> Result<u64> {
        match self.peek().map(|t| t.token) {
            Some(Token::Int(value)) => {
                self.at += 1;
                Ok(value)
            }
            _ => Err(self.unexpected("an integer")),
        }
    }

    fn int32(&mut self) -> Result<u32> {
        let line = self.line();
        u32::try_from(self.int()?).map_err(|_| SyntaxError::new(line, "number is too large"))
    }

    fn skip_line(&mut self, line: u32) {
        while self.peek().is_some_and(|t| t.line == line) {
            self.at += 1;
        }
    }

    fn version(&mut self, line: u32) -> Result<(u64, u64, u32)> {
        let Some(Token::F64(value)) = self.peek().map(|t| t.token) else {
            return Err(self.unexpected("a version"));
        };
        self.at += 1;
        let tenths = (value * 10.0).round() as u64;
        Ok((tenths / 10, tenths % 10, line))
    }

    fn triple(&mut self) -> Result<[u32; 3]> {
        let mut out = [1; 3];
        out[0] = self.int32()?;
        for value in &mut out[1..] {
            if !self.eat(',') {
                break;
            }
            *value = self.int32()?;
        }
        Ok(out)
    }

    fn entry(&mut self, line: u32) -> Result<Entry<'a>> {
        let mut entry = Entry { name: self.word()?, line, ..Entry::default() };
        if self.eat('(') && !self.eat(')') {
            loop {
                let directive = self.word()?;
                if directive != ".param" {
                    self.at -= 1;
                    return Err(self.unexpected("`.param`"));
                }
                let mut ty = self.word()?;
                let mut align = 1;
                if ty == ".align" {
                    align = self.int32()?;
                    ty = self.word()?;
                }
                let name = self.word()?;
                let mut count = 1;
                if self.eat('[') {
                    count = self.int32()?;
                    self.expect(']')?;
                }
                entry.params.push(Parameter { ty, name, align, count });
                if !self.eat(',') {
                    break;
                }
            }
            self.expect(')')?;
        }
        while !self.is('{') {
            let line = self.line();
            match self.word()? {
                ".reqntid" => entry.required_block = Some(self.triple()?),
                ".maxntid" => entry.max_block = Some(self.triple()?),
                ".minnctapersm" | ".maxnreg" => {
                    self.int()?;
                }
                other => {
                    return Err(SyntaxError::new(
                        line,
                        format!("directive `{other}` is not known"),
                    ));
                }
            }
        }
        self.expect('{')?;
        let mut depth = 1;
        while depth > 0 {
            if self.eat('{') {
                depth += 1;
            } else if self.eat('}') {
                depth -= 1;
            } else if let Some(statement) = self.statement()? {
                entry.body.push(statement);
            }
        }
        Ok(entry)
    }

    fn variable(&mut self) -> Result<Variable<'a>> {
        let line = self.line();
        let space = self.word()?;
        let mut align = None;
        let mut ty = self.word()?;
        if ty == ".align" {
            align = Some(self.int32()?);
            ty = self.word()?;
        }
        let name = self.word()?;
        let mut count = Some(1);
        if self.eat('[') {
            count = if self.is(']') { None } else { Some(self.int()?) };
            self.expect(']')?;
        }
        if self.is('=') {
            return Err(SyntaxError::new(line, format!("variable `{name}` has initial values")));
        }
        self.expect(';')?;
        let natural = super::operand::type_bytes(ty)
            .ok_or_else(|| SyntaxError::new(line, format!("type `{ty}` is not known")))?;
        let align = align.unwrap_or(natural);
        if !align.is_power_of_two() || align > 128 {
            return Err(SyntaxError::new(line, format!("alignment {align} is not possible")));
        }
        Ok(Variable { space, align, ty, name, count, line })
    }

    fn statement(&mut self) -> Result<Option<Statement<'a>>> {
        let line = self.line();
        if self.eat(';') {
            return Ok(None);
        }
        let mut guard = None;
        if self.eat('@') {
            let negated = self.eat('!');
            guard = Some((self.word()?, negated));
        }
        let word = self.word()?;
        if guard.is_none() {
            match word {
                ".reg" => {
                    let kind = self.registers()?;
                    return Ok(Some(Statement { line, kind }));
                }
                ".shared" | ".local" => {
                    self.at -= 1;
                    let variable = self.variable()?;
                    return Ok(Some(Statement { line, kind: Kind::Variable(variable) }));
                }
                ".loc" => {
                    self.skip_line(line);
                    return Ok(None);
                }
                ".pragma" => {
                    while !self.eat(';') {
                        if self.peek().is_none() {
                            return Err(self.unexpected("`;`"));
                        }
                        self.at += 1;
                    }
                    return Ok(None);
                }
                _ if self.eat(':') => {
                    return Ok(Some(Statement { line, kind: Kind::Label(word) }));
                }
                _ => {}
            }
        }
        if word.starts_with('.') {
            return Err(SyntaxError::new(line, format!("directive `{word}` is not known")));
        }
        let mut operands = Vec::new();
        if !self.eat(';') {
            loop {
                operands.push(self.operand()?);
                if self.eat(';') {
                    break;
                }
                self.expect(',')?;
            }
        }
        Ok(Some(Statement { line, kind: Kind::Instruction { guard, mnemonic: word, operands } }))
    }

    fn registers(&mut self) -> Result<Kind<'a>> {
        let ty = self.word()?;
        let mut names = Vec::new();
        loop {
            let name = self.word()?;
            let mut count = None;
            if self.eat('<') {
                count = Some(self.int32()?);
                self.expect('>')?;
            }
            names.push((name, count));
            if self.eat(';') {
                return Ok(Kind::Registers(ty, names));
            }
            self.expect(',')?;
        }
    }

    fn operand(&mut self) -> Result<Operand<'a>> {
        if self.eat('{') {
            let mut parts = Vec::new();
            loop {
                parts.push(self.operand()?);
                if self.eat('}') {
                    return Ok(Operand::Vector(parts));
                }
                self.expect(',')?;
            }
        }
        if self.eat('[') {
            return self.address();
        }
        if self.eat('!') {
            return Ok(Operand::Not(self.word()?));
        }
        let negative = self.eat('-');
        let Some(&Spanned { token, .. }) = self.peek() else {
            return Err(self.unexpected("an operand"));
        };
        match token {
            Token::Int(value) => {
                self.at += 1;
                Ok(Operand::Int(if negative { value.wrapping_neg() } else { value }))
            }
            Token::F64(value) => {
                self.at += 1;
                Ok(Operand::F64(if negative { -value } else { value }))
            }
            Token::F32(bits) if !negative => {
                self.at += 1;
                Ok(Operand::F32(bits))
            }
            Token::Word(word) if !negative => {
                self.at += 1;
                if self.eat('|') {
                    return Ok(Operand::Pair(word, self.word()?));
                }
                Ok(Operand::Word(word))
            }
            _ => Err(self.unexpected("an operand")),
        }
    }

    fn address(&mut self) -> Result<Operand<'a>> {
        let mut base = "";
        let mut sign = 1_i64;
        if matches!(self.peek().map(|t| t.token), Some(Token::Word(_))) {
            base = self.word()?;
            if self.eat(']') {
                return Ok(Operand::Address(base, 0));
            }
            if self.eat('-') {
                sign = -1;
            } else {
                self.expect('+')?;
            }
        }
        if self.eat('-') {
            sign = -sign;
        }
        let value = self.int()?.cast_signed();
        self.expect(']')?;
        Ok(Operand::Address(base, sign.wrapping_mul(value)))
    }
}
