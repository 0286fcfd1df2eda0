"""From values to integers: the only stage that knows types. Everything after it sees cells."""
