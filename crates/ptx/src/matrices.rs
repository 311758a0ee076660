//! Matrices that the lanes of a subgroup have together: of 16 x 16 numbers, f16 that are multiplied and f32 that are summed.
//! All are in shared memory.

use std::rc::Rc;

use naga::{CooperativeData, CooperativeRole as Role, Expression, Handle, TypeInner};

use crate::Error;
use crate::code::{Address, Class, Inst, Kind, Scalar};
use crate::layout::PARTS;
use crate::memory::{Pointer, Space};
use crate::translator::{Result, Translator};

impl Translator<'_> {
    /// Where a matrix is, and from one row or column to the next one.
    fn matrix(&mut self, data: CooperativeData) -> Result<(Address, Scalar)> {
        let stride = self.scalar(data.stride)?;
        let pointer = self.value(data.pointer)?;
        match self.pointer(pointer)? {
            Pointer::Memory(place) if place.space == Space::Shared => {
                Ok((Address { base: place.base, offset: place.offset }, stride))
            }
            _ => Err(Error::unsupported("cooperative matrices outside workgroup memory").into()),
        }
    }

    pub(crate) fn load_matrix(
        &mut self,
        size: [u32; 2],
        role: Role,
        data: CooperativeData,
    ) -> Result<Rc<[Scalar]>> {
        let inner = self.inner(data.pointer);
        let (bytes, number) = match inner {
            TypeInner::Pointer { base, .. } => {
                let scalar = self.layout.inner(*base).scalar();
                (scalar.map_or(0, |scalar| scalar.width), format!("{scalar:?}"))
            }
            TypeInner::ValuePointer { scalar, .. } => (scalar.width, format!("{scalar:?}")),
            other => (0, format!("{other:?}")),
        };
        let wanted = if role == Role::C { 4 } else { 2 };
        if size != [16, 16] || bytes != wanted {
            let [columns, rows] = size;
            let what = format!("a cooperative matrix {role:?} of {columns} x {rows} of {number}");
            return Err(Error::unsupported(what).into());
        }
        let (address, stride) = self.matrix(data)?;
        let op = match (role, data.row_major) {
            (Role::A, true) => "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16",
            (Role::A, false) => "wmma.load.a.sync.aligned.col.m16n16k16.shared.f16",
            (Role::B, true) => "wmma.load.b.sync.aligned.row.m16n16k16.shared.f16",
            (Role::B, false) => "wmma.load.b.sync.aligned.col.m16n16k16.shared.f16",
            (Role::C, true) => "wmma.load.c.sync.aligned.row.m16n16k16.shared.f32",
            (Role::C, false) => "wmma.load.c.sync.aligned.col.m16n16k16.shared.f32",
        };
        let parts = [(); PARTS].map(|()| self.b.new_reg(Class::B32));
        self.by_rows.insert(parts[0], data.row_major);
        self.b.push(Inst::of(op, parts.to_vec(), vec![stride], Kind::LoadMatrix(address)));
        Ok(parts.map(Scalar::Reg).into())
    }

    pub(crate) fn multiply_matrices(
        &mut self,
        a: Handle<Expression>,
        b: Handle<Expression>,
        c: Handle<Expression>,
    ) -> Result<Rc<[Scalar]>> {
        let [a, b, c] = [self.scalars(a)?, self.scalars(b)?, self.scalars(c)?];
        let by_rows = |it: &Self, all: &[Scalar]| {
            let found = all[0].reg().and_then(|reg| it.by_rows.get(&reg)).copied();
            found.ok_or_else(|| Error::unsupported("a cooperative matrix A or B in a variable"))
        };
        let op = match (by_rows(self, &a)?, by_rows(self, &b)?) {
            (true, true) => "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32",
            (true, false) => "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
            (false, true) => "wmma.mma.sync.aligned.col.row.m16n16k16.f32.f32",
            (false, false) => "wmma.mma.sync.aligned.col.col.m16n16k16.f32.f32",
        };
        let all = a.iter().chain(b.iter()).chain(c.iter());
        let src = all.map(|s| Scalar::Reg(self.b.in_reg(*s, Class::B32))).collect();
        let parts = [(); PARTS].map(|()| self.b.new_reg(Class::B32));
        self.b.push(Inst::of(op, parts.to_vec(), src, Kind::Matrices));
        Ok(parts.map(Scalar::Reg).into())
    }

    pub(crate) fn store_matrix(
        &mut self,
        target: Handle<Expression>,
        data: CooperativeData,
    ) -> Result<()> {
        let inner = self.inner(target);
        let TypeInner::CooperativeMatrix { role: Role::C, .. } = inner else {
            return Err(Error::unsupported("stores of cooperative matrices A and B").into());
        };
        let parts = self.scalars(target)?;
        let (address, stride) = self.matrix(data)?;
        let op = match data.row_major {
            true => "wmma.store.d.sync.aligned.row.m16n16k16.shared.f32",
            false => "wmma.store.d.sync.aligned.col.m16n16k16.shared.f32",
        };
        let src = parts.iter().map(|s| Scalar::Reg(self.b.in_reg(*s, Class::B32)));
        let src = src.chain([stride]).collect();
        self.b.push(Inst::of(op, Vec::new(), src, Kind::StoreMatrix(address)));
        Ok(())
    }
}
