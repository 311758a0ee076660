//! What a translation knows, and its entry.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use naga::valid::{FunctionInfo, ModuleInfo};
use naga::{
    AddressSpace, Binding, BuiltIn, Expression, Function, GlobalVariable, Handle, LocalVariable,
    Module, StorageAccess, TypeInner,
};

use crate::builder::{Builder, Edge, zero};
use crate::code::{Base, Body, Class, Inst, Kind, Memory, Reg, Scalar, write};
use crate::layout::Layout;
use crate::memory::{Place, Space, Variable};
use crate::{Error, PtxKernel, passes};

/// A value of an expression.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// All its scalars.
    Scalars(Rc<[Scalar]>),
    /// Where it is.
    Pointer(crate::memory::Pointer),
}

/// A local variable, by its function: none for the entry point.
pub(crate) type Owner = (Option<Handle<Function>>, Handle<LocalVariable>);

/// Why a translation stops.
#[derive(Debug)]
pub(crate) enum Stop {
    Error(Error),
    /// A variable that lies in memory after all: it is done again.
    Demote(Owner),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Error(error)
    }
}

pub(crate) type Result<T> = std::result::Result<T, Stop>;

/// What encloses a statement that may be left or repeated.
pub(crate) struct Scope {
    pub(crate) is_loop: bool,
    pub(crate) breaks: Vec<Edge>,
    pub(crate) continues: Vec<Edge>,
}

/// A function that is being written down where it is called.
pub(crate) struct Frame<'a> {
    pub(crate) function: &'a Function,
    pub(crate) info: &'a FunctionInfo,
    pub(crate) arguments: Vec<Value>,
    pub(crate) values: HashMap<Handle<Expression>, Value>,
    pub(crate) variables: Vec<Value>,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) returns: Vec<Edge>,
}

/// A translation.
pub(crate) struct Translator<'a> {
    pub(crate) module: &'a Module,
    pub(crate) info: &'a ModuleInfo,
    pub(crate) layout: Layout<'a>,
    pub(crate) b: Builder,
    pub(crate) frames: Vec<Frame<'a>>,
    /// Variables that lie in memory.
    demoted: &'a HashSet<Owner>,
    pub(crate) shared: Vec<Memory>,
    shared_of: HashMap<Handle<GlobalVariable>, u32>,
    local: Vec<Memory>,
    local_of: HashMap<Owner, u32>,
    /// Whether the parts of matrices came from rows.
    pub(crate) by_rows: HashMap<Reg, bool>,
    /// Loops that code being written is in.
    pub(crate) depth: usize,
    /// A known index was behind the end of a variable.
    pub(crate) is_beyond: bool,
    workgroup: [u32; 3],
    /// The binding that is given by value, if one is, and its bytes.
    uniform: Option<(u32, u32)>,
}

/// Translates the only entry point of a valid module.
pub(crate) fn translate(
    module: &Module,
    info: &ModuleInfo,
) -> std::result::Result<PtxKernel, Error> {
    let mut demoted = HashSet::new();
    loop {
        match Translator::new(module, info, &demoted).run() {
            Ok(kernel) => return Ok(kernel),
            Err(Stop::Error(error)) => return Err(error),
            Err(Stop::Demote(owner)) => {
                if !demoted.insert(owner) {
                    return Err(Error::new("a variable is neither in registers nor in memory"));
                }
            }
        }
    }
}

impl<'a> Translator<'a> {
    fn new(
        module: &'a Module,
        info: &'a ModuleInfo,
        demoted: &'a HashSet<Owner>,
    ) -> Translator<'a> {
        Translator {
            module,
            info,
            layout: Layout { types: &module.types },
            b: Builder::new(),
            frames: Vec::new(),
            demoted,
            shared: Vec::new(),
            shared_of: HashMap::new(),
            local: Vec::new(),
            local_of: HashMap::new(),
            by_rows: HashMap::new(),
            depth: 0,
            is_beyond: false,
            workgroup: module.entry_points[0].workgroup_size,
            uniform: None,
        }
    }

    fn run(mut self) -> Result<PtxKernel> {
        let entry = &self.module.entry_points[0];
        if entry.workgroup_size_overrides.is_some_and(|all| all.iter().any(Option::is_some)) {
            return Err(Error::unsupported("override workgroup sizes").into());
        }
        let n_bindings = self.declare()?;
        let arguments = entry.function.arguments.iter().map(|argument| {
            let inner = self.layout.inner(argument.ty);
            self.builtins(inner, argument.binding.as_ref())
        });
        let arguments = arguments.collect::<Vec<_>>();
        let arguments = arguments.into_iter().collect::<Result<Vec<_>>>()?;
        let info = self.info.get_entry_point(0);
        self.call(None, &entry.function, info, arguments)?;
        self.b.reachable = true;
        self.b.push(Inst::of("ret", Vec::new(), Vec::new(), Kind::Bare));
        let shared_bytes = self.shared.iter().map(|memory| memory.bytes.next_multiple_of(16)).sum();
        let (lines, regs) = self.b.finish();
        let lines = passes::improved(lines, regs);
        let body = Body { lines, shared: self.shared, local: self.local };
        let text = write(&body, (n_bindings, self.uniform), self.workgroup)
            .map_err(|_| Error::new("the text does not fit into memory"))?;
        let constant_bytes = self.uniform.map_or(0, |(_, bytes)| bytes);
        let workgroup_size = self.workgroup;
        Ok(PtxKernel { text, workgroup_size, n_bindings, constant_bytes, shared_bytes })
    }

    /// Goes through the variables of the module: how many bindings there are.
    fn declare(&mut self) -> Result<u32> {
        let mut n_bindings = 0;
        for (handle, global) in self.module.global_variables.iter() {
            if let Some(binding) = global.binding {
                if binding.group != 0 {
                    return Err(Error::unsupported(format!("bind group {}", binding.group)).into());
                }
                n_bindings = n_bindings.max(binding.binding + 1);
            }
            if global.space == AddressSpace::WorkGroup {
                let inner = self.layout.inner(global.ty);
                let name = format!("s_{}", global.name.as_deref().unwrap_or("variable"));
                let align = self.layout.align(inner)?.max(32);
                let memory = Memory { name, bytes: self.layout.bytes(inner)?, align };
                self.shared_of.insert(handle, self.shared.len() as u32);
                self.shared.push(memory);
            }
        }
        Ok(n_bindings)
    }

    /// What the device says of itself and of a thread.
    fn builtins(&mut self, inner: &TypeInner, binding: Option<&Binding>) -> Result<Value> {
        if let TypeInner::Struct { members, .. } = inner {
            let mut all = Vec::new();
            for member in members {
                let inner = self.layout.inner(member.ty);
                match self.builtins(inner, member.binding.as_ref())? {
                    Value::Scalars(scalars) => all.extend_from_slice(&scalars),
                    Value::Pointer(_) => {}
                }
            }
            return Ok(Value::Scalars(all.into()));
        }
        let Some(Binding::BuiltIn(builtin)) = binding else {
            return Err(
                Error::unsupported("arguments of the entry point that are no builtins").into()
            );
        };
        let sizes = self.workgroup.map(Scalar::Bits);
        let all = match builtin {
            BuiltIn::WorkGroupId => {
                ["%ctaid.x", "%ctaid.y", "%ctaid.z"].map(|name| self.special(name)).to_vec()
            }
            BuiltIn::NumWorkGroups => {
                ["%nctaid.x", "%nctaid.y", "%nctaid.z"].map(|name| self.special(name)).to_vec()
            }
            BuiltIn::LocalInvocationId => self.thread().to_vec(),
            BuiltIn::GlobalInvocationId => {
                let groups = ["%ctaid.x", "%ctaid.y", "%ctaid.z"].map(|name| self.special(name));
                let thread = self.thread();
                let at = |i: usize| [groups[i], sizes[i], thread[i]];
                [at(0), at(1), at(2)]
                    .map(|[group, size, thread]| self.mad(group, size, thread))
                    .to_vec()
            }
            BuiltIn::LocalInvocationIndex => vec![self.index()],
            BuiltIn::WorkGroupSize => sizes.to_vec(),
            BuiltIn::SubgroupSize => vec![Scalar::Bits(32)],
            BuiltIn::SubgroupInvocationId => vec![self.special("%laneid")],
            BuiltIn::SubgroupId => {
                let index = self.index();
                vec![self.b.op("shr.u32", Class::B32, &[index, Scalar::Bits(5)])]
            }
            BuiltIn::NumSubgroups => {
                let all: u32 = self.workgroup.iter().product();
                vec![Scalar::Bits(all.div_ceil(32))]
            }
            other => return Err(Error::unsupported(format!("builtin {other:?}")).into()),
        };
        Ok(Value::Scalars(all.into()))
    }

    fn special(&mut self, name: &'static str) -> Scalar {
        Scalar::Reg(self.b.early("mov.u32", Class::B32, Kind::Name(name)))
    }

    fn thread(&mut self) -> [Scalar; 3] {
        let names = ["%tid.x", "%tid.y", "%tid.z"];
        [0, 1, 2].map(|i| match self.workgroup[i] {
            1 => Scalar::Bits(0),
            _ => self.special(names[i]),
        })
    }

    /// The number of a thread in its block.
    fn index(&mut self) -> Scalar {
        let [x, y, z] = self.thread();
        let plane = self.mad(z, Scalar::Bits(self.workgroup[1]), y);
        self.mad(plane, Scalar::Bits(self.workgroup[0]), x)
    }

    /// Writes a function down where it is called, and gives what it returns.
    pub(crate) fn call(
        &mut self,
        handle: Option<Handle<Function>>,
        function: &'a Function,
        info: &'a FunctionInfo,
        arguments: Vec<Value>,
    ) -> Result<Value> {
        let base = self.b.env.len();
        let mark = self.b.mark();
        let frame = Frame {
            function,
            info,
            arguments,
            values: HashMap::new(),
            variables: Vec::new(),
            scopes: Vec::new(),
            returns: Vec::new(),
        };
        self.frames.push(frame);
        for (variable, local) in function.local_variables.iter() {
            let place = self.variable((handle, variable), local)?;
            self.frame().variables.push(place);
        }
        let done = self.statements(&function.body);
        let name = function.name.as_deref().unwrap_or("main");
        done.map_err(|stop| match stop {
            // the innermost function says where
            Stop::Error(error) if !error.0.contains(", in ") => Stop::Error(error.within(name)),
            other => other,
        })?;
        let tys = match &function.result {
            Some(result) => self.layout.tys(self.layout.inner(result.ty))?,
            None => Vec::new(),
        };
        if self.b.reachable {
            let values = tys.iter().map(|ty| zero(*ty)).collect();
            let edge = self.b.leave(values);
            self.frame().returns.push(edge);
        }
        let mut frame = self.frames.pop().expect("it was put there");
        frame.returns.iter_mut().for_each(|edge| edge.keep(base));
        let values = self.b.join(&frame.returns, &tys, mark);
        self.b.env.truncate(base);
        self.b.tys.truncate(base);
        Ok(Value::Scalars(values.into()))
    }

    /// Makes a variable of the frame.
    fn variable(&mut self, owner: Owner, local: &'a LocalVariable) -> Result<Value> {
        let inner = self.layout.inner(local.ty);
        let tys = self.layout.tys(inner)?;
        let init: Rc<[Scalar]> = match local.init {
            Some(init) => self.scalars(init)?,
            None => tys.iter().map(|ty| zero(*ty)).collect(),
        };
        if self.demoted.contains(&owner) {
            let number = match self.local_of.get(&owner) {
                Some(number) => *number,
                None => {
                    let number = self.local.len() as u32;
                    let align = self.layout.align(inner)?.max(16);
                    let name =
                        format!("l_{}_{number}", local.name.as_deref().unwrap_or("variable"));
                    self.local.push(Memory { name, bytes: self.layout.bytes(inner)?, align });
                    self.local_of.insert(owner, number);
                    number
                }
            };
            let place = Place::new(Space::Local, Base::Local(number));
            let pointer = crate::memory::Pointer::Memory(place);
            self.store(&pointer, inner, &init)?;
            return Ok(Value::Pointer(pointer));
        }
        let slot = self.b.env.len();
        self.b.env.extend_from_slice(&init);
        self.b.tys.extend_from_slice(&tys);
        let variable = Variable { owner, slot, count: tys.len(), offset: 0, dims: Vec::new() };
        Ok(Value::Pointer(crate::memory::Pointer::Variable(variable)))
    }

    pub(crate) fn frame(&mut self) -> &mut Frame<'a> {
        self.frames.last_mut().expect("a function is being written")
    }

    /// Where a variable of the module is.
    pub(crate) fn global(&mut self, handle: Handle<GlobalVariable>) -> Result<Value> {
        let global = &self.module.global_variables[handle];
        let inner = self.layout.inner(global.ty);
        let number = global.binding.map(|binding| binding.binding);
        let place = match (global.space, number) {
            (AddressSpace::WorkGroup, _) => {
                Place::new(Space::Shared, Base::Shared(self.shared_of[&handle]))
            }
            (AddressSpace::Uniform, Some(number)) => {
                // constants are given by value
                self.uniform = Some((number, self.layout.bytes(inner)?));
                Place::new(Space::Param, Base::Param(number))
            }
            (AddressSpace::Storage { access }, Some(number)) => {
                let base = Base::Reg(self.b.binding(number));
                let is_written = access.contains(StorageAccess::STORE);
                Place::new(if is_written { Space::Global } else { Space::Constant }, base)
            }
            (space, _) => {
                let name = global.name.as_deref().unwrap_or_default();
                return Err(Error::unsupported(format!("{name} in {space:?}")).into());
            }
        };
        Ok(Value::Pointer(crate::memory::Pointer::Memory(place)))
    }
}
