"""The memory of a BE-Tree: one array of words.

`words` (int32) is cut into blocks, as a heap is: the word before a block is its size class, free blocks of a class are
a list that goes through their first words. A block is one of

    c-node       20 words, the constants from BLOCK to HI below. First what a match reads: its l-node, its p-directory,
                 the halves of its bucket with the least interval that covers all expressions in each
    p-node       9 words, OWNER to LAST_LOSS
    l-node       the records of its rows, one after another
    p-directory  a hash table with linear probing; a place is (attribute, top c-node, lo, hi, p-node), where lo to hi
                 is the least interval that covers all its expressions, or begins with -1
    stack        of tasks, see betree_leaves
    scratch      one record, on its way in

A record is  row, tested, entries  and then `entries` times  (attribute, lo, hi):  first the hulls of the row's
predicates, of which the first `tested` have to be tested and the others are subsumed (the buckets on the way say that
they hold); then, for each predicate of several spans, one more entry in the form of coding.clauses (hi = -spans, lo the
first of them) for the exact test. A deleted record has the row -1 and a hull that nothing meets.
"""

from __future__ import annotations

MOST = 2**31 - 1  # the highest cell

BLOCK, USED, ROWS, TABLE, PLACES, LEFT, RIGHT, LEFT_LO, LEFT_HI, RIGHT_LO, RIGHT_HI, ATTRIBUTE = range(12)
UP, PART, CAPACITY, SPLIT, DEAD, COUNT, LO, HI = range(12, 20)  # UP: the bucket of which it is a half, -1 at the top
NODE_WORDS = 20
OWNER, KEY, TOP, SIZE, GAIN, LOSS, SEEN, CHANGES, LAST_LOSS = range(9)  # OWNER: in whose p-directory it is
PART_WORDS = 9
PLACE = 5  # words of a place of a p-directory
HEAD = 3  # words of a record before its entries
ROOT = 1  # the first block of all

# The state: how many words are used and how many are wanted, nodes, tasks, what has been done of the present call.
WORDS, WANTED, NODES, PART_NODES, ALIVE, STACK, TASKS, SCRATCH, NEXT = range(9)
MAX_CAP, MIN_SIZE, RECYCLED, LARGE_FREE = range(9, 13)
MANY, SAMPLE, WINDOW, LARGE = range(13, 17)  # as dibs.thresholds were when the tree was begun
LISTS = 20  # from here on: the first free block of each class
CLASSES = 60
STATE = LISTS + CLASSES

INSERT, DELETE, PLANT = range(3)  # what betree_update does
