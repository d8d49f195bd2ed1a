/* A stand-in for NVIDIA's management library on machines that have none: the program loads it as it loads the real one.
 * What it shows is read from the file that FAKE_NVML names, anew at every call, a line an accelerator:
 *     UUID NAME-WITH-UNDERSCORES BUS ok|lost ECC REMAP-FAILED LINKED-TO-BUS
 * and a line `xid NUMBER INDEX SERIAL` an error, told once for each serial; `hang` makes every call wait for ever. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 16
#define LOST 15
#define NOT_SUPPORTED 3
#define TIMEOUT 10

struct gpu { char uuid[96], name[96], bus[32], state[8], link[32]; unsigned long long ecc; unsigned failed; };
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
struct memory { unsigned long long total, free, used; };
struct event { void *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };

static struct gpu gpus[MOST];
static unsigned count;
static unsigned xid, xid_index, xid_serial, told_serial;

static void look(void)
{
    const char *path = getenv("FAKE_NVML");
    FILE *file = path ? fopen(path, "r") : 0;
    char line[512];
    count = 0;
    xid = 0;
    while (file && fgets(line, sizeof line, file)) {
        struct gpu *gpu = &gpus[count];
        if (!strncmp(line, "hang", 4))
            for (;;)
                pause();
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
