"""Makes a fixture of a torch.profiler trace: the same spans without what no figure depends on (flow arrows, indices, launch
geometry, white space). Arguments: the trace, the file to write. HTA computes the same from both."""

import gzip
import json
import sys

KEPT = {"stream", "correlation", "External id", "bytes", "est. achieved occupancy %", "Input Dims", "Input type", "Concrete Inputs"}

trace = json.loads(gzip.open(sys.argv[1]).read())
events = []
for event in trace["traceEvents"]:
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
