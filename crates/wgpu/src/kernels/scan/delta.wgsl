        let all = exp(input_3(row, head * select(1u, c.key_dim, c.by_row == 1u)));
        var found = vec4(0.0);
        for (var j = 0u; j < KEYS_EACH; j++) {
            let i = j * PARTS + part;
            if (i < c.key_dim) {
                let k = input_1(row, keys + i);
                let q = query(row, keys + i);
                matrix[j] *= decay(row, head, i, all);
                found += vec4(k * k, q * q, k * matrix[j], 0.0);
            }
        }
        found = sums_before(lane, found);
        let unit = 1.0 / sqrt(found.x + c.number);
        let change = input_4(row, head) * (v - unit * found.z) * unit;
        for (var j = 0u; j < KEYS_EACH; j++) {
            let i = j * PARTS + part;
            if (i < c.key_dim) {
                matrix[j] += input_1(row, keys + i) * change;
                y += query(row, keys + i) * matrix[j];
            }
        }
