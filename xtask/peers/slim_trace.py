"""Makes a fixture of a trace of torch.profiler or JAX: the same spans without what no figure depends on (flow arrows, indices,
launch geometry, white space). Arguments: the trace, the file to write, for JAX also how many steps to keep. HTA computes the
same from both."""

import gzip
import json
import sys

KEPT = {"stream", "correlation", "External id", "bytes", "est. achieved occupancy %", "Input Dims", "Input type", "Concrete Inputs"}

OF_JAX = {"correlation_id", "step_num", "hlo_category", "memcpy_details", "name"}

trace = json.loads(gzip.open(sys.argv[1]).read())
events = []
steps = sorted(event["ts"] + event["dur"] for event in trace["traceEvents"] if "step_num" in event.get("args", {}))
# What lies within a span of the host says nothing more, unless it launches or waits.
around = {}
until = (steps[: int(sys.argv[3])] if len(sys.argv) > 3 else steps)[-1] if steps else 0
for event in trace["traceEvents"] if steps else ():
    named = event.get("ph") == "M" and event["name"] in ("process_name", "thread_name")
    if named or event.get("ph") == "X" and event["ts"] + event["dur"] <= until:
        kept = OF_JAX if named else OF_JAX - {"name"}
        where, args = (event["pid"], event.get("tid")), event.get("args", {})
        if not named and not {"correlation_id", "step_num"} & set(args) and "array" not in event["name"] and event["name"][0] != "$":
            if around.get(where, 0) >= event["ts"] + event["dur"]:
                continue
            around[where] = event["ts"] + event["dur"]
        args = {name: value for name, value in event.get("args", {}).items() if name in kept}
        event = {name: event[name] for name in ("ph", "pid", "tid", "ts", "dur", "name") if name in event}
        events.append({**event, "args": args} if args else event)
for event in () if steps else trace["traceEvents"]:
    if event.get("ph") != "X" or event.get("cat") in ("overhead", "python_function"):
        continue
    args = {name: value for name, value in event.get("args", {}).items() if name in KEPT}
    if event["cat"] == "cpu_op" and "Input Dims" not in args:
        args = {}
    event = {name: event[name] for name in ("ph", "cat", "name", "pid", "tid", "ts", "dur")}
    events.append({**event, "args": args} if args else event)
kept = {name: trace[name] for name in ("schemaVersion", "deviceProperties", "distributedInfo") if name in trace}
text = json.dumps({**kept, "traceEvents": events}, separators=(",", ":"))
with open(sys.argv[2], "wb") as out, gzip.GzipFile("", "wb", 9, out, 0) as packed:
    packed.write(text.encode())
