//! NVIDIA's management library (NVML), loaded when it is needed. All unsafe code about it is in this file: finding a
//! function by its name. Callers give it pointers to memory that lives for the call. A driver that lacks a function
//! answers as one that does not support it, so old drivers work as far as they go. A call may hang or crash inside the
//! driver, so only a process of its own calls these (`watch.rs`).
#![expect(unsafe_code, reason = "a foreign library has no safe form; every call is in this file")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::ptr::null_mut;

/// The names under which drivers install it.
const NAMES: [&CStr; 2] = [c"libnvidia-ml.so.1", c"libnvidia-ml.so"];
/// Errors since the driver was loaded that could not be corrected.
const UNCORRECTED: c_int = 1;
const SINCE_LOADED: c_int = 0;
/// The event mask of errors with an XID.
const XID_EVENT: c_ulonglong = 0x8;

/// An answer other than success, by NVML's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NvmlError(pub c_int);

impl NvmlError {
    pub const NOT_SUPPORTED: NvmlError = NvmlError(3);
    pub const NOT_FOUND: NvmlError = NvmlError(6);
    pub const TIMEOUT: NvmlError = NvmlError(10);
    pub const GPU_IS_LOST: NvmlError = NvmlError(15);
}

type Answer<T> = Result<T, NvmlError>;

/// An accelerator, as the library names it for as long as it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle(pub *mut c_void);

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Memory {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct PciInfo {
    bus_id_legacy: [c_char; 16],
    domain: c_uint,
    bus: c_uint,
    device: c_uint,
    device_id: c_uint,
    subsystem_id: c_uint,
    bus_id: [c_char; 32],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct EventData {
    device: *mut c_void,
    event_type: c_ulonglong,
    event_data: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct FabricInfo {
    cluster: [u8; 16],
    status: c_int,
    clique: c_uint,
    state: u8,
}

/// The state of a fabric that is ready to be used.
const FABRIC_COMPLETED: u8 = 3;

// A layout that differs from NVML's is a wrong answer at best.
const _: () = assert!(size_of::<PciInfo>() == 68 && size_of::<EventData>() == 32 && size_of::<FabricInfo>() == 28);

/// How memory of an accelerator that broke was replaced by spare memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Remapped {
    pub is_pending: bool,
    pub has_failed: bool,
}

/// The library, loaded and started.
pub(super) struct Library {
    library: *mut c_void,
    /// Errors of the accelerators that were asked for; null until then.
    events: *mut c_void,
}

impl Library {
    /// Loads the library and starts it; none where this computer has none, or its driver is not there.
    pub fn open() -> Option<Library> {
        // SAFETY: the names end with a zero byte; the library's own initialisers are the driver's business.
        let open = |name: &CStr| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let library = NAMES.into_iter().map(open).find(|library| !library.is_null())?;
        let library = Library { library, events: null_mut() };
        let init: extern "C" fn() -> c_int = library.function(c"nvmlInit_v2")?;
        (init() == 0).then_some(library)
    }

    /// A function by its name. The caller says its type.
    pub(super) fn function<F: Copy>(&self, name: &CStr) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>(), "a function pointer") };
        // SAFETY: the library stays loaded for the life of the process, and the name ends with a zero byte.
        let found = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        // SAFETY: `F` is as large as a pointer, and every caller writes the type that NVML's header gives the name.
        (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
    }

    /// Asks for one value of an accelerator that is written through a pointer.
    pub(super) fn value<T: Copy>(&self, name: &CStr, of: Handle, mut value: T) -> Answer<T> {
        let ask: extern "C" fn(*mut c_void, *mut T) -> c_int = self.function(name).ok_or(NvmlError::NOT_SUPPORTED)?;
        answered(ask(of.0, &raw mut value))?;
        Ok(value)
    }

    /// Asks for a text of an accelerator.
    fn text(&self, name: &CStr, of: Handle) -> Answer<String> {
        let ask: extern "C" fn(*mut c_void, *mut c_char, c_uint) -> c_int =
            self.function(name).ok_or(NvmlError::NOT_SUPPORTED)?;
        let mut buffer = [0 as c_char; 128];
        // One byte stays zero whatever is written.
        answered(ask(of.0, buffer.as_mut_ptr(), buffer.len() as c_uint - 1))?;
        Ok(text_of(&buffer))
    }

    pub fn count(&self) -> Answer<u32> {
        let ask: extern "C" fn(*mut c_uint) -> c_int =
            self.function(c"nvmlDeviceGetCount_v2").ok_or(NvmlError::NOT_SUPPORTED)?;
        let mut count = 0;
        answered(ask(&raw mut count))?;
        Ok(count)
    }

    pub fn handle(&self, index: u32) -> Answer<Handle> {
        let ask: extern "C" fn(c_uint, *mut *mut c_void) -> c_int =
            self.function(c"nvmlDeviceGetHandleByIndex_v2").ok_or(NvmlError::NOT_SUPPORTED)?;
        let mut handle = null_mut();
        answered(ask(index, &raw mut handle))?;
        Ok(Handle(handle))
    }

    pub fn uuid(&self, of: Handle) -> Answer<String> {
        self.text(c"nvmlDeviceGetUUID", of)
    }

    pub fn name(&self, of: Handle) -> Answer<String> {
        self.text(c"nvmlDeviceGetName", of)
    }

    pub fn memory_bytes(&self, of: Handle) -> Answer<u64> {
        self.value(c"nvmlDeviceGetMemoryInfo", of, Memory::default()).map(|memory| memory.total)
    }

    /// Its place on the bus, such as `00000000:19:00.0`.
    pub fn bus(&self, of: Handle) -> Answer<String> {
        self.value(c"nvmlDeviceGetPciInfo_v3", of, PciInfo::EMPTY).map(|info| text_of(&info.bus_id))
    }

    pub fn celsius(&self, of: Handle) -> Answer<u32> {
        let ask: extern "C" fn(*mut c_void, c_int, *mut c_uint) -> c_int =
            self.function(c"nvmlDeviceGetTemperature").ok_or(NvmlError::NOT_SUPPORTED)?;
        let mut celsius = 0;
        answered(ask(of.0, 0, &raw mut celsius))?;
        Ok(celsius)
    }

    /// Memory errors since the driver was loaded that could not be corrected.
    pub fn uncorrected(&self, of: Handle) -> Answer<u64> {
        let ask: extern "C" fn(*mut c_void, c_int, c_int, *mut c_ulonglong) -> c_int =
            self.function(c"nvmlDeviceGetTotalEccErrors").ok_or(NvmlError::NOT_SUPPORTED)?;
        let mut errors = 0;
        answered(ask(of.0, UNCORRECTED, SINCE_LOADED, &raw mut errors))?;
        Ok(errors)
    }

    pub fn remapped(&self, of: Handle) -> Answer<Remapped> {
        type Ask = extern "C" fn(*mut c_void, *mut c_uint, *mut c_uint, *mut c_uint, *mut c_uint) -> c_int;
        let ask: Ask = self.function(c"nvmlDeviceGetRemappedRows").ok_or(NvmlError::NOT_SUPPORTED)?;
        let [mut corrected, mut uncorrected, mut pending, mut failed] = [0; 4];
        answered(ask(of.0, &raw mut corrected, &raw mut uncorrected, &raw mut pending, &raw mut failed))?;
        Ok(Remapped { is_pending: pending != 0, has_failed: failed != 0 })
    }

    /// Why its clocks are lower than they could be, as bits.
    pub fn slowed_by(&self, of: Handle) -> Answer<u64> {
        self.value(c"nvmlDeviceGetCurrentClocksThrottleReasons", of, 0)
    }

    /// Whether it is cut into parts (MIG).
    pub fn is_cut(&self, of: Handle) -> Answer<bool> {
        let ask: extern "C" fn(*mut c_void, *mut c_uint, *mut c_uint) -> c_int =
            self.function(c"nvmlDeviceGetMigMode").ok_or(NvmlError::NOT_SUPPORTED)?;
        let [mut current, mut pending] = [0; 2];
        answered(ask(of.0, &raw mut current, &raw mut pending))?;
        Ok(current != 0)
    }

    /// What an NVLink of it leads to, by its place on the bus; none where the link is down.
    pub fn linked_to(&self, of: Handle, link: u32) -> Answer<Option<String>> {
        let state: extern "C" fn(*mut c_void, c_uint, *mut c_uint) -> c_int =
            self.function(c"nvmlDeviceGetNvLinkState").ok_or(NvmlError::NOT_SUPPORTED)?;
        let mut is_up = 0;
        answered(state(of.0, link, &raw mut is_up))?;
        if is_up == 0 {
            return Ok(None);
        }
        let ask: extern "C" fn(*mut c_void, c_uint, *mut PciInfo) -> c_int =
            self.function(c"nvmlDeviceGetNvLinkRemotePciInfo_v2").ok_or(NvmlError::NOT_SUPPORTED)?;
        let mut info = PciInfo::EMPTY;
        answered(ask(of.0, link, &raw mut info))?;
        Ok(Some(text_of(&info.bus_id)))
    }

    /// The NVLink fabric of several machines that it belongs to: the fabric's id, and its part of it.
    pub fn fabric(&self, of: Handle) -> Answer<([u8; 16], u32)> {
        let info = self.value(c"nvmlDeviceGetGpuFabricInfo", of, FabricInfo::default())?;
        let is_ready = info.state == FABRIC_COMPLETED && info.status == 0;
        if is_ready { Ok((info.cluster, info.clique)) } else { Err(NvmlError::NOT_SUPPORTED) }
    }

    /// From now on errors of this accelerator are events.
    pub fn watch(&mut self, of: Handle) -> Answer<()> {
        if self.events.is_null() {
            let make: extern "C" fn(*mut *mut c_void) -> c_int =
                self.function(c"nvmlEventSetCreate").ok_or(NvmlError::NOT_SUPPORTED)?;
            answered(make(&raw mut self.events))?;
        }
        let register: extern "C" fn(*mut c_void, c_ulonglong, *mut c_void) -> c_int =
            self.function(c"nvmlDeviceRegisterEvents").ok_or(NvmlError::NOT_SUPPORTED)?;
        answered(register(of.0, XID_EVENT, self.events))
    }

    /// The next error of an accelerator that is watched: which, and its XID.
    pub fn next_xid(&self, within_ms: u32) -> Answer<(Handle, u32)> {
        if self.events.is_null() {
            return Err(NvmlError::NOT_SUPPORTED);
        }
        let wait: extern "C" fn(*mut c_void, *mut EventData, c_uint) -> c_int =
            self.function(c"nvmlEventSetWait_v2").ok_or(NvmlError::NOT_SUPPORTED)?;
        let mut event =
            EventData { device: null_mut(), event_type: 0, event_data: 0, gpu_instance: 0, compute_instance: 0 };
        answered(wait(self.events, &raw mut event, within_ms))?;
        if event.event_type & XID_EVENT == 0 {
            Err(NvmlError::TIMEOUT)
        } else {
            Ok((Handle(event.device), event.event_data as u32))
        }
    }
}

impl PciInfo {
    const EMPTY: PciInfo = PciInfo {
        bus_id_legacy: [0; 16],
        domain: 0,
        bus: 0,
        device: 0,
        device_id: 0,
        subsystem_id: 0,
        bus_id: [0; 32],
    };
}

pub(super) fn answered(code: c_int) -> Answer<()> {
    if code == 0 { Ok(()) } else { Err(NvmlError(code)) }
}

/// A text that ends at its first zero byte, or with its buffer.
fn text_of(buffer: &[c_char]) -> String {
    let bytes: Vec<u8> = buffer.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
