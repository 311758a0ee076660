        y *= c.number;
