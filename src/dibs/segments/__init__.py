"""Immutable sets of subscriptions: texts, ids, domains, clauses and an index, in memory or memory-mapped."""
