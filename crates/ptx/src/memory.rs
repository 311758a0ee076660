//! Pointers: where they point to is known but for what indices are only known when a kernel runs.

use std::rc::Rc;

use naga::TypeInner;

use crate::Error;
use crate::code::{Address, Base, Class, Inst, Kind, Scalar};
use crate::layout::{Leaf, Ty};
use crate::translator::{Owner, Result, Stop, Translator, Value};

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    /// What a kernel is given by value.
    Param,
    /// A buffer that nobody writes meanwhile.
    Constant,
    /// Another buffer.
    Global,
    Shared,
    Local,
}

/// A place in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) space: Space,
    pub(crate) base: Base,
    pub(crate) offset: i64,
    /// Of a number of a vector: how many the vector has, and which it is.
    vector: Option<(u32, u32)>,
}

/// An index into a variable in registers that is not known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dim {
    index: Scalar,
    /// Scalars from one element to the next.
    stride: usize,
    count: usize,
}

/// Scalars of a variable in registers.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) owner: Owner,
    /// Where it begins in the environment.
    pub(crate) slot: usize,
    /// Scalars of all of it.
    pub(crate) count: usize,
    pub(crate) offset: usize,
    pub(crate) dims: Vec<Dim>,
}

#[derive(Clone, Debug)]
pub(crate) enum Pointer {
    Variable(Variable),
    Memory(Place),
}

/// Of a variable in registers of which one is taken by an index that is not known: above that it lies in memory.
const MOST_CHOICES: usize = 16;

impl Place {
    pub(crate) fn new(space: Space, base: Base) -> Place {
        Place { space, base, offset: 0, vector: None }
    }
}

impl Variable {
    fn choices(&self) -> usize {
        self.dims.iter().map(|dim| dim.count).product()
    }

    /// Scalars that a load of `n` at each place may give: each combination of indices, and where that begins.
    fn places(&self) -> Vec<(Vec<usize>, usize)> {
        let mut all = vec![(Vec::new(), self.slot + self.offset)];
        for dim in &self.dims {
            let each = |(at, first): &(Vec<usize>, usize)| {
                let (at, first) = (at.clone(), *first);
                (0..dim.count)
                    .map(move |i| ([at.as_slice(), &[i]].concat(), first + i * dim.stride))
            };
            all = all.iter().flat_map(each).collect();
        }
        all
    }
}

impl Translator<'_> {
    /// What a pointer to a composite of type `inner` points to at an index.
    pub(crate) fn at(
        &mut self,
        pointer: Pointer,
        inner: &TypeInner,
        index: Scalar,
    ) -> Result<Pointer> {
        if let (TypeInner::Struct { members, .. }, Some(index)) = (inner, index.bits()) {
            let index = index as usize;
            return match pointer {
                Pointer::Memory(place) => {
                    let offset = place.offset + i64::from(members[index].offset);
                    Ok(Pointer::Memory(Place { offset, ..place }))
                }
                Pointer::Variable(variable) => {
                    let before = members[..index].iter();
                    let counts =
                        before.map(|member| self.layout.count(self.layout.inner(member.ty)));
                    let before = counts.sum::<std::result::Result<usize, Error>>()?;
                    let offset = variable.offset + before;
                    Ok(Pointer::Variable(Variable { offset, ..variable }))
                }
            };
        }
        let (element, stride, count) = self.layout.elements(inner)?;
        match pointer {
            Pointer::Memory(place) => {
                let vector = match (inner, index) {
                    (TypeInner::Vector { size, .. }, Scalar::Bits(i)) => Some((*size as u32, i)),
                    _ => None,
                };
                if place.space == Space::Param && index.bits().is_none() {
                    return Err(Error::unsupported("an index into constants").into());
                }
                let place = self.place_at(place, index, stride);
                Ok(Pointer::Memory(Place { vector, ..place }))
            }
            Pointer::Variable(mut variable) => {
                let stride = self.layout.count(&element)?;
                let count = count.unwrap_or(1) as usize;
                match index {
                    Scalar::Bits(i) => {
                        self.is_beyond |= i as usize >= count;
                        variable.offset += (i as usize).min(count - 1) * stride;
                    }
                    index => variable.dims.push(Dim { index, stride, count }),
                }
                if variable.choices() > MOST_CHOICES {
                    return Err(Stop::Demote(variable.owner));
                }
                Ok(Pointer::Variable(variable))
            }
        }
    }

    /// A place so many elements behind another one.
    fn place_at(&mut self, place: Place, index: Scalar, stride: u32) -> Place {
        let is_wide = matches!(place.space, Space::Constant | Space::Global);
        let (index, more) = self.split(index, is_wide);
        let offset = place.offset + more * i64::from(stride);
        if index == Scalar::Bits(0) {
            return Place { offset, ..place };
        }
        let base = match place.base {
            Base::Reg(reg) => reg,
            symbol => self.b.early("mov.b32", Class::B32, Kind::Symbol(symbol)),
        };
        let (op, class) =
            if is_wide { ("mad.wide.u32", Class::B64) } else { ("mad.lo.u32", Class::B32) };
        let src = [index, Scalar::Bits(stride), Scalar::Reg(base)];
        let base = match self.b.op(op, class, &src) {
            Scalar::Reg(reg) => Base::Reg(reg),
            other => Base::Reg(self.b.in_reg(other, class)),
        };
        Place { base, offset, ..place }
    }

    /// An index as one that is not known and one that is, which is added to it. A difference may be below zero in between,
    /// so where addresses are wider than indices it is left as it is.
    fn split(&self, index: Scalar, is_wide: bool) -> (Scalar, i64) {
        if let Some(bits) = index.bits() {
            return (Scalar::Bits(0), i64::from(bits));
        }
        let Some(("add.u32", [rest, Scalar::Bits(more)])) = self.b.def(index) else {
            return (index, 0);
        };
        if is_wide && self.has_difference(*rest) {
            return (index, 0);
        }
        (*rest, i64::from(more.cast_signed()))
    }

    /// Whether a sum is one of differences.
    fn has_difference(&self, sum: Scalar) -> bool {
        match self.b.def(sum) {
            Some(("sub.u32", _)) => true,
            Some(("add.u32" | "mul.lo.u32" | "shl.b32", [a, b])) => {
                self.has_difference(*a) || self.has_difference(*b)
            }
            _ => false,
        }
    }

    /// What lies where a pointer points to.
    pub(crate) fn load(&mut self, pointer: &Pointer, inner: &TypeInner) -> Result<Rc<[Scalar]>> {
        match pointer {
            Pointer::Memory(place) => {
                let leaves = self.layout.leaves(inner)?;
                let align = self.layout.align(inner)?;
                Ok(self.load_leaves(*place, &leaves, align).into())
            }
            Pointer::Variable(variable) => {
                let tys = self.layout.tys(inner)?;
                let places = variable.places();
                let all = (0..tys.len()).map(|i| {
                    let of = places.iter().map(|(_, at)| self.b.env[at + i]).collect();
                    self.choose(&variable.dims, of, tys[i])
                });
                Ok(all.collect())
            }
        }
    }

    /// One of some scalars by indices, of which the last changes fastest.
    pub(crate) fn choose(&mut self, dims: &[Dim], of: Vec<Scalar>, ty: Ty) -> Scalar {
        let mut of = of;
        for dim in dims.iter().rev() {
            let chunks: Vec<Vec<_>> = of.chunks(dim.count).map(<[Scalar]>::to_vec).collect();
            of = chunks.into_iter().map(|chunk| self.choose_one(dim.index, &chunk, ty)).collect();
        }
        of[0]
    }

    /// One of some scalars by an index.
    pub(crate) fn choose_one(&mut self, index: Scalar, of: &[Scalar], ty: Ty) -> Scalar {
        if let Scalar::Bits(i) = index {
            return of[(i as usize).min(of.len() - 1)];
        }
        let mut found = of[0];
        for (i, s) in of.iter().enumerate().skip(1) {
            let is = self.b.op("setp.eq.u32", Class::Pred, &[index, Scalar::Bits(i as u32)]);
            found = self.pick(is, *s, found, ty);
        }
        found
    }

    /// Puts a value where a pointer points to.
    pub(crate) fn store(
        &mut self,
        pointer: &Pointer,
        inner: &TypeInner,
        value: &[Scalar],
    ) -> Result<()> {
        match pointer {
            Pointer::Memory(place) => {
                let leaves = self.layout.leaves(inner)?;
                let align = self.layout.align(inner)?;
                self.store_leaves(*place, &leaves, align, value)?;
            }
            Pointer::Variable(variable) => {
                let tys = self.layout.tys(inner)?;
                for (at, first) in variable.places() {
                    let is =
                        at.iter().zip(&variable.dims).fold(Scalar::Bool(true), |is, (i, dim)| {
                            let index = [dim.index, Scalar::Bits(*i as u32)];
                            let it = self.b.op("setp.eq.u32", Class::Pred, &index);
                            self.b.op("and.pred", Class::Pred, &[is, it])
                        });
                    for (i, ty) in tys.iter().enumerate() {
                        let was = self.b.env[first + i];
                        self.b.env[first + i] = self.pick(is, value[i], was, *ty);
                    }
                }
            }
        }
        Ok(())
    }

    fn load_leaves(&mut self, place: Place, leaves: &[Leaf], align: u32) -> Vec<Scalar> {
        if let (Space::Constant | Space::Param, [leaf]) = (place.space, leaves) {
            return vec![self.load_constant(place, *leaf)];
        }
        let mut all = Vec::new();
        let mut rest = leaves;
        while !rest.is_empty() {
            let n = at_once(rest, align);
            let class = rest[0].ty.class();
            let offset = place.offset + i64::from(rest[0].offset);
            let address = Address { base: place.base, offset };
            let op = load_op(place.space, class, n);
            let classes = [class; 4];
            all.extend(match place.space {
                Space::Constant | Space::Param => self.b.constant_load(op, &classes[..n], address),
                _ => self.b.load(op, &classes[..n], address),
            });
            rest = &rest[n..];
        }
        all
    }

    /// A number of a buffer that nobody writes, read with those beside it.
    fn load_constant(&mut self, place: Place, leaf: Leaf) -> Scalar {
        let class = leaf.ty.class();
        let (n, i) = match (place.space, place.vector, class) {
            (Space::Constant, Some((n @ (2 | 4), i)), Class::B32) => (i64::from(n), i64::from(i)),
            _ => (1, 0),
        };
        let address = Address { base: place.base, offset: place.offset - 4 * i };
        let op = load_op(place.space, class, n as usize);
        self.b.constant_load(op, &[class; 4][..n as usize], address)[i as usize]
    }

    fn store_leaves(
        &mut self,
        place: Place,
        leaves: &[Leaf],
        align: u32,
        value: &[Scalar],
    ) -> Result<()> {
        let mut done = 0;
        while done < leaves.len() {
            let rest = &leaves[done..];
            let n = at_once(rest, align);
            let class = rest[0].ty.class();
            let offset = place.offset + i64::from(rest[0].offset);
            let op = store_op(place.space, class, n)?;
            let src = value[done..done + n].iter();
            let src = src.map(|s| Scalar::Reg(self.b.in_reg(*s, class))).collect();
            let address = Address { base: place.base, offset };
            self.b.push(Inst::of(op, Vec::new(), src, Kind::Store(address)));
            done += n;
        }
        Ok(())
    }

    /// The pointer that an expression is.
    pub(crate) fn pointer(&mut self, value: Value) -> Result<Pointer> {
        match value {
            Value::Pointer(pointer) => Ok(pointer),
            Value::Scalars(_) => Err(Error::new("a value stands for a pointer").into()),
        }
    }
}

/// Scalars that are read or written at once.
fn at_once(leaves: &[Leaf], align: u32) -> usize {
    let first = leaves[0];
    let bytes = if first.ty.class() == Class::B16 { 2 } else { 4 };
    let fits = |n: u32| {
        let all = n * bytes;
        let are_neighbours = leaves.len() >= n as usize
            && (0..n).all(|i| {
                let leaf = leaves[i as usize];
                leaf.offset == first.offset + i * bytes && leaf.ty.class() == first.ty.class()
            });
        are_neighbours && align >= all && first.offset.is_multiple_of(all)
    };
    [4, 2].into_iter().find(|n| fits(*n)).unwrap_or(1) as usize
}

fn load_op(space: Space, class: Class, n: usize) -> &'static str {
    match (space, class, n) {
        (Space::Param, Class::B16, 4) => "ld.param.v4.b16",
        (Space::Param, Class::B16, 2) => "ld.param.v2.b16",
        (Space::Param, Class::B16, _) => "ld.param.b16",
        (Space::Param, _, 4) => "ld.param.v4.b32",
        (Space::Param, _, 2) => "ld.param.v2.b32",
        (Space::Param, ..) => "ld.param.b32",
        (Space::Constant, Class::B16, 4) => "ld.global.nc.v4.b16",
        (Space::Constant, Class::B16, 2) => "ld.global.nc.v2.b16",
        (Space::Constant, Class::B16, _) => "ld.global.nc.b16",
        (Space::Constant, _, 4) => "ld.global.nc.v4.b32",
        (Space::Constant, _, 2) => "ld.global.nc.v2.b32",
        (Space::Constant, ..) => "ld.global.nc.b32",
        (Space::Global, Class::B16, 4) => "ld.global.v4.b16",
        (Space::Global, Class::B16, 2) => "ld.global.v2.b16",
        (Space::Global, Class::B16, _) => "ld.global.b16",
        (Space::Global, _, 4) => "ld.global.v4.b32",
        (Space::Global, _, 2) => "ld.global.v2.b32",
        (Space::Global, ..) => "ld.global.b32",
        (Space::Shared, Class::B16, 4) => "ld.shared.v4.b16",
        (Space::Shared, Class::B16, 2) => "ld.shared.v2.b16",
        (Space::Shared, Class::B16, _) => "ld.shared.b16",
        (Space::Shared, _, 4) => "ld.shared.v4.b32",
        (Space::Shared, _, 2) => "ld.shared.v2.b32",
        (Space::Shared, ..) => "ld.shared.b32",
        (Space::Local, Class::B16, 4) => "ld.local.v4.b16",
        (Space::Local, Class::B16, 2) => "ld.local.v2.b16",
        (Space::Local, Class::B16, _) => "ld.local.b16",
        (Space::Local, _, 4) => "ld.local.v4.b32",
        (Space::Local, _, 2) => "ld.local.v2.b32",
        (Space::Local, ..) => "ld.local.b32",
    }
}

fn store_op(space: Space, class: Class, n: usize) -> std::result::Result<&'static str, Error> {
    Ok(match (space, class, n) {
        (Space::Constant | Space::Param, ..) => {
            return Err(Error::new("a buffer that is read is written"));
        }
        (Space::Global, Class::B16, 4) => "st.global.v4.b16",
        (Space::Global, Class::B16, 2) => "st.global.v2.b16",
        (Space::Global, Class::B16, _) => "st.global.b16",
        (Space::Global, _, 4) => "st.global.v4.b32",
        (Space::Global, _, 2) => "st.global.v2.b32",
        (Space::Global, ..) => "st.global.b32",
        (Space::Shared, Class::B16, 4) => "st.shared.v4.b16",
        (Space::Shared, Class::B16, 2) => "st.shared.v2.b16",
        (Space::Shared, Class::B16, _) => "st.shared.b16",
        (Space::Shared, _, 4) => "st.shared.v4.b32",
        (Space::Shared, _, 2) => "st.shared.v2.b32",
        (Space::Shared, ..) => "st.shared.b32",
        (Space::Local, Class::B16, 4) => "st.local.v4.b16",
        (Space::Local, Class::B16, 2) => "st.local.v2.b16",
        (Space::Local, Class::B16, _) => "st.local.b16",
        (Space::Local, _, 4) => "st.local.v4.b32",
        (Space::Local, _, 2) => "st.local.v2.b32",
        (Space::Local, ..) => "st.local.b32",
    })
}
