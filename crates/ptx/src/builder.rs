//! Puts instructions one after another: knows what was computed before, and joins what comes together after branches.

use std::collections::HashMap;

use crate::code::{Address, Base, Class, Inst, Kind, Label, Line, Reg, Scalar};
use crate::fold;
use crate::layout::Ty;

/// What was computed: an instruction without its results.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    op: &'static str,
    src: Vec<Scalar>,
    address: Option<Address>,
    name: Option<&'static str>,
}

/// A way into a place where ways come together: what variables are there, and what it brings.
#[derive(Clone, Debug)]
pub(crate) struct Edge {
    at: usize,
    env: Vec<Scalar>,
    pub(crate) values: Vec<Scalar>,
}

impl Edge {
    /// Forgets all but the first variables.
    pub(crate) fn keep(&mut self, n: usize) {
        self.env.truncate(n);
    }
}

/// What happens on such a way once it is known.
#[derive(Clone, Debug, Default)]
struct Way {
    moves: Vec<(Reg, Scalar)>,
    to: Option<Label>,
}

enum Item {
    Line(Line),
    Way(usize),
}

/// Where a builder was.
pub(crate) struct Checkpoint {
    items: usize,
    prologue: usize,
    ways: usize,
    env: Vec<Scalar>,
    tys: usize,
    mark: usize,
    reachable: bool,
}

/// Writes code.
pub(crate) struct Builder {
    items: Vec<Item>,
    /// Instructions that come before all others.
    prologue: Vec<Inst>,
    ways: Vec<Way>,
    regs: u32,
    labels: u32,
    known: HashMap<Key, Vec<Scalar>>,
    /// What `known` had before, so that it can be undone.
    log: Vec<(Key, Option<Vec<Scalar>>)>,
    /// What the prologue has computed.
    early: HashMap<Key, (usize, Vec<Scalar>)>,
    /// How registers that are written once are computed.
    defs: HashMap<Reg, (&'static str, Vec<Scalar>)>,
    /// What scalars of variables are, and their types.
    pub(crate) env: Vec<Scalar>,
    pub(crate) tys: Vec<Ty>,
    /// Whether control gets here.
    pub(crate) reachable: bool,
}

impl Builder {
    pub(crate) fn new() -> Builder {
        Builder {
            items: Vec::new(),
            prologue: Vec::new(),
            ways: Vec::new(),
            regs: 0,
            labels: 0,
            known: HashMap::new(),
            log: Vec::new(),
            early: HashMap::new(),
            defs: HashMap::new(),
            env: Vec::new(),
            tys: Vec::new(),
            reachable: true,
        }
    }

    pub(crate) fn new_reg(&mut self, class: Class) -> Reg {
        self.regs += 1;
        Reg { class, id: self.regs - 1 }
    }

    pub(crate) fn new_label(&mut self) -> Label {
        self.labels += 1;
        Label(self.labels - 1)
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Branches among the lines since then.
    pub(crate) fn branches_since(&self, begin: usize) -> usize {
        let is_branch = |item: &&Item| match item {
            Item::Line(Line::Inst(inst)) => matches!(inst.kind, Kind::Branch(_)),
            Item::Line(Line::Label(_)) | Item::Way(_) => false,
        };
        self.items[begin..].iter().filter(is_branch).count()
    }

    pub(crate) fn push(&mut self, inst: Inst) {
        if self.reachable {
            self.items.push(Item::Line(Line::Inst(inst)));
        }
    }

    pub(crate) fn label(&mut self, label: Label) {
        self.items.push(Item::Line(Line::Label(label)));
        self.reachable = true;
    }

    /// Whether the last line is such an instruction.
    pub(crate) fn ends_with(&self, op: &str) -> bool {
        matches!(self.items.last(), Some(Item::Line(Line::Inst(inst))) if inst.op == op)
    }

    /// A result without effects: computed once where one computation is sure to come before the other.
    pub(crate) fn op(&mut self, op: &'static str, class: Class, src: &[Scalar]) -> Scalar {
        self.op_of(op, class, src, Kind::Plain)
    }

    pub(crate) fn op_of(
        &mut self,
        op: &'static str,
        class: Class,
        src: &[Scalar],
        kind: Kind,
    ) -> Scalar {
        let mut src = src.to_vec();
        if let [a, b] = src[..]
            && fold::is_commutative(op)
        {
            // of integers, so that the same is known as such; sums of floats stay as they are written
            let is_turned = |a: Reg, b: Reg| fold::is_of_integers(op) && a.id > b.id;
            if a.reg().is_none_or(|a| b.reg().is_some_and(|b| is_turned(a, b))) {
                src.swap(0, 1);
            }
        }
        if matches!(kind, Kind::Plain | Kind::Dot)
            && let Some(known) = fold::fold(op, &src)
        {
            return known;
        }
        if op.ends_with(".f16") || op == "selp.b16" {
            src = src.into_iter().map(|s| self.half(s)).collect();
        }
        if class == Class::Pred || op.starts_with("selp") {
            src = src.into_iter().map(|s| self.truth(s)).collect();
        }
        let key = Key { op, src: src.clone(), address: None, name: None };
        if let Some(all) = self.known.get(&key) {
            return all[0];
        }
        let dst = self.new_reg(class);
        self.defs.insert(dst, (op, src.clone()));
        self.push(Inst::of(op, vec![dst], src, kind));
        self.learn(key, vec![Scalar::Reg(dst)]);
        Scalar::Reg(dst)
    }

    /// The low and the high half of a word.
    pub(crate) fn unpack(&mut self, word: Scalar) -> [Scalar; 2] {
        let key = Key { op: "unpack", src: vec![word], address: None, name: None };
        if let Some(all) = self.known.get(&key) {
            return [all[0], all[1]];
        }
        let dst = [Class::B16; 2].map(|class| self.new_reg(class));
        self.push(Inst::of("mov.b32", dst.to_vec(), vec![word], Kind::Unpack));
        let all = dst.map(Scalar::Reg);
        self.learn(key, all.to_vec());
        all
    }

    /// A known number of 16 bits gets a register: instructions take none.
    fn half(&mut self, s: Scalar) -> Scalar {
        match s {
            Scalar::Bits(_) => Scalar::Reg(self.in_reg(s, Class::B16)),
            other => other,
        }
    }

    /// A known truth value gets a register: instructions take none.
    fn truth(&mut self, s: Scalar) -> Scalar {
        match s {
            Scalar::Bool(_) => Scalar::Reg(self.in_reg(s, Class::Pred)),
            other => other,
        }
    }

    /// A scalar in a register.
    pub(crate) fn in_reg(&mut self, s: Scalar, class: Class) -> Reg {
        if let Scalar::Reg(reg) = s {
            return reg;
        }
        let op = Inst::mov(Reg { class, id: 0 }, s).op;
        let key = Key { op, src: vec![s], address: None, name: None };
        if let Some(Scalar::Reg(reg)) = self.known.get(&key).map(|all| all[0]) {
            return reg;
        }
        let dst = self.new_reg(class);
        self.push(Inst::mov(dst, s));
        self.learn(key, vec![Scalar::Reg(dst)]);
        dst
    }

    fn learn(&mut self, key: Key, values: Vec<Scalar>) {
        if self.reachable {
            let before = self.known.insert(key.clone(), values);
            self.log.push((key, before));
        }
    }

    /// How far what is known goes.
    pub(crate) fn mark(&self) -> usize {
        self.log.len()
    }

    /// Forgets what was learnt since.
    pub(crate) fn forget(&mut self, mark: usize) {
        while self.log.len() > mark {
            match self.log.pop() {
                Some((key, Some(before))) => self.known.insert(key, before),
                Some((key, None)) => self.known.remove(&key),
                None => None,
            };
        }
    }

    /// How a register is computed.
    pub(crate) fn def(&self, s: Scalar) -> Option<(&'static str, &[Scalar])> {
        let (op, src) = self.defs.get(&s.reg()?)?;
        Some((op, src))
    }

    /// A result that the prologue has.
    pub(crate) fn early(&mut self, op: &'static str, class: Class, kind: Kind) -> Reg {
        let mut key = Key { op, src: Vec::new(), address: None, name: None };
        match &kind {
            Kind::Name(name) => key.name = Some(name),
            Kind::Symbol(base) => key.address = Some(Address { base: *base, offset: 0 }),
            Kind::Load(address) => key.address = Some(*address),
            _ => {}
        }
        let all = self.early_of(key, &[class], kind);
        all[0].reg().expect("it is in a register")
    }

    fn early_of(&mut self, key: Key, classes: &[Class], kind: Kind) -> Vec<Scalar> {
        if let Some((_, all)) = self.early.get(&key) {
            return all.clone();
        }
        let dst: Vec<_> = classes.iter().map(|class| self.new_reg(*class)).collect();
        let all: Vec<_> = dst.iter().map(|reg| Scalar::Reg(*reg)).collect();
        self.prologue.push(Inst::of(key.op, dst, Vec::new(), kind));
        self.early.insert(key, (self.prologue.len(), all.clone()));
        all
    }

    /// The address of a binding.
    pub(crate) fn binding(&mut self, number: u32) -> Reg {
        let address = Address { base: Base::Param(number), offset: 0 };
        let key =
            Key { op: "cvta.to.global.u64", src: Vec::new(), address: Some(address), name: None };
        if let Some((_, all)) = self.early.get(&key) {
            return all[0].reg().expect("it is in a register");
        }
        let param = self.early("ld.param.u64", Class::B64, Kind::Load(address));
        let dst = self.new_reg(Class::B64);
        self.prologue.push(Inst::plain(key.op, dst, &[Scalar::Reg(param)]));
        self.early.insert(key, (self.prologue.len(), vec![Scalar::Reg(dst)]));
        dst
    }

    /// What memory has that nobody writes.
    pub(crate) fn constant_load(
        &mut self,
        op: &'static str,
        classes: &[Class],
        address: Address,
    ) -> Vec<Scalar> {
        let key = Key { op, src: Vec::new(), address: Some(address), name: None };
        if let Some((_, all)) = self.early.get(&key) {
            return all.clone();
        }
        if let Some(all) = self.known.get(&key) {
            return all.clone();
        }
        let all = self.load(op, classes, address);
        self.learn(key, all.clone());
        all
    }

    pub(crate) fn load(
        &mut self,
        op: &'static str,
        classes: &[Class],
        address: Address,
    ) -> Vec<Scalar> {
        let dst: Vec<_> = classes.iter().map(|class| self.new_reg(*class)).collect();
        let all = dst.iter().map(|reg| Scalar::Reg(*reg)).collect();
        self.push(Inst::of(op, dst, Vec::new(), Kind::Load(address)));
        all
    }

    pub(crate) fn checkpoint(&self) -> Checkpoint {
        Checkpoint {
            items: self.items.len(),
            prologue: self.prologue.len(),
            ways: self.ways.len(),
            env: self.env.clone(),
            tys: self.tys.len(),
            mark: self.mark(),
            reachable: self.reachable,
        }
    }

    /// As if nothing had been done since.
    pub(crate) fn roll_back(&mut self, to: &Checkpoint) {
        self.items.truncate(to.items);
        self.prologue.truncate(to.prologue);
        self.early.retain(|_, (at, _)| *at <= to.prologue);
        self.ways.truncate(to.ways);
        self.env.clone_from(&to.env);
        self.tys.truncate(to.tys);
        self.forget(to.mark);
        self.reachable = to.reachable;
    }

    /// Leaves this place for one where ways come together.
    pub(crate) fn leave(&mut self, values: Vec<Scalar>) -> Edge {
        let at = self.ways.len();
        self.ways.push(Way::default());
        self.items.push(Item::Way(at));
        self.reachable = false;
        Edge { at, env: self.env.clone(), values }
    }

    /// Ways come together here: what variables are is what they are on all of them. What was learnt since `mark` is only
    /// known if there is but one. Gives what the ways bring.
    pub(crate) fn join(&mut self, edges: &[Edge], tys: &[Ty], mark: usize) -> Vec<Scalar> {
        let Some(first) = edges.first().cloned() else {
            self.reachable = false;
            self.forget(mark);
            return tys.iter().map(|ty| zero(*ty)).collect();
        };
        let is_last = matches!(self.items.last(), Some(Item::Way(at)) if *at == first.at);
        if edges.len() == 1 && is_last {
            self.env = first.env;
            self.reachable = true;
            return first.values;
        }
        self.forget(mark);
        let label = self.new_label();
        let len = edges.iter().map(|edge| edge.env.len()).min().unwrap_or(0);
        let mut env = Vec::with_capacity(len);
        for i in 0..len {
            let of: Vec<_> = edges.iter().map(|edge| edge.env[i]).collect();
            let joined = self.phi(edges, &of, self.tys[i].class());
            env.push(joined);
        }
        let values = (0..tys.len())
            .map(|i| {
                let of: Vec<_> = edges.iter().map(|edge| edge.values[i]).collect();
                self.phi(edges, &of, tys[i].class())
            })
            .collect();
        for edge in edges {
            self.ways[edge.at].to = Some(label);
        }
        self.label(label);
        self.env = env;
        values
    }

    fn phi(&mut self, edges: &[Edge], of: &[Scalar], class: Class) -> Scalar {
        if of.iter().all(|s| *s == of[0]) {
            return of[0];
        }
        let reg = self.new_reg(class);
        for (edge, s) in edges.iter().zip(of) {
            self.ways[edge.at].moves.push((reg, *s));
        }
        Scalar::Reg(reg)
    }

    /// Begins a loop: scalars of variables that it writes get registers.
    pub(crate) fn begin_loop(&mut self, written: &[usize]) -> (Label, Vec<(usize, Reg)>) {
        let edge = self.leave(Vec::new());
        let mut phis = Vec::new();
        for &i in written {
            let reg = self.new_reg(self.tys[i].class());
            self.ways[edge.at].moves.push((reg, self.env[i]));
            self.env[i] = Scalar::Reg(reg);
            phis.push((i, reg));
        }
        let label = self.new_label();
        self.label(label);
        (label, phis)
    }

    /// Goes back to where it began.
    pub(crate) fn repeat(&mut self, label: Label, phis: &[(usize, Reg)]) {
        if !self.reachable {
            return;
        }
        let edge = self.leave(Vec::new());
        let way = &mut self.ways[edge.at];
        way.moves.extend(phis.iter().map(|(i, reg)| (*reg, edge.env[*i])));
        way.to = Some(label);
    }

    /// All lines in order.
    pub(crate) fn finish(mut self) -> (Vec<Line>, u32) {
        let mut lines: Vec<_> =
            std::mem::take(&mut self.prologue).into_iter().map(Line::Inst).collect();
        for item in std::mem::take(&mut self.items) {
            match item {
                Item::Line(line) => lines.push(line),
                Item::Way(at) => {
                    let way = std::mem::take(&mut self.ways[at]);
                    for (reg, s) in self.in_order(way.moves) {
                        lines.push(Line::Inst(Inst::mov(reg, s)));
                    }
                    lines.extend(way.to.map(|label| Line::Inst(Inst::bra(label))));
                }
            }
        }
        (lines, self.regs)
    }

    /// Moves that happen at once, one after another.
    fn in_order(&mut self, moves: Vec<(Reg, Scalar)>) -> Vec<(Reg, Scalar)> {
        let mut rest: Vec<_> =
            moves.into_iter().filter(|(reg, s)| *s != Scalar::Reg(*reg)).collect();
        let mut done = Vec::with_capacity(rest.len());
        while !rest.is_empty() {
            let is_read = |reg: Reg| rest.iter().any(|(_, s)| *s == Scalar::Reg(reg));
            if let Some(i) = rest.iter().position(|(reg, _)| !is_read(*reg)) {
                done.push(rest.swap_remove(i));
                continue;
            }
            // they go round: what one of them overwrites is kept
            let was = rest[0].0;
            let kept = self.new_reg(was.class);
            done.push((kept, Scalar::Reg(was)));
            for (_, s) in rest.iter_mut().filter(|(_, s)| *s == Scalar::Reg(was)) {
                *s = Scalar::Reg(kept);
            }
        }
        done
    }
}

/// Zero, or false.
pub(crate) fn zero(ty: Ty) -> Scalar {
    match ty {
        Ty::Bool => Scalar::Bool(false),
        _ => Scalar::Bits(0),
    }
}
