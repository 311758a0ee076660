//! Expressions.

use std::rc::Rc;

use naga::{
    BinaryOperator, Expression, Handle, RelationalFunction, ScalarKind, SwizzleComponent, Type,
    TypeInner, VectorSize,
};

use crate::Error;
use crate::builder::zero;
use crate::code::Scalar;
use crate::layout::Ty;
use crate::translator::{Result, Translator, Value};

impl<'a> Translator<'a> {
    /// The type of an expression.
    pub(crate) fn inner(&mut self, expr: Handle<Expression>) -> &'a TypeInner {
        let types = &self.module.types;
        self.frame().info[expr].ty.inner_with(types)
    }

    /// The type of the scalars of an expression that is a scalar or a vector.
    pub(crate) fn ty(&mut self, expr: Handle<Expression>) -> Result<Ty> {
        let inner = self.inner(expr);
        match inner.scalar() {
            Some(scalar) => Ok(Ty::of(scalar)?),
            None => Err(Error::unsupported(format!("an operation on {inner:?}")).into()),
        }
    }

    /// The value of an expression.
    pub(crate) fn value(&mut self, expr: Handle<Expression>) -> Result<Value> {
        if let Some(value) = self.frame().values.get(&expr) {
            return Ok(value.clone());
        }
        let function = self.frame().function;
        match &function.expressions[expr] {
            Expression::FunctionArgument(i) => Ok(self.frame().arguments[*i as usize].clone()),
            Expression::LocalVariable(variable) => {
                Ok(self.frame().variables[variable.index()].clone())
            }
            Expression::GlobalVariable(global) => self.global(*global),
            Expression::Override(_) => Err(Error::unsupported("overrides").into()),
            _ => self.evaluate(expr),
        }
    }

    /// The scalars of an expression that is no pointer.
    pub(crate) fn scalars(&mut self, expr: Handle<Expression>) -> Result<Rc<[Scalar]>> {
        match self.value(expr)? {
            Value::Scalars(scalars) => Ok(scalars),
            Value::Pointer(_) => Err(Error::unsupported("a pointer as a value").into()),
        }
    }

    pub(crate) fn scalar(&mut self, expr: Handle<Expression>) -> Result<Scalar> {
        Ok(self.scalars(expr)?[0])
    }

    /// Evaluates an expression at this place.
    pub(crate) fn evaluate(&mut self, expr: Handle<Expression>) -> Result<Value> {
        let function = self.frame().function;
        if let Some(scalars) = self.composed(&function.expressions[expr], Self::scalars)? {
            return Ok(Value::Scalars(scalars));
        }
        let scalars = match &function.expressions[expr] {
            Expression::Access { base, index } => {
                let index = self.scalar(*index)?;
                return self.access(*base, index);
            }
            Expression::AccessIndex { base, index } => {
                return self.access(*base, Scalar::Bits(*index));
            }
            Expression::Load { pointer } => {
                let inner = self.inner(expr);
                let pointer = self.value(*pointer)?;
                let pointer = self.pointer(pointer)?;
                self.load(&pointer, inner)?
            }
            Expression::Unary { op, expr } => {
                let ty = self.ty(*expr)?;
                let all = self.scalars(*expr)?;
                all.iter().map(|s| self.unary(*op, ty, *s)).collect::<Result<_>>()?
            }
            Expression::Binary { op, left, right } => self.binaries(*op, *left, *right)?,
            Expression::Select { condition, accept, reject } => {
                let inner = self.inner(*accept);
                let tys = self.layout.tys(inner)?;
                let condition = self.scalars(*condition)?;
                let (accept, reject) = (self.scalars(*accept)?, self.scalars(*reject)?);
                let each = (0..tys.len()).map(|i| {
                    let is = condition[if condition.len() == 1 { 0 } else { i }];
                    self.pick(is, accept[i], reject[i], tys[i])
                });
                each.collect()
            }
            Expression::Relational { fun, argument } => {
                let all = self.scalars(*argument)?;
                let op = match fun {
                    RelationalFunction::All => "and.pred",
                    RelationalFunction::Any => "or.pred",
                    other => return Err(Error::unsupported(format!("{other:?}")).into()),
                };
                let (first, rest) = all.split_first().expect("a vector is not empty");
                Rc::from([rest.iter().fold(*first, |is, s| self.truth(op, &[is, *s]))])
            }
            Expression::Math { fun, arg, arg1, arg2, arg3 } => {
                let arguments = [Some(*arg), *arg1, *arg2, *arg3];
                let arguments = arguments.iter().flatten().copied().collect::<Vec<_>>();
                self.math(*fun, &arguments)?
            }
            Expression::As { expr, kind, convert } => {
                let from = self.ty(*expr)?;
                let all = self.scalars(*expr)?;
                let to = match convert {
                    Some(width) => Ty::of(naga::Scalar { kind: *kind, width: *width })?,
                    None => self.bits_as(from, *kind)?,
                };
                match convert {
                    Some(_) => {
                        all.iter().map(|s| self.convert(*s, from, to)).collect::<Result<_>>()?
                    }
                    None => all,
                }
            }
            Expression::CooperativeLoad { columns, rows, role, data } => {
                self.load_matrix([*columns as u32, *rows as u32], *role, *data)?
            }
            Expression::CooperativeMultiplyAdd { a, b, c } => self.multiply_matrices(*a, *b, *c)?,
            other => {
                let name = format!("{other:?}");
                let name = name.split([' ', '{', '(']).next().unwrap_or_default();
                return Err(Error::unsupported(format!("the expression {name}")).into());
            }
        };
        Ok(Value::Scalars(scalars))
    }

    /// The type that has the bits of another one.
    fn bits_as(&self, from: Ty, kind: ScalarKind) -> Result<Ty> {
        let width = if from == Ty::F16 { 2 } else { 4 };
        Ok(Ty::of(naga::Scalar { kind, width })?)
    }

    pub(crate) fn zeros(&self, ty: Handle<Type>) -> Result<Rc<[Scalar]>> {
        let tys = self.layout.tys(self.layout.inner(ty))?;
        Ok(tys.iter().map(|ty| zero(*ty)).collect())
    }

    /// The value of an expression of the module.
    fn constant(&mut self, expr: Handle<Expression>) -> Result<Rc<[Scalar]>> {
        let module = self.module;
        let expr = &module.global_expressions[expr];
        let composed = self.composed(expr, Self::constant)?;
        composed.ok_or_else(|| Error::unsupported(format!("the constant {expr:?}")).into())
    }

    /// The value of an expression that functions and the module have alike; `None` for others. `part` evaluates the operands.
    fn composed(
        &mut self,
        expr: &Expression,
        part: impl Fn(&mut Self, Handle<Expression>) -> Result<Rc<[Scalar]>>,
    ) -> Result<Option<Rc<[Scalar]>>> {
        Ok(Some(match expr {
            Expression::Literal(literal) => Rc::from([Self::literal(*literal)?]),
            Expression::Constant(constant) => {
                self.constant(self.module.constants[*constant].init)?
            }
            Expression::ZeroValue(ty) => self.zeros(*ty)?,
            Expression::Compose { components, .. } => {
                let mut all = Vec::new();
                for component in components {
                    all.extend_from_slice(&part(self, *component)?);
                }
                all.into()
            }
            Expression::Splat { size, value } => {
                let value = part(self, *value)?[0];
                std::iter::repeat_n(value, *size as usize).collect()
            }
            Expression::Swizzle { size, vector, pattern } => {
                swizzled(&part(self, *vector)?, *size, pattern)
            }
            _ => return Ok(None),
        }))
    }

    /// An element of a composite, or of what a pointer points to.
    fn access(&mut self, base: Handle<Expression>, index: Scalar) -> Result<Value> {
        let inner = self.inner(base);
        match self.value(base)? {
            Value::Pointer(pointer) => {
                let vector;
                let target = match inner {
                    TypeInner::Pointer { base, .. } => self.layout.inner(*base),
                    TypeInner::ValuePointer { size: Some(size), scalar, .. } => {
                        vector = TypeInner::Vector { size: *size, scalar: *scalar };
                        &vector
                    }
                    other => {
                        return Err(Error::unsupported(format!("an element of {other:?}")).into());
                    }
                };
                Ok(Value::Pointer(self.at(pointer, target, index)?))
            }
            Value::Scalars(all) => {
                if let (TypeInner::Struct { members, .. }, Some(index)) = (inner, index.bits()) {
                    let count = |i: usize| self.layout.count(self.layout.inner(members[i].ty));
                    let mut first = 0;
                    for i in 0..index as usize {
                        first += count(i)?;
                    }
                    let n = count(index as usize)?;
                    return Ok(Value::Scalars(all[first..first + n].into()));
                }
                let (element, _, count) = self.layout.elements(inner)?;
                let tys = self.layout.tys(&element)?;
                let count = count.unwrap_or(1) as usize;
                let each = (0..tys.len()).map(|i| {
                    let of: Vec<_> = (0..count).map(|k| all[k * tys.len() + i]).collect();
                    self.choose_one(index, &of, tys[i])
                });
                Ok(Value::Scalars(each.collect()))
            }
        }
    }

    /// An operation on scalars or vectors, or one of each.
    fn binaries(
        &mut self,
        op: BinaryOperator,
        left: Handle<Expression>,
        right: Handle<Expression>,
    ) -> Result<Rc<[Scalar]>> {
        let ty = self.ty(left)?;
        for side in [left, right] {
            let inner = self.inner(side);
            if !matches!(inner, TypeInner::Scalar(_) | TypeInner::Vector { .. }) {
                return Err(Error::unsupported(format!("{op:?} of {inner:?}")).into());
            }
        }
        let (left, right) = (self.scalars(left)?, self.scalars(right)?);
        let n = left.len().max(right.len());
        let of = |all: &[Scalar], i: usize| all[if all.len() == 1 { 0 } else { i }];
        (0..n).map(|i| self.binary(op, ty, of(&left, i), of(&right, i))).collect()
    }
}

fn swizzled(all: &[Scalar], size: VectorSize, pattern: &[SwizzleComponent; 4]) -> Rc<[Scalar]> {
    pattern[..size as usize].iter().map(|component| all[*component as usize]).collect()
}
