        for (var j = 0u; j < KEYS_EACH; j++) {
            let i = j * PARTS + part;
            if (i < c.key_dim) {
                matrix[j] = vectors[c.a + head] * matrix[j] + input_1(row, keys + i) * v;
                y += query(row, keys + i) * matrix[j];
            }
        }
