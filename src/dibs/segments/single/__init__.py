"""A single event: from JSON text to rows in one compiled call, whatever the number of segments and arrays.

    plan.py      what of a state a call is handed: one table of addresses, made once for a state
    tables.py    what stands in such a table: groups of arrays, declared once
    waiting.py   what waits in a state, as records that need no building; waiting_kernels.py: events against them
    space.py     what a call needs besides: one table of work arrays, kept from call to call
    coding_kernels.py values to cells, all at once
    facet_kernels.py  strings in reverse and the patterns that they satisfy, as cells
    sieve_kernels.py  cells to rows of records, without a look at most of them
    kernels.py   the call: text to values; for each layer, values to cells, cells to rows, without what is gone
    call.py      the call, seen from Python
    texts.py     events to JSON text, where nothing is lost by it

An array that is handed to a compiled function costs 0.15 microseconds; a match of one event took 70 of them and 370
calls of Python. Here it is two addresses, the text and a number. Segments with another index than `auto`, or with many
masks that are not filed for single events yet, are handed the event as the call has coded it. What this way does not do
goes the way of batches: the events of matchers with joins over history; and events with ranges, dates or other values
that JSON does not have, or strings about which RE2 decides: those that hold a text which an expression needs, and all
of an attribute that has expressions of which nothing is known.
"""
