"""Joins over history on Spark: each event meets, in one partition, all documents that its joins may speak of.

A document satisfies `d.user = user AND ...` only if it has the event's user. So events and documents are brought
together by their keys, numbers that equal values have in common (hashes.py); a partition that has more documents than
its events need gives the same answers, as joins test every condition in full. What answers them there is a Matcher with
a history, as in one process.

    keys.py          by which attributes the joins of some subscriptions equate
    hashes.py        keys of values
    history.py       `History`: what users say of the documents
    columns.py       columns of Arrow batches as events and documents
    partitioned.py   the plan of a batch, on the driver: few documents to every worker, or many by their keys
    worker.py        what a batch runs in the workers
    growing.py       the history of a stream, which grows: files for each micro-batch, on the driver
    growing_log.py   which of them a batch begins with; growing_parts.py: what they hold, and how small ones are merged
    growing_worker.py   what a stream runs in the workers
"""
