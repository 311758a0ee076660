//! Instructions as they are executed, and the kernels that they make up.

/// Comparison of `setp`. The unordered forms are true where an operand is NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    /// Neither operand is NaN.
    Num,
    /// An operand is NaN.
    Nan,
}

/// Rounding of a conversion from a float to an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounding {
    /// `.rni`: to nearest, ties to even.
    Nearest,
    /// `.rzi`: towards zero.
    Zero,
    /// `.rmi`: down.
    Down,
    /// `.rpi`: up.
    Up,
}

/// Integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Int {
    /// 8, 16, 32 or 64.
    pub(crate) bits: u8,
    pub(crate) signed: bool,
}

/// State space of a memory instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Space {
    Global,
    Shared,
    Local,
}

/// Mode of `shfl.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Bfly,
    Up,
    Down,
    Idx,
}

/// Mode of `vote.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uni,
    Ballot,
}

/// Operation of an instruction. `d` is the destination, `a`, `b`, `c` the sources; `w` are
/// 32-bit registers (16-bit ones too, their upper half zero), `q` 64-bit ones, `p` predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Jump to instruction `d`.
    Bra,
    /// End of the thread.
    Exit,
    /// Barrier `d` of the block.
    Bar,
    /// Barrier of the warp's threads named by `a`.
    WarpBar,
    /// `w[d] = w[a]` of another lane: `b` lane or distance, `c` clamp; member mask and predicate
    /// in the extension.
    Shfl(Shuffle),
    /// Predicate or, for `Ballot`, `w[d]`: `a` predicate, `b` member mask, `c` negation.
    Vote(Vote),
    /// Load by the extension.
    Ld(Space),
    /// Store by the extension.
    St(Space),
    /// `d` = `c` bytes of the parameters from offset `a`.
    LdParam,
    /// Load of a fragment.
    WmmaLoad,
    /// Store of a fragment.
    WmmaStore,
    /// Multiplication of fragments.
    WmmaMma,
    Mov32,
    Mov64,
    /// `w[d] = w[a] | w[b] << 16`.
    Pack16,
    /// `w[d] = w[a] & 0xffff`.
    Low16,
    /// `w[d] = w[a] >> 16`.
    High16,
    /// `q[d] = w[a] | w[b] << 32`.
    Pack32,
    /// `w[d] = q[a]`.
    Low32,
    /// `w[d] = q[a] >> 32`.
    High32,
    /// `w[d] = w[a]` cut to 8 bits.
    Cut8(bool),
    /// `w[d] = w[a]` cut to 16 bits, with sign where true.
    Cut16(bool),
    Add32,
    Sub32,
    Mul32,
    Mad32,
    MulHi(bool),
    MadHi(bool),
    MulWide(bool),
    MadWide(bool),
    DivU,
    DivS,
    RemU,
    RemS,
    MinU,
    MinS,
    MaxU,
    MaxS,
    AbsS,
    Neg32,
    And32,
    Or32,
    Xor32,
    Not32,
    Shl32,
    ShrU,
    ShrS,
    Bfe(bool),
    Bfi,
    Prmt,
    Popc,
    Clz,
    Brev,
    /// `true`: signed.
    Bfind(bool),
    /// `.shiftamt` of the same.
    BfindShift(bool),
    /// Table in `imm`.
    Lop3,
    /// Funnel shifts, counts wrapped or clamped.
    ShfL(bool),
    ShfR(bool),
    /// Sum of four products of bytes: signs of `a` and `b`.
    Dp4a(bool, bool),
    Selp32,
    Selp64,
    Add64,
    Sub64,
    Mul64,
    Mad64,
    Neg64,
    And64,
    Or64,
    Xor64,
    Not64,
    Shl64,
    Shr64(bool),
    Min64(bool),
    Max64(bool),
    Div64(bool),
    Rem64(bool),
    AddF,
    SubF,
    MulF,
    FmaF,
    DivF,
    RcpF,
    SqrtF,
    RsqrtF,
    Ex2F,
    Lg2F,
    SinF,
    CosF,
    TanhF,
    MinF,
    MaxF,
    AbsF,
    NegF,
    CopysignF,
    /// `.sat`: to 0..1, NaN to 0.
    SatF,
    /// `w[d]` = `w[a]` rounded to an integer.
    RoundF(Rounding),
    AddH,
    SubH,
    MulH,
    FmaH,
    NegH,
    AbsH,
    MinH,
    MaxH,
    /// f16 pairs.
    AddH2,
    SubH2,
    MulH2,
    FmaH2,
    SetpU(Cmp),
    SetpS(Cmp),
    SetpF(Cmp),
    SetpH(Cmp),
    Setp64(Cmp, bool),
    MovP,
    AndP,
    OrP,
    XorP,
    NotP,
    /// f32 to f16, to nearest even.
    F32ToF16,
    F16ToF32,
    /// Integer in `w` to f32.
    IntToF32(bool),
    /// Integer in `w` to f16.
    IntToF16(bool),
    /// 64-bit integer to f32.
    Int64ToF32(bool),
    /// f32 to an integer in `w`, saturated.
    F32ToInt(Int, Rounding),
    /// f32 to a 64-bit integer.
    F32ToInt64(bool, Rounding),
    /// `q[d] = w[a]`, with sign where true.
    Widen(bool),
    /// `cvt.sat` between 32-bit integers: from signed, to this type.
    SatInt(bool, Int),
    /// Lanes that execute this instruction.
    ActiveMask,
}

/// Guard of an instruction that always executes.
pub(crate) const NO_GUARD: u32 = u32::MAX;

/// One instruction. What `d`, `a`, `b` and `c` index is told by the operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instr {
    pub(crate) op: Op,
    /// `NO_GUARD`, or predicate register * 2 + 1 where negated.
    pub(crate) guard: u32,
    pub(crate) d: u32,
    pub(crate) a: u32,
    pub(crate) b: u32,
    pub(crate) c: u32,
    /// Index into `Kernel::exts`, or an immediate.
    pub(crate) ext: u32,
}

/// Matrix that a fragment is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TileRole {
    A,
    B,
    /// Sums: `c` and `d`.
    C,
}

/// How a fragment of 16 x 16 elements is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    pub(crate) role: TileRole,
    /// Columns are contiguous (`.col`).
    pub(crate) col: bool,
    /// Elements are f16; else f32.
    pub(crate) half: bool,
    pub(crate) space: Space,
}

/// Further operands of memory, matrix and shuffle instructions.
#[derive(Clone, Debug)]
pub(crate) struct MemExt {
    /// Registers loaded or stored: `w`, or `q` where `width` is 8.
    pub(crate) regs: Vec<u32>,
    /// Bytes of one element: 1, 2, 4 or 8.
    pub(crate) width: u32,
    /// Elements are signed: loads of 8 and 16 bits extend the sign.
    pub(crate) signed: bool,
    /// Address register is a 32-bit one.
    pub(crate) narrow: bool,
    /// Added to the address register.
    pub(crate) offset: i64,
    /// Load of what no thread writes: `ld.global.nc`.
    pub(crate) constant: bool,
    /// Fragment of a matrix instruction.
    pub(crate) tile: Option<Tile>,
    /// `a` and `b` fragments of `wmma.mma` are columns first.
    pub(crate) layouts: [bool; 2],
}

impl MemExt {
    /// These registers of `width` bytes, and nothing else.
    pub(super) fn of(regs: Vec<u32>, width: u32) -> MemExt {
        MemExt {
            regs,
            width,
            signed: false,
            narrow: false,
            offset: 0,
            constant: false,
            tile: None,
            layouts: [false; 2],
        }
    }
}

/// Addresses of shared and local variables: each variable has a window of 1 MiB of its own, so
/// that an access beyond it hits no neighbour.
pub(crate) const WINDOW_SHIFT: u32 = 20;

/// Variable in shared or local memory. Window `i` begins at address `(i + 1) << WINDOW_SHIFT`.
#[derive(Clone, Debug)]
pub(crate) struct Window {
    pub(crate) name: String,
    /// Offset in the memory of the block or thread, in bytes.
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    /// Alignment that the declaration promises.
    pub(crate) align: u32,
}

/// Parameter of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Param {
    pub(crate) name: String,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
}

/// Registers that the device fills: their numbers in `w`.
pub(crate) mod special {
    pub(crate) const TID: usize = 0;
    pub(crate) const NTID: usize = 3;
    pub(crate) const CTAID: usize = 6;
    pub(crate) const NCTAID: usize = 9;
    pub(crate) const LANE: usize = 12;
    pub(crate) const WARP: usize = 13;
    pub(crate) const COUNT: usize = 14;
}

/// Decoded kernel.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) name: String,
    pub(crate) code: Vec<Instr>,
    /// Line of each instruction in the module's text.
    pub(crate) lines: Vec<u32>,
    pub(crate) exts: Vec<MemExt>,
    pub(crate) params: Vec<Param>,
    /// Words of the parameters that can be the base of a store to global memory; `contains` reads
    /// it.
    pub(crate) stored_params: u64,
    /// Bytes of all parameters.
    pub(crate) param_bytes: u32,
    /// Registers: 32-bit (special ones and constants too), 64-bit, predicates.
    pub(crate) n_w: usize,
    pub(crate) n_q: usize,
    pub(crate) n_p: usize,
    /// Registers that may be read before they are written.
    pub(crate) unwritten_w: Vec<u32>,
    pub(crate) unwritten_q: Vec<u32>,
    /// Constants: register and bits.
    pub(crate) consts_w: Vec<(u32, u32)>,
    pub(crate) consts_q: Vec<(u32, u64)>,
    pub(crate) shared: Vec<Window>,
    pub(crate) shared_bytes: u32,
    /// Index of the window of `.extern .shared`, whose size a launch gives.
    pub(crate) dynamic: Option<usize>,
    pub(crate) local: Vec<Window>,
    pub(crate) local_bytes: u32,
    /// log2 of the bytes that shared and local memory are watched by: 0, 1 or 2.
    pub(crate) granule: u32,
    /// `.reqntid`.
    pub(crate) required_block: Option<[u32; 3]>,
    /// `.maxntid`, multiplied.
    pub(crate) max_threads: u32,
    /// Estimate of the 32-bit registers alive at once.
    pub(crate) registers: u32,
}
