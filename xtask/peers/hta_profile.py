"""What HTA says about one trace, and what saying it takes. Argument: the trace. Prints one line of JSON."""

import json
import logging
import os
import resource
import sys
import time

os.environ.setdefault("HTA_DISABLE_NS_ROUNDING", "1")
logging.disable(logging.CRITICAL)
began = time.perf_counter()

from hta.trace_analysis import TraceAnalysis  # noqa: E402

imported = time.perf_counter()
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))
temporal = analysis.get_temporal_breakdown(visualize=False)
idle, _ = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
kernels, _ = analysis.get_gpu_kernel_breakdown(visualize=False)
overlap = analysis.get_comm_comp_overlap(visualize=False)
row = temporal.iloc[0]
print(
    json.dumps(
        {
            "kernel_time_us": float(row["kernel_time(us)"]),
            "idle_us": float(row["idle_time(us)"]),
            "compute_us": float(row["compute_time(us)"]),
            "import_s": imported - began,
            "analysis_s": time.perf_counter() - imported,
            "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
        }
    )
)
