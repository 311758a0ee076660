//! How values lie in memory, and as lists of scalars.

use naga::{ArraySize, Handle, ScalarKind, Type, TypeInner, UniqueArena};

use crate::Error;
use crate::code::Class;

/// The type of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ty {
    Bool,
    F16,
    F32,
    I32,
    U32,
    /// A register of a lane's part of a matrix.
    Part,
}

/// Registers of a lane's part of a matrix of 16 x 16 numbers.
pub(crate) const PARTS: usize = 8;

impl Ty {
    pub(crate) fn of(scalar: naga::Scalar) -> Result<Ty, Error> {
        match (scalar.kind, scalar.width) {
            (ScalarKind::Bool, _) => Ok(Ty::Bool),
            (ScalarKind::Float, 2) => Ok(Ty::F16),
            (ScalarKind::Float, 4) => Ok(Ty::F32),
            (ScalarKind::Sint, 4) => Ok(Ty::I32),
            (ScalarKind::Uint, 4) => Ok(Ty::U32),
            (kind, width) => Err(Error::unsupported(format!("{kind:?} of {width} bytes"))),
        }
    }

    pub(crate) fn class(self) -> Class {
        match self {
            Ty::Bool => Class::Pred,
            Ty::F16 => Class::B16,
            Ty::F32 | Ty::I32 | Ty::U32 | Ty::Part => Class::B32,
        }
    }

    fn bytes(self) -> Result<u32, Error> {
        match self {
            Ty::F16 => Ok(2),
            Ty::F32 | Ty::I32 | Ty::U32 => Ok(4),
            Ty::Bool => Err(Error::unsupported("truth values in memory")),
            Ty::Part => Err(Error::unsupported("cooperative matrices in memory variables")),
        }
    }
}

/// A scalar of a value in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    pub(crate) ty: Ty,
    pub(crate) offset: u32,
}

fn length(size: ArraySize) -> Result<u32, Error> {
    match size {
        ArraySize::Constant(n) => Ok(n.get()),
        ArraySize::Pending(_) => Err(Error::unsupported("override array lengths")),
        ArraySize::Dynamic => Err(Error::unsupported("values of runtime-sized arrays")),
    }
}

/// How types lie.
#[derive(Clone, Copy)]
pub(crate) struct Layout<'a> {
    pub(crate) types: &'a UniqueArena<Type>,
}

impl<'a> Layout<'a> {
    pub(crate) fn inner(self, ty: Handle<Type>) -> &'a TypeInner {
        &self.types[ty].inner
    }

    /// Scalars of a value.
    pub(crate) fn count(self, inner: &TypeInner) -> Result<usize, Error> {
        match inner {
            TypeInner::Scalar(_) => Ok(1),
            TypeInner::Vector { size, .. } => Ok(*size as usize),
            TypeInner::CooperativeMatrix { .. } => Ok(PARTS),
            TypeInner::Array { base, size, .. } => {
                Ok(self.count(self.inner(*base))? * length(*size)? as usize)
            }
            TypeInner::Struct { members, .. } => {
                members.iter().map(|member| self.count(self.inner(member.ty))).sum()
            }
            other => Err(unsupported(other)),
        }
    }

    /// Types of the scalars of a value.
    pub(crate) fn tys(self, inner: &TypeInner) -> Result<Vec<Ty>, Error> {
        let mut all = Vec::new();
        self.put_tys(inner, &mut all)?;
        Ok(all)
    }

    fn put_tys(self, inner: &TypeInner, to: &mut Vec<Ty>) -> Result<(), Error> {
        match inner {
            TypeInner::Scalar(scalar) => to.push(Ty::of(*scalar)?),
            TypeInner::Vector { size, scalar } => {
                to.extend(std::iter::repeat_n(Ty::of(*scalar)?, *size as usize));
            }
            TypeInner::CooperativeMatrix { .. } => to.extend([Ty::Part; PARTS]),
            TypeInner::Array { base, size, .. } => {
                for _ in 0..length(*size)? {
                    self.put_tys(self.inner(*base), to)?;
                }
            }
            TypeInner::Struct { members, .. } => {
                for member in members {
                    self.put_tys(self.inner(member.ty), to)?;
                }
            }
            other => return Err(unsupported(other)),
        }
        Ok(())
    }

    /// Scalars of a value in memory.
    pub(crate) fn leaves(self, inner: &TypeInner) -> Result<Vec<Leaf>, Error> {
        let mut all = Vec::new();
        self.put_leaves(inner, 0, &mut all)?;
        Ok(all)
    }

    fn put_leaves(self, inner: &TypeInner, from: u32, to: &mut Vec<Leaf>) -> Result<(), Error> {
        match inner {
            TypeInner::Scalar(scalar) => {
                let ty = Ty::of(*scalar)?;
                ty.bytes()?;
                to.push(Leaf { ty, offset: from });
            }
            TypeInner::Vector { size, scalar } => {
                let ty = Ty::of(*scalar)?;
                let bytes = ty.bytes()?;
                to.extend((0..*size as u32).map(|i| Leaf { ty, offset: from + i * bytes }));
            }
            TypeInner::Array { base, size, stride } => {
                for i in 0..length(*size)? {
                    self.put_leaves(self.inner(*base), from + i * stride, to)?;
                }
            }
            TypeInner::Struct { members, .. } => {
                for member in members {
                    self.put_leaves(self.inner(member.ty), from + member.offset, to)?;
                }
            }
            other => return Err(unsupported(other)),
        }
        Ok(())
    }

    /// Bytes of a value.
    pub(crate) fn bytes(self, inner: &TypeInner) -> Result<u32, Error> {
        match inner {
            TypeInner::Scalar(scalar) => Ty::of(*scalar)?.bytes(),
            TypeInner::Vector { size, scalar } => Ok(Ty::of(*scalar)?.bytes()? * *size as u32),
            TypeInner::Array { size, stride, .. } => Ok(length(*size)? * stride),
            TypeInner::Struct { span, .. } => Ok(*span),
            other => Err(unsupported(other)),
        }
    }

    /// What addresses of values are multiples of.
    pub(crate) fn align(self, inner: &TypeInner) -> Result<u32, Error> {
        match inner {
            TypeInner::Scalar(scalar) => Ty::of(*scalar)?.bytes(),
            TypeInner::Vector { size, scalar } => {
                Ok(Ty::of(*scalar)?.bytes()? * (*size as u32).next_power_of_two())
            }
            TypeInner::Array { base, .. } => self.align(self.inner(*base)),
            TypeInner::Struct { members, .. } => {
                let mut each = members.iter().map(|member| self.align(self.inner(member.ty)));
                each.try_fold(1, |most, align| Ok(most.max(align?)))
            }
            other => Err(unsupported(other)),
        }
    }

    /// The elements of a vector or an array: the type of one, bytes from one to the next, and how many there are if that is
    /// known.
    pub(crate) fn elements(
        self,
        inner: &TypeInner,
    ) -> Result<(TypeInner, u32, Option<u32>), Error> {
        match inner {
            TypeInner::Vector { size, scalar } => {
                let bytes = u32::from(scalar.width);
                Ok((TypeInner::Scalar(*scalar), bytes, Some(*size as u32)))
            }
            TypeInner::Array { base, size, stride } => {
                let n = match size {
                    ArraySize::Dynamic => None,
                    size => Some(length(*size)?),
                };
                Ok((self.inner(*base).clone(), *stride, n))
            }
            other => Err(unsupported(other)),
        }
    }
}

fn unsupported(inner: &TypeInner) -> Error {
    let name = format!("{inner:?}");
    let name = name.split([' ', '{', '(']).next().unwrap_or_default();
    Error::unsupported(format!("values of type {name}"))
}
