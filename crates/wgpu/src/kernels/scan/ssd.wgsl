        let time = input_3(row, head);
        let stays = exp(time * vectors[c.a + head]);
        for (var j = 0u; j < KEYS_EACH; j++) {
            let i = j * PARTS + part;
            if (i < c.key_dim) {
                matrix[j] = stays * matrix[j] + input_1(row, keys + i) * (time * v);
                y += query(row, keys + i) * matrix[j];
            }
        }
