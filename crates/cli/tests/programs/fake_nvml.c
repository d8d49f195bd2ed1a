/* A stand-in for NVIDIA's management library on machines that have none: the program loads it as it loads the real one.
 * What it shows is read from the file that FAKE_NVML names, anew at every call, a line an accelerator:
 *     UUID NAME-WITH-UNDERSCORES BUS ok|lost ECC REMAP-FAILED LINKED-TO-BUS
 * and a line `xid NUMBER INDEX SERIAL` an error, told once for each serial; `hang` makes every call wait for ever. What it
 * measures of the accelerators is in lines
 *     measure INDEX BUSY MEMORY-BUSY USED-MIB MILLIWATTS MHZ SM OCCUPANCY TENSOR DRAM PID PID-MIB PID-BUSY
 * where shares of counters below zero mean that it has no counters, as before Hopper. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MOST 16
#define LOST 15
#define NOT_SUPPORTED 3
#define TIMEOUT 10

struct gpu { char uuid[96], name[96], bus[32], state[8], link[32]; unsigned long long ecc; unsigned failed; };
struct measured {
    unsigned known, busy, memory_busy, used_mib, milliwatts, mhz, pid, pid_mib, pid_busy;
    double sm, occupancy, tensor, dram;
};
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
struct memory { unsigned long long total, free, used; };
struct event { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };

static struct gpu gpus[MOST];
static struct measured measures[MOST];
static unsigned count;
static unsigned xid, xid_index, xid_serial, told_serial;

static void look(void)
{
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : 0;
    char line[512];
    count = 0;
    xid = 0;
    memset(measures, 0, sizeof measures);
    while (file && fgets(line, sizeof line, file)) {
        struct gpu *gpu = &gpus[count];
        if (!strncmp(line, "hang", 4))
            for (;;)
                pause();
        struct measured read = {.known = 1};
        unsigned index;
        if (sscanf(line, "measure %u %u %u %u %u %u %lf %lf %lf %lf %u %u %u", &index, &read.busy, &read.memory_busy,
                   &read.used_mib, &read.milliwatts, &read.mhz, &read.sm, &read.occupancy, &read.tensor, &read.dram,
                   &read.pid, &read.pid_mib, &read.pid_busy) == 13) {
            if (index < MOST)
                measures[index] = read;
            continue;
        }
        if (sscanf(line, "xid %u %u %u", &xid, &xid_index, &xid_serial) == 3)
            continue;
        if (count < MOST && sscanf(line, "%95s %95s %31s %7s %llu %u %31s", gpu->uuid, gpu->name, gpu->bus, gpu->state,
                                   &gpu->ecc, &gpu->failed, gpu->link) == 7) {
            for (char *at = gpu->name; *at; at++)
                if (*at == '_')
                    *at = ' ';
            count++;
        }
    }
    if (file)
        fclose(file);
}

static struct gpu *of(void *device)
{
    look();
    size_t index = (size_t)device - 1;
    return index < count ? &gpus[index] : 0;
}

static int is_lost(struct gpu *gpu)
{
    return !gpu || !strcmp(gpu->state, "lost");
}

int nvmlInit_v2(void)
{
    look();
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *all)
{
    look();
    *all = count;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = (void *)(size_t)(index + 1);
    return 0;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned length)
{
    struct gpu *gpu = of(device);
    if (!gpu)
        return LOST;
    snprintf(text, length, "%s", gpu->uuid);
    return 0;
}

int nvmlDeviceGetName(void *device, char *text, unsigned length)
{
    struct gpu *gpu = of(device);
    if (is_lost(gpu))
        return LOST;
    snprintf(text, length, "%s", gpu->name);
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
    if (is_lost(of(device)))
        return LOST;
    memory->total = 150754820096ULL;
    memory->free = memory->total;
    memory->used = 0;
    return 0;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci)
{
    struct gpu *gpu = of(device);
    if (is_lost(gpu))
        return LOST;
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", gpu->bus);
    return 0;
}

int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius)
{
    (void)sensor;
    *celsius = 41;
    return is_lost(of(device)) ? LOST : 0;
}

int nvmlDeviceGetTotalEccErrors(void *device, int type, int counter, unsigned long long *errors)
{
    struct gpu *gpu = of(device);
    if (is_lost(gpu))
        return LOST;
    *errors = type == 1 && counter == 0 ? gpu->ecc : 1000;
    return 0;
}

int nvmlDeviceGetRemappedRows(void *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed)
{
    struct gpu *gpu = of(device);
    if (is_lost(gpu))
        return LOST;
    *corrected = *uncorrected = *pending = 0;
    *failed = gpu->failed;
    return 0;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *is_up)
{
    struct gpu *gpu = of(device);
    if (is_lost(gpu) || link > 0)
        return NOT_SUPPORTED;
    *is_up = strcmp(gpu->link, "-") != 0;
    return 0;
}

int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci *pci)
{
    struct gpu *gpu = of(device);
    (void)link;
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", gpu->link);
    return 0;
}

int nvmlEventSetCreate(void **set)
{
    *set = &told_serial;
    return 0;
}

int nvmlDeviceRegisterEvents(void *device, unsigned long long mask, void *set)
{
    (void)device;
    return set == &told_serial && mask == 8 ? 0 : NOT_SUPPORTED;
}

int nvmlEventSetWait_v2(void *set, struct event *event, unsigned within_ms)
{
    (void)set;
    for (unsigned waited = 0; waited <= within_ms; waited += 100) {
        look();
        if (xid && xid_serial != told_serial) {
            told_serial = xid_serial;
            event->device = (void *)(size_t)(xid_index + 1);
            event->type = 8;
            event->data = xid;
            return 0;
        }
        usleep(100000);
    }
    return TIMEOUT;
}

/* What is measured of an accelerator, where the file says it and the accelerator answers. */
static struct measured *measured(void *device)
{
    struct gpu *gpu = of(device);
    struct measured *measured = &measures[(size_t)device - 1];
    return is_lost(gpu) || !measured->known ? 0 : measured;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, void *into)
{
    struct { unsigned version; unsigned long long total, reserved, free, used; } *memory = into;
    struct measured *now = measured(device);
    if (!now || memory->version != (sizeof *memory | 2 << 24))
        return NOT_SUPPORTED;
    memory->total = 150754820096ULL;
    memory->reserved = 1 << 29;
    memory->used = (unsigned long long)now->used_mib << 20;
    memory->free = memory->total - memory->reserved - memory->used;
    return 0;
}

int nvmlDeviceGetUtilizationRates(void *device, unsigned *rates)
{
    struct measured *now = measured(device);
    if (!now)
        return NOT_SUPPORTED;
    rates[0] = now->busy;
    rates[1] = now->memory_busy;
    return 0;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts)
{
    struct measured *now = measured(device);
    if (!now)
        return NOT_SUPPORTED;
    *milliwatts = now->milliwatts;
    return 0;
}

int nvmlDeviceGetEnforcedPowerLimit(void *device, unsigned *milliwatts)
{
    *milliwatts = 700000;
    return measured(device) ? 0 : NOT_SUPPORTED;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules)
{
    struct measured *now = measured(device);
    struct timespec time;
    if (!now)
        return NOT_SUPPORTED;
    clock_gettime(CLOCK_MONOTONIC, &time);
    *millijoules = (time.tv_sec * 1e3 + time.tv_nsec / 1e6) * now->milliwatts / 1e3;
    return 0;
}

int nvmlDeviceGetClockInfo(void *device, int clock, unsigned *mhz)
{
    struct measured *now = measured(device);
    if (!now || clock != 1)
        return NOT_SUPPORTED;
    *mhz = now->mhz;
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *all, void *into)
{
    struct { unsigned pid; unsigned long long used; unsigned instance, compute; } *process = into;
    struct measured *now = measured(device);
    if (!now || *all < 1)
        return NOT_SUPPORTED;
    *all = now->pid != 0;
    if (now->pid) {
        process->pid = now->pid;
        process->used = (unsigned long long)now->pid_mib << 20;
    }
    return 0;
}

int nvmlDeviceGetProcessUtilization(void *device, void *into, unsigned *all, unsigned long long since)
{
    struct { unsigned pid; unsigned long long at; unsigned sm, memory, encoder, decoder; } *sample = into;
    struct measured *now = measured(device);
    (void)since;
    if (!now || !now->pid || *all < 1)
        return NOT_SUPPORTED;
    *all = 1;
    sample->pid = now->pid;
    sample->at = since + 1;
    sample->sm = now->pid_busy;
    return 0;
}

int nvmlGpmQueryDeviceSupport(void *device, unsigned *support)
{
    struct measured *now = measured(device);
    if (!now || support[0] != 1)
        return NOT_SUPPORTED;
    support[1] = now->sm >= 0;
    return 0;
}

int nvmlGpmSampleAlloc(void **sample)
{
    *sample = calloc(1, sizeof(void *));
    return 0;
}

int nvmlGpmSampleGet(void *device, void *sample)
{
    *(void **)sample = device;
    return measured(device) ? 0 : LOST;
}

int nvmlGpmMetricsGet(void *into)
{
    struct metric { unsigned id; int answer; double value; char *names[3]; };
    struct { unsigned version, count; void **before, **after; struct metric metrics[]; } *asked = into;
    struct measured *now;
    if (asked->version != 1 || !*asked->before || *asked->before != *asked->after || asked->before == asked->after)
        return 2;
    now = measured(*asked->after);
    for (unsigned at = 0; now && at < asked->count; at++) {
        struct metric *metric = &asked->metrics[at];
        double known[] = {[2] = now->sm, [3] = now->occupancy, [5] = now->tensor, [10] = now->dram};
        int is_known = metric->id == 2 || metric->id == 3 || metric->id == 5 || metric->id == 10;
        metric->answer = is_known ? 0 : NOT_SUPPORTED;
        metric->value = is_known ? known[metric->id] : 0;
    }
    return now ? 0 : LOST;
}
