//! What one reading says of one GPU, whoever took it: a line of nvidia-smi, a scrape of dcgm-exporter, NVML itself. What a
//! reading does not say is none, never zero.

/// Which GPU a reading is of.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Which {
    /// What tells it apart from others of the same source: a UUID, a bus or an index.
    pub key: String,
    pub index: Option<String>,
    pub uuid: Option<String>,
    /// The model, as the driver calls it.
    pub name: Option<String>,
    /// The machine, where a source speaks of several.
    pub host: Option<String>,
    /// Who uses it, where the source knows: a pod, a job.
    pub user: Option<String>,
}

/// One reading of one GPU.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds on the source's own clock.
    pub at_s: Option<f64>,
    /// The share of time in which some kernel ran. It does not say how much of the GPU that kernel used.
    pub busy_percent: Option<f64>,
    /// The share of time in which memory was read or written. It is no share of bandwidth.
    pub memory_busy_percent: Option<f64>,
    pub memory_used_bytes: Option<f64>,
    pub memory_total_bytes: Option<f64>,
    pub power_w: Option<f64>,
    pub power_limit_w: Option<f64>,
    /// A counter that only grows.
    pub energy_j: Option<f64>,
    pub sm_clock_mhz: Option<f64>,
    pub celsius: Option<f64>,
    /// Multiprocessors with at least one warp, as a share of all of them and of the time.
    pub sm_percent: Option<f64>,
    pub occupancy_percent: Option<f64>,
    pub tensor_percent: Option<f64>,
    /// The share of the memory's bandwidth.
    pub dram_percent: Option<f64>,
}

impl Sample {
    /// Whether it says anything about what the GPU does.
    pub fn says_anything(&self) -> bool {
        let said = [
            self.busy_percent,
            self.sm_percent,
            self.dram_percent,
            self.memory_used_bytes,
            self.power_w,
            self.energy_j,
        ];
        said.iter().any(Option::is_some)
    }

    /// What makes no sense is taken as not said: shares above all of it, negative amounts, blanks of DCGM.
    pub fn checked(mut self) -> Sample {
        for share in [
            &mut self.busy_percent,
            &mut self.memory_busy_percent,
            &mut self.sm_percent,
            &mut self.occupancy_percent,
            &mut self.tensor_percent,
            &mut self.dram_percent,
        ] {
            *share = share.filter(|share| (0.0..=100.5).contains(share)).map(|share| share.min(100.0));
        }
        for amount in [
            &mut self.memory_used_bytes,
            &mut self.memory_total_bytes,
            &mut self.power_limit_w,
            &mut self.energy_j,
            &mut self.sm_clock_mhz,
        ] {
            *amount = amount.filter(|amount| (0.0..1e15).contains(amount));
        }
        // Nothing draws a hundred kilowatts; some drivers say so for a moment.
        self.power_w = self.power_w.filter(|watts| (0.0..100_000.0).contains(watts));
        self.celsius = self.celsius.filter(|celsius| (-50.0..200.0).contains(celsius));
        self.at_s = self.at_s.filter(|at| at.is_finite() && at.abs() < 1e12);
        self
    }
}
