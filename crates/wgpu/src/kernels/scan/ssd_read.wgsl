        y += vectors[c.d + head] * v;
