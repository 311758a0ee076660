        let all = exp(input_3(row, head * select(1u, c.key_dim, c.by_row == 1u)));
        for (var j = 0u; j < KEYS_EACH; j++) {
            let i = j * PARTS + part;
            if (i < c.key_dim) {
                matrix[j] = decay(row, head, i, all) * matrix[j] + input_1(row, keys + i) * v;
                y += query(row, keys + i) * matrix[j];
            }
        }
