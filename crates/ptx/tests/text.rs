//! Small kernels: what must be in their texts, and what must not.

/// The text of a kernel of one statement list, with a constant buffer, numbers that are read and numbers that are written.
fn text(statements: &str) -> String {
    text_of("", statements)
}

fn text_of(before: &str, statements: &str) -> String {
    kernel_of(before, statements).text
}

fn kernel_of(before: &str, statements: &str) -> ptx::PtxKernel {
    let head = "
        struct Consts { n: u32, m: u32, x: f32, y: f32, z: f32 }
        @group(0) @binding(0) var<uniform> c: Consts;
        @group(0) @binding(1) var<storage, read> numbers: array<vec4<f32>>;
        @group(0) @binding(2) var<storage, read> words: array<u32>;
        @group(0) @binding(3) var<storage, read_write> out: array<f32>;
        @group(0) @binding(4) var<storage, read_write> quads: array<vec4<f32>>;
        var<workgroup> shared_numbers: array<f32, 64>;
    ";
    let main = "@compute @workgroup_size(64) fn main(@builtin(local_invocation_index) i: u32)";
    let wgsl = format!("{head}\n{before}\n{main} {{\n{statements}\n}}");
    ptx::translate(&wgsl).unwrap_or_else(|error| panic!("{error}\n{wgsl}"))
}

fn error(wgsl: &str) -> String {
    match ptx::translate(wgsl) {
        Ok(kernel) => panic!("{}", kernel.text),
        Err(error) => error.to_string(),
    }
}

fn count(text: &str, op: &str) -> usize {
    text.lines().filter(|line| line.split_whitespace().any(|word| word == op)).count()
}

#[test]
fn a_kernel_says_what_it_wants() {
    let wgsl = "
        @group(0) @binding(5) var<storage, read_write> out: array<f32>;
        var<workgroup> a: array<f32, 33>;
        var<workgroup> b: u32;
        @compute @workgroup_size(32, 2, 1) fn main(@builtin(local_invocation_id) id: vec3<u32>) {
            a[id.x] = 1.0;
            b = id.y;
            workgroupBarrier();
            out[id.y] = a[31u - id.x] + f32(b);
        }";
    let kernel = ptx::translate(wgsl).expect("it is valid");
    assert_eq!((kernel.workgroup_size, kernel.n_bindings), ([32, 2, 1], 6));
    assert_eq!(kernel.shared_bytes, 144 + 16);
    for wanted in [".param .u64 b5\n", ".reqntid 32, 2, 1\n", "s_a[132]", "s_b[4]", "%tid.y"] {
        assert!(kernel.text.contains(wanted), "{wanted}: {}", kernel.text);
    }
    assert!(!kernel.text.contains("%tid.z"), "{}", kernel.text);
}

#[test]
fn variables_with_constant_indices_are_in_registers() {
    let text = text(
        "var sums: array<vec4<f32>, 4>;
        for (var k = 0u; k < c.n; k++) {
            sums[0] += numbers[k];
            sums[3].y += numbers[k + 1u].x;
        }
        quads[i] = sums[0] + sums[3];",
    );
    assert!(!text.contains("local"), "{text}");
    assert_eq!((count(&text, "ld.global.nc.v4.b32"), count(&text, "st.global.v4.b32")), (1, 1));
    // of the second number one component is read, at an address that is known beside the first one's
    assert!(text.contains("+16];") && count(&text, "mad.wide.u32") == 2, "{text}");
}

#[test]
fn short_loops_over_variables_are_written_out() {
    let text = text(
        "var sums: array<f32, 24>;
        for (var k = 0u; k < c.n; k++) {
            for (var j = 0u; j < 24u; j++) {
                sums[j] += numbers[k].x * f32(j);
            }
        }
        var all = 0.0;
        for (var j = 0u; j < 24u; j++) { all = max(all, sums[j]); }
        out[i] = all;",
    );
    assert!(!text.contains("local"), "{text}");
    assert_eq!(count(&text, "max.f32"), 24, "{text}");
}

#[test]
fn loops_that_end_in_a_variable_are_written_out_to_its_end() {
    let text = text(
        "var sums: array<f32, 8>;
        for (var k = 0u; k < c.n; k++) {
            for (var j = 0u; j < c.m; j++) {
                sums[j] += numbers[k].x * numbers[j].y;
            }
        }
        quads[i] = vec4(sums[0], sums[1], sums[2], sums[7]);",
    );
    assert!(!text.contains("local"), "{text}");
    // of the eight sums nobody reads four
    assert_eq!((count(&text, "fma.rn.f32"), count(&text, "setp.lt.u32")), (4, 10), "{text}");
}

#[test]
fn large_variables_with_unknown_indices_lie_in_memory() {
    let text = text(
        "var sums: array<f32, 100>;
        sums[words[i]] = c.x;
        sums[3] = c.y;
        out[i] = sums[words[i + 1u]];",
    );
    assert!(text.contains(".local .align 16 .b8 l_sums_0[400];"), "{text}");
    assert!(text.contains("[l_sums_0+12]"), "{text}");
    assert_eq!(count(&text, "ld.local.b32"), 1, "{text}");
}

#[test]
fn small_ones_are_chosen_from() {
    let text = text("var four = numbers[i]; four[words[i]] = 1.0; out[i] = four[words[1]];");
    assert!(!text.contains("local"), "{text}");
    assert_eq!(count(&text, "selp.b32"), 4 + 3, "{text}");
}

#[test]
fn branches_that_are_never_taken_are_left_out() {
    let text = text_of(
        "const HAS = false;
        fn f(x: f32) -> f32 { if (HAS) { return exp(x); } return x + 1.0; }",
        "var y = 2.0;
        if (HAS || c.n == 4u) { y = f(c.x); }
        switch (select(1u, 2u, HAS)) { case 2u: { y = log(y); } default: { y = sqrt(y); } }
        out[i] = y;",
    );
    for left_out in ["ex2", "lg2"] {
        assert!(!text.contains(left_out), "{left_out}: {text}");
    }
    assert!(text.contains("sqrt.rn.f32"), "{text}");
    assert!(text.contains("sqrt.rn.f32"), "{text}");
    // what is left is one condition
    assert_eq!(text.matches("bra ").count(), 2, "{text}");
}

#[test]
fn the_same_sum_is_made_once() {
    let text = text(
        "let a = words[i];
        let b = words[i + 1u];
        out[a + b] = f32(b + a);
        out[(a & b) * 4u] = f32(b & a) + f32(a * b) - f32(b * a);",
    );
    let found = ["add.u32", "and.b32", "mul.lo.u32"].map(|op| count(&text, op));
    assert_eq!(found, [1, 1, 1], "{text}");
}

#[test]
fn what_nobody_reads_is_not_read() {
    let text = text("let q = numbers[i]; let w = words[i]; let s = q.zw; out[i] = s.x + s.y;");
    assert_eq!((count(&text, "ld.global.nc.v2.b32"), count(&text, "ld.global.nc.b32")), (1, 0));
    assert!(text.contains("+8];"), "{text}");
}

#[test]
fn products_go_into_sums() {
    let text = text(
        "let a = numbers[i];
        let b = numbers[i + 1u];
        var sum = c.x;
        sum += dot(a, b);
        out[i] = sum - c.y * c.z;
        out[i + 64u] = f32(words[0] * words[1] + words[2]);",
    );
    assert_eq!((count(&text, "fma.rn.f32"), count(&text, "mad.lo.u32")), (5, 1), "{text}");
    for left in ["mul.rn.f32", "add.rn.f32", "sub.rn.f32", "mul.lo.u32"] {
        assert_eq!(count(&text, left), 0, "{left}: {text}");
    }
}

#[test]
fn products_that_are_read_twice_stay() {
    let text = text("let p = c.x * c.y; out[i] = p + c.z; out[i + 64u] = p;");
    assert_eq!((count(&text, "mul.rn.f32"), count(&text, "add.rn.f32")), (1, 1), "{text}");
}

#[test]
fn products_of_bytes_are_summed_at_once() {
    let text = text(
        "let a = vec4(words[0], words[1], words[2], words[3]);
        out[i] = f32(dot4I8Packed(a.x, a.y) + dot4I8Packed(a.y, a.z) + dot4I8Packed(a.z, a.w));",
    );
    assert_eq!((count(&text, "dp4a.s32.s32"), count(&text, "add.u32")), (3, 0), "{text}");
}

#[test]
fn bytes_become_floats_without_conversions() {
    let text = text("quads[i] = vec4<f32>(unpack4xU8(words[i])) - 8.0;");
    assert_eq!((count(&text, "prmt.b32"), count(&text, "sub.rn.f32")), (4, 4), "{text}");
    assert!(!text.contains("cvt.rn") && text.contains("0f4B000008"), "{text}");
}

/// They come with the launch and not from memory, which the first instructions would wait for.
#[test]
fn constants_are_given_by_value() {
    let text = text(
        "var sum = 0.0;
        for (var k = i; k < c.n; k += c.m) { sum += c.x * numbers[k].x + c.y; }
        out[i] = sum * c.z;",
    );
    assert!(text.contains("\t.param .align 16 .b8 b0[20],"), "{text}");
    assert_eq!(count(&text, "ld.param.b32"), 5, "each is read once:\n{text}");
    assert_eq!(text.matches("ld.global").count(), 1, "{text}");
}

#[test]
fn barriers_are_as_they_are_meant() {
    let text = text(
        "shared_numbers[i] = c.x;
        workgroupBarrier();
        out[i] = shared_numbers[63u - i];
        storageBarrier();
        workgroupBarrier();
        out[i + 64u] = out[63u - i];",
    );
    assert_eq!((count(&text, "bar.sync"), count(&text, "membar.cta;")), (2, 1), "{text}");
}

#[test]
fn matrices_say_how_their_numbers_lie() {
    let wgsl = "
        enable f16;
        enable wgpu_cooperative_matrix;
        @group(0) @binding(0) var<storage, read_write> out: array<f32>;
        var<workgroup> x: array<f16, 640>;
        var<workgroup> sums: array<f32, 640>;
        @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) i: u32) {
            x[i] = f16(i);
            workgroupBarrier();
            var sum = coopLoadT<coop_mat16x16<f32, C>>(&sums[16], 40u);
            for (var k = 0u; k < 3u; k++) {
                let a = coopLoadT<coop_mat16x16<f16, A>>(&x[k * 16u], 40u);
                let b = coopLoad<coop_mat16x16<f16, B>>(&x[k * 16u], 40u);
                sum = coopMultiplyAdd(a, b, sum);
            }
            coopStoreT(sum, &sums[16], 40u);
            workgroupBarrier();
            out[i] = sums[i];
        }";
    let text = ptx::translate(wgsl).expect("it is valid").text;
    for wanted in [
        "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16",
        "wmma.load.b.sync.aligned.col.m16n16k16.shared.f16",
        "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32",
    ] {
        assert_eq!(count(&text, wanted), 3, "{wanted}: {text}");
    }
    assert!(text.contains("shared.f32 [s_sums+64], {"), "{text}");
}

#[test]
fn subgroups_have_32_lanes() {
    let wgsl = "
        @group(0) @binding(0) var<storage, read_write> out: array<f32>;
        @compute @workgroup_size(64) fn main(
            @builtin(subgroup_id) subgroup: u32,
            @builtin(subgroup_size) width: u32,
            @builtin(subgroup_invocation_id) lane: u32,
        ) {
            var sum = f32(lane);
            if (1u < width) { sum += subgroupShuffleXor(sum, 1u); }
            if (32u < width) { sum += subgroupShuffleXor(sum, 32u); }
            out[subgroup * width + lane] = sum;
        }";
    let text = ptx::translate(wgsl).expect("it is valid").text;
    assert_eq!((count(&text, "shfl.sync.bfly.b32"), count(&text, "bra")), (1, 0), "{text}");
    assert!(text.contains("%laneid") && text.contains(", 1, 31, 4294967295;"), "{text}");
}

#[test]
fn errors_name_what_is_not_supported() {
    let kernel = |before: &str, body: &str| {
        format!(
            "{before}
            @group(0) @binding(0) var<storage, read_write> out: array<f32>;
            @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) i: u32) {{ {body} }}"
        )
    };
    let cases = [
        (kernel("", "out[0] = 1.0 +;"), "at line 3"),
        (kernel("", "out[0] = 1u;"), "at line 3"),
        (kernel("var<workgroup> n: atomic<u32>;", "atomicAdd(&n, 1u);"), "Atomic"),
        (kernel("override N = 3u;", "out[0] = f32(N);"), "overrides"),
        (kernel("", "out[0] = f32(arrayLength(&out));"), "ArrayLength"),
        (kernel("", "out[0] = sin(out[1]);"), "Sin of F32"),
        (kernel("var<private> n: u32;", "n = i;"), "n in Private"),
        (
            kernel("fn f(m: mat2x2<f32>) -> f32 { return m[0].x; }", "out[0] = f(mat2x2<f32>());"),
            "Matrix",
        ),
        (
            kernel(
                "enable wgpu_cooperative_matrix; var<workgroup> x: array<f32, 64>;",
                "let a = coopLoad<coop_mat8x8<f32, C>>(&x[0], 8u); coopStore(a, &x[0], 8u);",
            ),
            "a cooperative matrix C of 8 x 8",
        ),
        ("fn f() {}".into(), "one entry point"),
        ("@fragment fn main() {}".into(), "no compute shader"),
    ];
    for (wgsl, wanted) in cases {
        let error = error(&wgsl);
        assert!(error.contains(wanted), "{error}: {wgsl}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

/// Statements of a kernel that fills tiles in shared memory.
fn tiles(statements: &str) -> String {
    let wgsl = format!(
        "enable f16;
        @group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
        @group(0) @binding(1) var<storage, read_write> out: array<f32>;
        @group(0) @binding(2) var<storage, read> words: array<u32>;
        const PITCH = 40u;
        var<workgroup> a: array<f16, 64u * PITCH>;
        var<workgroup> b: array<f16, 64u * PITCH>;
        var<workgroup> sums: array<f32, 64u * PITCH>;
        @compute @workgroup_size(128) fn main(@builtin(local_invocation_index) i: u32) {{
            {statements}
        }}"
    );
    ptx::translate(&wgsl).unwrap_or_else(|error| panic!("{error}\n{wgsl}")).text
}

#[test]
fn neighbours_are_stored_at_once() {
    let text = tiles(
        "let to = (i / 2u) * PITCH + 16u * (i % 2u);
        let q = x[i];
        for (var k = 0u; k < 16u; k++) {
            a[to + k] = f16(q[k / 4u] * f32(k));
            b[to + k] = f16(q[k % 4u]);
        }
        workgroupBarrier();
        for (var k = 0u; k < 4u; k++) { out[4u * i + k] = f32(a[i + k] + b[k]); }",
    );
    assert_eq!((count(&text, "st.shared.v4.b32"), count(&text, "st.shared.b16")), (4, 0), "{text}");
    assert_eq!((count(&text, "st.global.v4.b32"), count(&text, "st.global.b32")), (1, 0), "{text}");
    // where a thread reads the first one is at any number, the second one at a variable's begin
    assert_eq!((count(&text, "ld.shared.b16"), count(&text, "ld.shared.v2.b32")), (4, 1), "{text}");
    let packs = text.lines().filter(|line| line.contains("mov.b32") && line.contains("{%h"));
    assert_eq!(packs.count(), 4 * 4 + 2, "{text}");
}

/// Widths are what a place is sure to be a multiple of.
#[test]
fn accesses_are_as_wide_as_places_are_aligned() {
    let cases = [
        ("4u * i", (1, 0, 0)),
        ("(i << 3u) + 16u", (1, 0, 0)),
        ("(i & 60u) * 3u", (1, 0, 0)),
        ("i / 4u * 4u", (1, 0, 0)),
        ("min(i, 7u) * PITCH + 8u * (i % 2u)", (1, 0, 0)),
        ("4u * i + 2u", (0, 2, 0)),
        ("4u * i + 1u", (0, 1, 2)),
        ("6u * i", (0, 2, 0)),
        ("2u * i + 1u", (0, 1, 2)),
        ("i", (0, 0, 4)),
        ("i / 4u", (0, 0, 4)),
        ("4u * i / 2u", (0, 2, 0)),
        ("words[i]", (0, 0, 4)),
        ("4u * words[i]", (1, 0, 0)),
    ];
    for (at, wanted) in cases {
        let all = "for (var k = 0u; k < 4u; k++) { sums[to + k] = x[i][k]; }";
        let text = tiles(&format!("let to = {at}; {all} workgroupBarrier(); out[i] = sums[i];"));
        let found = ["v4.b32", "v2.b32", "b32"].map(|ty| count(&text, &format!("st.shared.{ty}")));
        assert_eq!((found[0], found[1], found[2]), wanted, "{at}: {text}");
    }
}

/// What a loop counts with is a multiple of what it begins with and of its steps.
#[test]
fn counters_of_loops_are_multiples() {
    for (step, wanted) in [("512u", 1), ("130u", 0)] {
        let text = tiles(&format!(
            "for (var to = 4u * i; to < 2000u; to += {step}) {{
                for (var k = 0u; k < 4u; k++) {{ sums[to + k] = x[i][k]; }}
            }}
            workgroupBarrier();
            out[i] = sums[i];"
        ));
        assert_eq!(count(&text, "st.shared.v4.b32"), wanted, "{step}: {text}");
    }
}

/// Accesses stay apart where another one may be to the same place, and where others read meanwhile.
#[test]
fn accesses_keep_their_order() {
    let cases = [
        // to the same variable at another place
        ("sums[4u * i] = 1.0; sums[words[i]] = 2.0; sums[4u * i + 1u] = 3.0;", 0),
        ("sums[4u * i] = 1.0; let s = sums[words[i]]; sums[4u * i + 1u] = s;", 0),
        // to another one
        ("sums[4u * i] = 1.0; a[words[i]] = 2h; sums[4u * i + 1u] = 3.0;", 1),
        ("sums[4u * i] = 1.0; workgroupBarrier(); sums[4u * i + 1u] = 3.0;", 0),
        ("sums[4u * i] = 1.0; if (words[0] > 1u) { sums[4u * i + 1u] = 3.0; }", 0),
        // the first one is read before, and written again behind
        ("sums[4u * i] = 1.0; out[0] = sums[4u * i]; sums[4u * i + 1u] = 3.0;", 0),
        ("sums[4u * i] = 1.0; sums[4u * i] = 2.0; sums[4u * i + 1u] = 3.0;", 1),
    ];
    for (statements, wanted) in cases {
        let text = tiles(&format!("{statements} workgroupBarrier(); out[i] = sums[i];"));
        assert_eq!(count(&text, "st.shared.v2.b32"), wanted, "{statements}: {text}");
    }
    let again = tiles("let q = 4u * i; sums[q] = 1.0; sums[q] = 2.0; sums[q + 1u] = 3.0;");
    let (first, wide) = (again.find("st.shared.b32"), again.find("st.shared.v2.b32"));
    assert!(first.is_some() && first < wide, "{again}");
    // sums in place: each is read before it is written
    let text = tiles(
        "for (var k = 0u; k < 4u; k++) { sums[4u * i + k] += x[i][k]; }
        workgroupBarrier();
        out[i] = sums[i];",
    );
    assert_eq!((count(&text, "ld.shared.v4.b32"), count(&text, "st.shared.v4.b32")), (1, 1));
    // what was written is not read before
    let text = tiles(
        "sums[4u * i + 1u] = 1.0;
        let first = sums[4u * i];
        sums[4u * i + 1u] = first;
        out[i] = first + sums[4u * i + 1u];",
    );
    assert_eq!(count(&text, "ld.shared.b32"), 2, "{text}");
}

/// A function with many branches.
const ACTIVATION: &str = "
    fn activation(kind: u32, x: f32) -> f32 {
        switch (kind) {
            case 1u: { return tanh(x); }
            case 2u: { return exp(x) / (1.0 + exp(-x)); }
            case 3u: { return log(1.0 + exp(x)); }
            case 4u: { return pow(abs(x), 1.5); }
            case 5u: { return tanh(x) * exp(x); }
            case 6u: { return sqrt(abs(x)) + log(abs(x)); }
            case 7u: { return 1.0 / (1.0 + exp(-x)); }
            case 8u: { return log(exp(x) + exp(-x)); }
            case 9u: { return max(x, 0.0); }
            case 10u: { return tanh(max(x, 1.0)) + tanh(min(x, 1.0)); }
            default: { return x; }
        }
    }";

/// A turn that is long and branches all over is there once: what it reads is chosen from a variable in registers.
#[test]
fn long_turns_are_not_written_out() {
    let sums = |count: u32, end: &str| {
        format!(
            "var sums: array<f32, {count}>;
            for (var k = 0u; k < c.n; k++) {{
                for (var j = 0u; j < {count}u; j++) {{ sums[j] += numbers[k].x * f32(j); }}
            }}
            {end}"
        )
    };
    let each = "for (var j = 0u; j < COUNT; j++) { out[i + j] = activation(c.m, sums[j]); }";
    let text = text_of(ACTIVATION, &sums(16, &each.replace("COUNT", "16u")));
    assert!(!text.contains(".local"), "{text}");
    let roots = count(&text, "sqrt.rn.f32");
    assert_eq!((roots, count(&text, "st.global.b32")), (1, 1), "{text}");
    assert!(count(&text, "selp.b32") >= 15, "{text}");
    // more than can be chosen from
    let text = text_of(ACTIVATION, &sums(18, &each.replace("COUNT", "18u")));
    assert!(!text.contains(".local"), "{text}");
    assert_eq!(count(&text, "sqrt.rn.f32"), 18, "{text}");
    // where a turn is short, or has no branches, all of them are there
    let short = sums(16, "for (var j = 0u; j < 16u; j++) { out[i + j] = sqrt(sums[j]); }");
    assert_eq!(count(&text_of("", &short), "sqrt.rn.f32"), 16);
    let straight = "for (var j = 0u; j < 16u; j++) {
        var x = sums[j];
        for (var n = 0u; n < 20u; n++) { x = x * x + c.x * sqrt(x) + 1.0; }
        for (var n = 0u; n < 20u; n++) { x = x * x + c.y * sqrt(x) + 1.0; }
        for (var n = 0u; n < 20u; n++) { x = x * x + c.z * sqrt(x) + 1.0; }
        out[i + j] = x;
    }";
    assert_eq!(count(&text_of("", &sums(16, straight)), "sqrt.rn.f32"), 16 * 60);
}
