"""Writes a trace of torch.profiler as Nsight Systems would export it (`nsys export --type sqlite`), by NVIDIA's published
schema: the same kernels, copies, calls and steps in the tables and columns that a profile reads. Arguments: the trace, the file
to write (gzip)."""

import gzip
import json
import os
import sqlite3
import sys
import tempfile

WAYS = {"HtoD": 1, "DtoH": 2, "DtoD": 8, "PtoP": 10}
MEMORIES = {"Pageable": 0, "Pinned": 1, "Device": 2}

trace = json.loads(gzip.open(sys.argv[1]).read())
path = os.path.join(tempfile.mkdtemp(), "export.sqlite")
database = sqlite3.connect(path)
database.executescript(
    """
    CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, -- of a string
        value TEXT NOT NULL);
    CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
        demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, gridX INTEGER NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL,
        srcKind INTEGER, dstKind INTEGER);
    CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
        streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
        globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL);
    CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT, globalTid INTEGER,
        textId INTEGER);
    """
)
strings = {}
first = min(event["ts"] for event in trace["traceEvents"])


def string(value):
    return strings.setdefault(value, len(strings) + 1)


threads = {}
for event in trace["traceEvents"]:
    args, kind, name = event.get("args", {}), event["cat"], event["name"]
    start = round((event["ts"] - first) * 1000)
    end = start + round(event["dur"] * 1000)
    process = 0x1_0000_0000_0000 | 4711 << 24
    thread = process | threads.setdefault(event["tid"], len(threads) + 1)
    correlation = args.get("correlation")
    stream, number = args.get("stream"), event["pid"]
    if kind == "kernel":
        row = (start, end, number, 1, None, stream, correlation, process, string(name), string(name[:16]), 1)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?,?,?,?)", row)
    elif kind == "gpu_memcpy":
        _, way, memories = name.split(" ", 2)
        source, sink = (MEMORIES[memory] for memory in memories.strip("()").split(" -> "))
        row = (start, end, number, stream, correlation, process, args.get("bytes", 0), WAYS[way], source, sink)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,?,?,?,?,?,?,?)", row)
    elif kind == "gpu_memset":
        row = (start, end, number, stream, correlation, process, args.get("bytes", 0))
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?,?,?,?,?,?,?)", row)
    elif kind in ("cuda_runtime", "cuda_driver"):
        row = (start, end, 0, thread, correlation, string(name + "_v7000"), 0)
        database.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?,?,?)", row)
    elif name.startswith("ProfilerStep#") and kind == "user_annotation":
        row = (start, end, 59, "step " + name.split("#")[1], thread, None)
        database.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?)", row)
    elif kind == "cpu_op" and len(sys.argv) > 3:
        row = (start, end, 59, None, thread, string(name + ", seq = 1"))
        database.execute("INSERT INTO NVTX_EVENTS VALUES (?,?,?,?,?,?)", row)
database.executemany("INSERT INTO StringIds VALUES (?,?)", ((number, value) for value, number in strings.items()))
database.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, ?)", (trace["deviceProperties"][0]["name"],))
database.commit()
database.close()
with open(path, "rb") as export, open(sys.argv[2], "wb") as out, gzip.GzipFile("", "wb", 9, out, 0) as packed:
    packed.write(export.read())
