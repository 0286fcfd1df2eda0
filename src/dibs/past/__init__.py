"""What would have matched: one new expression, or all subscriptions, over stored events."""
