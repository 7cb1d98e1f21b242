#!/usr/bin/env python3
"""A counter of a GPU, by NVML.

    device_counter.py energy [GPU]    joules since its driver was loaded
    device_counter.py memory [GPU]    MiB in use, by anyone

GPU is NVML's number of it, 0 unless told otherwise. Prints the number; nothing, with status 1, where NVML does not tell.
"""
import ctypes
import sys


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def count(what, gpu):
    nvml, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
    if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(gpu, ctypes.byref(device)):
        return None
    if what == "energy":
        millijoules = ctypes.c_ulonglong()
        failed = nvml.nvmlDeviceGetTotalEnergyConsumption(device, ctypes.byref(millijoules))
        return None if failed else millijoules.value / 1e3
    memory = Memory()
    return None if nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) else memory.used / 1048576


def main():
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in ("energy", "memory"):
        sys.exit(__doc__)
    try:
        found = count(sys.argv[1], int(sys.argv[2]) if len(sys.argv) == 3 else 0)
    except OSError:
        found = None
    if found is None:
        sys.exit(1)
    print(f"{found:.3f}")


if __name__ == "__main__":
    main()
