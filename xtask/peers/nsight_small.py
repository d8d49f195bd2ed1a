"""Writes a small export as Nsight Systems would (`nsys export --type sqlite`), with what is rare: two processes whose calls have
the same numbers, two accelerators, names longer than a page, deep trees on small pages, a replayed graph, and tables whose
columns older versions do not have. Argument: the file to write."""

import os
import sqlite3
import sys

if os.path.exists(sys.argv[1]):
    os.remove(sys.argv[1])
database = sqlite3.connect(sys.argv[1])
database.executescript(
    """
    PRAGMA page_size = 512;
    CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
        correlationId INTEGER, globalPid INTEGER, shortName INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
        correlationId INTEGER, globalPid INTEGER, graphId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER,
        nameId INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, bytes INTEGER);
    CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId INTEGER);
    """
)
LONG = "ncclDevKernel_AllReduce_" + "x" * 3000
# Of this one more stays on the row's own page than of the other: the format says so by its length.
STEP = "train " + "y" * 1640 + " iteration 41"
database.executemany(
    "INSERT INTO StringIds VALUES (?, ?)",
    [(1, "cudaLaunchKernel_v7000"), (2, "gemm_kernel"), (3, LONG), (4, "unused"), (5, STEP)],
)
for process in (1, 2):
    number = 0x0100_0000_0000_0000 | process << 24
    for at in range(200):
        # The second process is a little late, so that calls of the two are not the same.
        launched = at * 10_000 + 3_000 * (process - 1)
        call = (launched, launched + 2_000, number | 7, at, 1)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", call)
        # The second process's kernels start later after their launches, and one in four is a collective.
        start = launched + 1_000 * process
        kernel = (start, start + 5_000, process - 1, 7, at, number, 3 if at % 4 == 0 else 2)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?)", kernel)
    graph = (2_010_000, 2_030_000, process - 1, 7, 900, number, 1)
    database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?,?,?,?,?,?,?)", graph)
    database.execute("INSERT INTO NVTX_EVENTS VALUES (0, 2040000, 59, NULL, ?, 5)", (number | 7,))
# A range that never ended, a mark, and a copy of a version that says little of it.
database.execute("INSERT INTO NVTX_EVENTS VALUES (5, NULL, 59, 'step 3', 7, NULL)")
database.execute("INSERT INTO NVTX_EVENTS VALUES (5, NULL, 34, 'a mark', 7, NULL)")
database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (2031000, 2032000, 77)")
database.commit()
database.execute("VACUUM")
database.close()
