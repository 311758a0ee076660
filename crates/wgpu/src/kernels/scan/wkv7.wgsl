        var found = vec4(0.0);
        for (var j = 0u; j < KEYS_EACH; j++) {
            let i = j * PARTS + part;
            if (i < c.key_dim) {
                found.x += input_4(row, keys + i) * matrix[j];
            }
        }
        found = sums_before(lane, found);
        for (var j = 0u; j < KEYS_EACH; j++) {
            let i = j * PARTS + part;
            if (i < c.key_dim) {
                let stays = exp(input_3(row, keys + i)) * matrix[j];
                matrix[j] = stays + input_5(row, keys + i) * found.x + input_1(row, keys + i) * v;
                y += query(row, keys + i) * matrix[j];
            }
        }
