//! Loops that are written out, turn by turn: those that end after a known number of turns and are short, or index a
//! variable, which is in registers then. Where a turn is long and branches all over, that variable is chosen from instead.

use naga::{Block, Expression, Function, Handle, LocalVariable, Statement};

use crate::code::{Class, Scalar};
use crate::memory::Pointer;
use crate::translator::{Result, Scope, Stop, Translator, Value};

/// Turns of a loop that is written out.
const MOST_TURNS: usize = 64;
/// Lines of a loop that needs not be written out.
const MOST_LINES: usize = 128;
/// Lines of a loop that indexes a variable.
const MOST_LINES_OF_NEED: usize = 12_000;
/// Lines of a turn of a loop that stays one if there is a branch for at least so many of them.
const MANY_LINES: usize = 192;
const LINES_OF_BRANCH: usize = 32;
/// Turns of a loop that indexes a variable and ends nobody knows when, but not behind the variable's end.
const MOST_OPEN_TURNS: usize = 16;

/// How a try went.
enum Tried {
    Done,
    /// The loop is as it is.
    Not,
    /// The same, though it indexes a variable, if that can be chosen from.
    Large,
}

impl<'a> Translator<'a> {
    /// Writes a loop out if that is of use, and says whether it did.
    pub(crate) fn unrolled(&mut self, body: &'a Block, continuing: &'a Block) -> Result<bool> {
        let Some(head) = body.iter().position(|one| matches!(one, Statement::If { .. })) else {
            return Ok(false);
        };
        let Statement::If { condition, accept, reject } = &body[head] else { return Ok(false) };
        let is_break = |block: &Block| matches!(block.first(), Some(Statement::Break));
        let goes_on = match (accept.is_empty(), reject.is_empty()) {
            (true, false) if is_break(reject) => true,
            (false, true) if is_break(accept) => false,
            _ => return Ok(false),
        };
        let head = Head { before: &body[..head], condition: *condition, goes_on };
        let counters = self.counters(continuing);
        let is_needed = self.indexes_variables(body, &counters)?;
        let rest = &body[head.before.len() + 1..];
        let tried = self.attempt(|it| it.turns(&head, rest, continuing, is_needed, false))?;
        if !matches!(tried, Tried::Large) {
            return Ok(matches!(tried, Tried::Done));
        }
        let chosen = self.attempt(|it| {
            it.repeated(body, continuing, None)?;
            Ok(Tried::Done)
        })?;
        if matches!(chosen, Tried::Done) {
            return Ok(true);
        }
        let tried = self.attempt(|it| it.turns(&head, rest, continuing, is_needed, true))?;
        Ok(matches!(tried, Tried::Done))
    }

    /// Tries to write something: if it is not done, all is as before.
    fn attempt(&mut self, work: impl FnOnce(&mut Self) -> Result<Tried>) -> Result<Tried> {
        let start = self.b.checkpoint();
        let (n_frames, depth) = (self.frames.len(), self.depth);
        let frame = self.frame();
        let (n_scopes, n_returns) = (frame.scopes.len(), frame.returns.len());
        let was_beyond = std::mem::replace(&mut self.is_beyond, false);
        let tried = work(self);
        self.is_beyond = was_beyond;
        let tried = match tried {
            Err(Stop::Demote(_)) => Tried::Not,
            tried => tried?,
        };
        if !matches!(tried, Tried::Done) {
            self.b.roll_back(&start);
            self.depth = depth;
            self.frames.truncate(n_frames);
            let frame = self.frame();
            frame.scopes.truncate(n_scopes);
            frame.returns.truncate(n_returns);
        }
        Ok(tried)
    }

    fn turns(
        &mut self,
        head: &Head<'a>,
        rest: &'a [Statement],
        continuing: &'a Block,
        is_needed: bool,
        is_last_try: bool,
    ) -> Result<Tried> {
        let mark = self.b.mark();
        let first_line = self.b.len();
        let most_lines = if is_needed { MOST_LINES_OF_NEED } else { MOST_LINES };
        self.frame().scopes.push(Scope {
            is_loop: true,
            breaks: Vec::new(),
            continues: Vec::new(),
        });
        let mut is_open = false;
        for turn in 0.. {
            let most = if is_open { MOST_OPEN_TURNS } else { MOST_TURNS };
            if turn > most || self.b.len() - first_line > most_lines {
                return Ok(Tried::Not);
            }
            self.statements(head.before)?;
            if !self.b.reachable {
                break;
            }
            match self.scalar(head.condition)? {
                Scalar::Bool(is) if is != head.goes_on => {
                    self.break_here();
                    break;
                }
                Scalar::Bool(_) => {}
                _ if !is_needed => return Ok(Tried::Not),
                condition => {
                    is_open = true;
                    let condition = self.b.in_reg(condition, Class::Pred);
                    let on = self.b.new_label();
                    self.jump(condition, head.goes_on, on);
                    self.break_here();
                    self.b.label(on);
                }
            }
            let before = self.b.checkpoint();
            let frame = self.frame();
            let n_returns = frame.returns.len();
            let n_breaks = frame.scopes.last().map_or(0, |scope| scope.breaks.len());
            let in_body = self.b.mark();
            let begin = self.b.len();
            self.statements(rest)?;
            self.continue_here(in_body);
            if turn == 0 && is_needed && !is_last_try && !is_open && self.is_large(begin) {
                return Ok(Tried::Large);
            }
            if self.is_beyond && is_open {
                // what there is has been gone through
                self.is_beyond = false;
                self.b.roll_back(&before);
                let frame = self.frame();
                frame.returns.truncate(n_returns);
                if let Some(scope) = frame.scopes.last_mut() {
                    scope.breaks.truncate(n_breaks);
                }
                self.break_here();
                break;
            }
            if !self.b.reachable {
                break;
            }
            self.statements(continuing)?;
        }
        let scope = self.frame().scopes.pop();
        let breaks = scope.map_or_else(Vec::new, |scope| scope.breaks);
        self.b.join(&breaks, &[], mark);
        Ok(Tried::Done)
    }

    /// Whether what was written since is long and branches so often that it is not for its speed that it is written out.
    fn is_large(&self, begin: usize) -> bool {
        let lines = self.b.len() - begin;
        lines > MANY_LINES && self.b.branches_since(begin) * LINES_OF_BRANCH > lines
    }

    /// Variables that a loop counts with: those that are written behind its body.
    fn counters(&mut self, continuing: &'a [Statement]) -> Vec<Handle<LocalVariable>> {
        let function = self.frame().function;
        let stores = continuing.iter().filter_map(|statement| match statement {
            Statement::Store { pointer, .. } => Some(*pointer),
            _ => None,
        });
        let variables = stores.filter_map(|pointer| match function.expressions[pointer] {
            Expression::LocalVariable(variable) => Some(variable),
            _ => None,
        });
        variables.collect()
    }

    /// Whether a loop indexes variables by what it counts with.
    fn indexes_variables(
        &mut self,
        all: &'a [Statement],
        counters: &[Handle<LocalVariable>],
    ) -> Result<bool> {
        for statement in all {
            let found = match statement {
                Statement::Emit(range) => {
                    let mut found = false;
                    for expr in range.clone() {
                        found |= self.is_indexed_variable(expr, counters)?;
                    }
                    found
                }
                Statement::Block(block) => self.indexes_variables(block, counters)?,
                Statement::If { accept, reject, .. } => {
                    self.indexes_variables(accept, counters)?
                        || self.indexes_variables(reject, counters)?
                }
                Statement::Switch { cases, .. } => {
                    let mut found = false;
                    for case in cases {
                        found |= self.indexes_variables(&case.body, counters)?;
                    }
                    found
                }
                Statement::Loop { body, continuing, .. } => {
                    self.indexes_variables(body, counters)?
                        || self.indexes_variables(continuing, counters)?
                }
                _ => false,
            };
            if found {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn is_indexed_variable(
        &mut self,
        expr: Handle<Expression>,
        counters: &[Handle<LocalVariable>],
    ) -> Result<bool> {
        let function = self.frame().function;
        let Expression::Access { base, index } = &function.expressions[expr] else {
            return Ok(false);
        };
        let root = self.root(*base)?;
        let is_variable = matches!(root, Some(Value::Pointer(Pointer::Variable(_))));
        Ok(is_variable && depends_on(function, *index, counters))
    }
}

/// Whether a number depends on variables in a way that is plain to see.
fn depends_on(
    function: &Function,
    expr: Handle<Expression>,
    variables: &[Handle<LocalVariable>],
) -> bool {
    let depends = |expr| depends_on(function, expr, variables);
    match &function.expressions[expr] {
        Expression::LocalVariable(variable) => variables.contains(variable),
        Expression::Load { pointer } => depends(*pointer),
        Expression::Unary { expr, .. } | Expression::As { expr, .. } => depends(*expr),
        Expression::Binary { left, right, .. } => depends(*left) || depends(*right),
        Expression::Math { arg, arg1, arg2, .. } => {
            depends(*arg) || [arg1, arg2].into_iter().flatten().any(|arg| depends(*arg))
        }
        Expression::Select { condition, accept, reject } => {
            [condition, accept, reject].into_iter().any(|expr| depends(*expr))
        }
        _ => false,
    }
}

/// What each turn begins with.
struct Head<'a> {
    before: &'a [Statement],
    condition: Handle<Expression>,
    /// What the condition is if there is another turn.
    goes_on: bool,
}
