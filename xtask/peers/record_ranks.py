"""Records the traces of two ranks that the tests of `crates/insight` read. Started once for each rank with RANK, WORLD_SIZE=2,
MASTER_ADDR and MASTER_PORT; NCCL_HOSTID differs between the two where they share an accelerator. Arguments: `even`, `sleep` or
`work`, and the folder to write to. Prints the time of a step. `slim_trace.py` makes fixtures."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, record_function

rank, what = int(os.environ["RANK"]), sys.argv[1]
dist.init_process_group("nccl")
torch.cuda.set_device(0)
layers = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(6)]).cuda()
model = torch.nn.parallel.DistributedDataParallel(layers, device_ids=[0], bucket_cap_mb=8)
batch = torch.randn(256, 1024, device="cuda")
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
more = torch.randn(4096, 4096, device="cuda")


def step():
    if rank == 1 and what == "sleep":
        time.sleep(0.04)
    if rank == 1 and what == "work":
        for _ in range(12):
            more @ more
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
    torch.cuda.synchronize()


for _ in range(4):
    step()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as recorded:
    began = time.time()
    for number in range(4):
        with record_function(f"ProfilerStep#{number}"):
            step()
    print(what, rank, f"{(time.time() - began) / 4 * 1e3:.1f} ms a step", flush=True)
recorded.export_chrome_trace(f"{sys.argv[2]}/ddp_{what}_{rank}.json.gz")
dist.destroy_process_group()
