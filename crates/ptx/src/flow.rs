//! Statements.

use naga::{
    Barrier, Block, CollectiveOperation, Expression, GatherMode, Handle, Statement,
    SubgroupOperation, SwitchCase, SwitchValue, TypeInner,
};

use crate::Error;
use crate::builder::Edge;
use crate::code::{Class, Inst, Kind, Label, Reg, Scalar};
use crate::layout::Ty;
use crate::memory::Pointer;
use crate::translator::{Result, Scope, Translator, Value};

/// All lanes of a subgroup.
const ALL_LANES: Scalar = Scalar::Bits(u32::MAX);

impl<'a> Translator<'a> {
    pub(crate) fn statements(&mut self, all: &'a [Statement]) -> Result<()> {
        for statement in all {
            if !self.b.reachable {
                return Ok(());
            }
            self.statement(statement)?;
        }
        Ok(())
    }

    fn statement(&mut self, statement: &'a Statement) -> Result<()> {
        match statement {
            Statement::Emit(range) => {
                for expr in range.clone() {
                    let value = self.evaluate(expr)?;
                    self.frame().values.insert(expr, value);
                }
            }
            Statement::Block(block) => self.statements(block)?,
            Statement::If { condition, accept, reject } => {
                let condition = self.scalar(*condition)?;
                self.branch(condition, accept, reject)?;
            }
            Statement::Switch { selector, cases } => {
                let selector = self.scalar(*selector)?;
                self.switch(selector, cases)?;
            }
            Statement::Loop { body, continuing, break_if } => {
                if break_if.is_some() || !self.unrolled(body, continuing)? {
                    self.repeated(body, continuing, *break_if)?;
                }
            }
            Statement::Break => {
                let edge = self.b.leave(Vec::new());
                let scope = self.frame().scopes.last_mut();
                scope.ok_or_else(|| Error::new("a break is in no loop"))?.breaks.push(edge);
            }
            Statement::Continue => {
                let edge = self.b.leave(Vec::new());
                let scope = self.frame().scopes.iter_mut().rev().find(|scope| scope.is_loop);
                scope.ok_or_else(|| Error::new("a continue is in no loop"))?.continues.push(edge);
            }
            Statement::Return { value } => {
                let values = match value {
                    Some(value) => self.scalars(*value)?.to_vec(),
                    None => Vec::new(),
                };
                let edge = self.b.leave(values);
                self.frame().returns.push(edge);
            }
            Statement::ControlBarrier(barrier) => self.barrier(*barrier)?,
            Statement::MemoryBarrier(_) => self.bare("membar.cta"),
            Statement::Store { pointer, value } => {
                let inner = self.inner(*value);
                let value = self.scalars(*value)?;
                let pointer = self.value(*pointer)?;
                let pointer = self.pointer(pointer)?;
                self.store(&pointer, inner, &value)?;
            }
            Statement::WorkGroupUniformLoad { pointer, result } => {
                let inner = self.inner(*result);
                let pointer = self.value(*pointer)?;
                let pointer = self.pointer(pointer)?;
                self.barrier(Barrier::WORK_GROUP)?;
                let value = self.load(&pointer, inner)?;
                self.bare("bar.sync 0");
                self.frame().values.insert(*result, Value::Scalars(value));
            }
            Statement::Call { function, arguments, result } => {
                let arguments = arguments.iter().map(|argument| self.value(*argument));
                let arguments = arguments.collect::<Result<_>>()?;
                let callee = &self.module.functions[*function];
                let value = self.call(Some(*function), callee, &self.info[*function], arguments)?;
                if let Some(result) = result {
                    self.frame().values.insert(*result, value);
                }
            }
            Statement::SubgroupGather { mode, argument, result } => {
                self.gather(*mode, *argument, *result)?;
            }
            Statement::SubgroupCollectiveOperation { op, collective_op, argument, result } => {
                self.collect(*op, *collective_op, *argument, *result)?;
            }
            Statement::CooperativeStore { target, data } => self.store_matrix(*target, *data)?,
            other => {
                let name = format!("{other:?}");
                let name = name.split([' ', '{', '(']).next().unwrap_or_default();
                return Err(Error::unsupported(format!("the statement {name}")).into());
            }
        }
        Ok(())
    }

    fn bare(&mut self, op: &'static str) {
        if !self.b.ends_with(op) {
            self.b.push(Inst::of(op, Vec::new(), Vec::new(), Kind::Bare));
        }
    }

    fn barrier(&mut self, barrier: Barrier) -> Result<()> {
        if barrier.intersects(Barrier::SUB_GROUP | Barrier::TEXTURE) {
            return Err(Error::unsupported(format!("{barrier:?}")).into());
        }
        if barrier.contains(Barrier::STORAGE) && !self.b.ends_with("bar.sync 0") {
            self.bare("membar.cta");
        }
        self.bare("bar.sync 0");
        Ok(())
    }

    /// Goes to a place if a condition is as said.
    pub(crate) fn jump(&mut self, condition: Reg, is: bool, to: Label) {
        self.b.push(Inst { guard: Some((condition, is)), ..Inst::bra(to) });
    }

    fn branch(
        &mut self,
        condition: Scalar,
        accept: &'a [Statement],
        reject: &'a [Statement],
    ) -> Result<()> {
        let condition = match condition {
            Scalar::Bool(is) => return self.statements(if is { accept } else { reject }),
            condition => self.b.in_reg(condition, Class::Pred),
        };
        let mark = self.b.mark();
        let other = self.b.new_label();
        self.jump(condition, false, other);
        let env = self.b.env.clone();
        self.statements(accept)?;
        self.b.forget(mark);
        let mut edges = Vec::new();
        if self.b.reachable {
            edges.push(self.b.leave(Vec::new()));
        }
        self.b.env = env;
        self.b.label(other);
        self.statements(reject)?;
        if self.b.reachable {
            edges.push(self.b.leave(Vec::new()));
        }
        self.b.join(&edges, &[], mark);
        Ok(())
    }

    fn switch(&mut self, selector: Scalar, cases: &'a [SwitchCase]) -> Result<()> {
        let value = |case: &SwitchCase| match case.value {
            SwitchValue::I32(n) => Some(n.cast_unsigned()),
            SwitchValue::U32(n) => Some(n),
            SwitchValue::Default => None,
        };
        // values that share a body have empty ones before it
        let mut groups: Vec<(Vec<Option<u32>>, &'a Block)> = Vec::new();
        let mut values = Vec::new();
        for case in cases {
            values.push(value(case));
            if !case.fall_through {
                groups.push((std::mem::take(&mut values), &case.body));
            } else if !case.body.is_empty() {
                return Err(Error::unsupported("cases that fall through").into());
            }
        }
        let mark = self.b.mark();
        let env = self.b.env.clone();
        self.frame().scopes.push(Scope {
            is_loop: false,
            breaks: Vec::new(),
            continues: Vec::new(),
        });
        let mut edges = Vec::new();
        if let Some(selector) = selector.bits() {
            let has = |wanted| move |(values, _): &&(Vec<_>, &'a Block)| values.contains(&wanted);
            let group = groups.iter().find(has(Some(selector)));
            if let Some((_, body)) = group.or_else(|| groups.iter().find(has(None))) {
                self.statements(body)?;
            }
            self.leave_to(&mut edges);
        } else {
            let labels: Vec<_> = groups.iter().map(|_| self.b.new_label()).collect();
            let mut rest = None;
            for ((values, _), label) in groups.iter().zip(&labels) {
                for value in values {
                    let Some(value) = value else {
                        rest = Some(*label);
                        continue;
                    };
                    let is = self.truth("setp.eq.u32", &[selector, Scalar::Bits(*value)]);
                    let is = self.b.in_reg(is, Class::Pred);
                    self.jump(is, true, *label);
                }
            }
            match rest {
                Some(label) => self.b.push(Inst::bra(label)),
                None => self.leave_to(&mut edges),
            }
            for ((_, body), label) in groups.iter().zip(labels) {
                self.b.env.clone_from(&env);
                self.b.label(label);
                self.statements(body)?;
                self.b.forget(mark);
                self.leave_to(&mut edges);
            }
        }
        let scope = self.frame().scopes.pop();
        edges.extend(scope.into_iter().flat_map(|scope| scope.breaks));
        self.b.join(&edges, &[], mark);
        Ok(())
    }

    /// Leaves this place, if control gets here, for where some ways come together.
    fn leave_to(&mut self, edges: &mut Vec<Edge>) {
        if self.b.reachable {
            edges.push(self.b.leave(Vec::new()));
        }
    }

    /// A loop.
    pub(crate) fn repeated(
        &mut self,
        body: &'a Block,
        continuing: &'a Block,
        break_if: Option<Handle<Expression>>,
    ) -> Result<()> {
        let mut written = Vec::new();
        self.written(body, &mut written)?;
        self.written(continuing, &mut written)?;
        written.sort_unstable();
        written.dedup();
        let mark = self.b.mark();
        let (label, phis) = self.b.begin_loop(&written);
        self.depth += 1;
        self.frame().scopes.push(Scope {
            is_loop: true,
            breaks: Vec::new(),
            continues: Vec::new(),
        });
        let in_body = self.b.mark();
        self.statements(body)?;
        self.continue_here(in_body);
        self.statements(continuing)?;
        if let (Some(condition), true) = (break_if, self.b.reachable) {
            match self.scalar(condition)? {
                Scalar::Bool(false) => {}
                Scalar::Bool(true) => self.break_here(),
                condition => {
                    let condition = self.b.in_reg(condition, Class::Pred);
                    let on = self.b.new_label();
                    self.jump(condition, false, on);
                    self.break_here();
                    self.b.label(on);
                }
            }
        }
        self.b.repeat(label, &phis);
        self.depth -= 1;
        let scope = self.frame().scopes.pop();
        self.b.forget(mark);
        let breaks = scope.map_or_else(Vec::new, |scope| scope.breaks);
        self.b.join(&breaks, &[], mark);
        Ok(())
    }

    /// Leaves the innermost loop, or switch.
    pub(crate) fn break_here(&mut self) {
        let edge = self.b.leave(Vec::new());
        if let Some(scope) = self.frame().scopes.last_mut() {
            scope.breaks.push(edge);
        }
    }

    /// All ways to the end of a loop's body come together.
    pub(crate) fn continue_here(&mut self, mark: usize) {
        let edges =
            self.frame().scopes.last_mut().map(|scope| std::mem::take(&mut scope.continues));
        let mut edges = edges.unwrap_or_default();
        if edges.is_empty() && self.b.reachable {
            return;
        }
        self.leave_to(&mut edges);
        self.b.join(&edges, &[], mark);
    }

    /// Scalars of variables that statements write.
    fn written(&mut self, all: &'a Block, to: &mut Vec<usize>) -> Result<()> {
        for statement in all {
            match statement {
                Statement::Block(block) => self.written(block, to)?,
                Statement::If { accept, reject, .. } => {
                    self.written(accept, to)?;
                    self.written(reject, to)?;
                }
                Statement::Switch { cases, .. } => {
                    for case in cases {
                        self.written(&case.body, to)?;
                    }
                }
                Statement::Loop { body, continuing, .. } => {
                    self.written(body, to)?;
                    self.written(continuing, to)?;
                }
                Statement::Store { pointer, .. } => self.written_through(*pointer, to)?,
                Statement::Call { arguments, .. } => {
                    for argument in arguments {
                        let inner = self.inner(*argument);
                        let pointers = [
                            matches!(inner, TypeInner::Pointer { .. }),
                            matches!(inner, TypeInner::ValuePointer { .. }),
                        ];
                        if pointers.contains(&true) {
                            self.written_through(*argument, to)?;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn written_through(&mut self, pointer: Handle<Expression>, to: &mut Vec<usize>) -> Result<()> {
        if let Some(Value::Pointer(Pointer::Variable(variable))) = self.root(pointer)? {
            to.extend(variable.slot..variable.slot + variable.count);
        }
        Ok(())
    }

    /// The variable, or the argument, that a pointer comes from.
    pub(crate) fn root(&mut self, pointer: Handle<Expression>) -> Result<Option<Value>> {
        let function = self.frame().function;
        let mut expr = pointer;
        loop {
            match &function.expressions[expr] {
                Expression::Access { base, .. } | Expression::AccessIndex { base, .. } => {
                    expr = *base;
                }
                Expression::LocalVariable(_) | Expression::FunctionArgument(_) => {
                    return self.value(expr).map(Some);
                }
                _ => return Ok(None),
            }
        }
    }

    fn shuffle(&mut self, op: &'static str, a: Scalar, by: Scalar) -> Scalar {
        let a = Scalar::Reg(self.b.in_reg(a, Class::B32));
        let end = if op == "shfl.sync.up.b32" { 0 } else { 31 };
        let dst = self.b.new_reg(Class::B32);
        self.b.push(Inst::plain(op, dst, &[a, by, Scalar::Bits(end), ALL_LANES]));
        Scalar::Reg(dst)
    }

    fn gather(
        &mut self,
        mode: GatherMode,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<()> {
        if self.ty(argument)?.class() != Class::B32 {
            return Err(Error::unsupported("subgroup operations on 16 bits or truth values").into());
        }
        let (op, by) = match mode {
            GatherMode::BroadcastFirst => ("shfl.sync.idx.b32", None),
            GatherMode::Broadcast(by) | GatherMode::Shuffle(by) => ("shfl.sync.idx.b32", Some(by)),
            GatherMode::ShuffleDown(by) => ("shfl.sync.down.b32", Some(by)),
            GatherMode::ShuffleUp(by) => ("shfl.sync.up.b32", Some(by)),
            GatherMode::ShuffleXor(by) => ("shfl.sync.bfly.b32", Some(by)),
            other => return Err(Error::unsupported(format!("{other:?}")).into()),
        };
        let by = by.map_or(Ok(Scalar::Bits(0)), |by| self.scalar(by))?;
        let all = self.scalars(argument)?;
        let found = all.iter().map(|s| self.shuffle(op, *s, by)).collect();
        self.frame().values.insert(result, Value::Scalars(found));
        Ok(())
    }

    /// Sums and their like over all lanes: each adds what the lane so far away has.
    fn collect(
        &mut self,
        op: SubgroupOperation,
        collective: CollectiveOperation,
        argument: Handle<Expression>,
        result: Handle<Expression>,
    ) -> Result<()> {
        use SubgroupOperation as Op;
        let ty = self.ty(argument)?;
        let op = match (op, ty) {
            (Op::Add, Ty::F32) => "add.rn.f32",
            (Op::Mul, Ty::F32) => "mul.rn.f32",
            (Op::Min, Ty::F32) => "min.f32",
            (Op::Max, Ty::F32) => "max.f32",
            (Op::Add, Ty::I32 | Ty::U32) => "add.u32",
            (Op::Mul, Ty::I32 | Ty::U32) => "mul.lo.u32",
            (Op::Min, Ty::I32) => "min.s32",
            (Op::Max, Ty::I32) => "max.s32",
            (Op::Min, Ty::U32) => "min.u32",
            (Op::Max, Ty::U32) => "max.u32",
            (Op::And, Ty::I32 | Ty::U32) => "and.b32",
            (Op::Or, Ty::I32 | Ty::U32) => "or.b32",
            (Op::Xor, Ty::I32 | Ty::U32) => "xor.b32",
            _ => return Err(Error::unsupported(format!("subgroup {op:?} of {ty:?}")).into()),
        };
        if collective != CollectiveOperation::Reduce {
            return Err(Error::unsupported(format!("subgroup {collective:?}")).into());
        }
        let all = self.scalars(argument)?;
        let found = all.iter().map(|s| {
            [16, 8, 4, 2, 1].iter().fold(*s, |sum, away| {
                let other = self.shuffle("shfl.sync.bfly.b32", sum, Scalar::Bits(*away));
                self.word(op, &[sum, other])
            })
        });
        let found = found.collect();
        self.frame().values.insert(result, Value::Scalars(found));
        Ok(())
    }
}
