//! The one table of what a configuration file may say. The reader, the hints about unknown keys, the JSON Schema, the
//! commented example and `windfall config show` all come from it.

/// A table of the file, such as `[server]`.
pub(crate) struct Section {
    pub name: &'static str,
    pub doc: &'static str,
    pub keys: &'static [Key],
}

/// One key: its name (its flag's, with `_` for `-`), what it takes, one line for people, an example in TOML, and what
/// holds where nobody says anything.
pub(crate) struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub doc: &'static str,
    pub example: &'static str,
    pub default: &'static str,
}

/// What a key takes.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Flag,
    /// An address of this machine: IP:PORT.
    Listen,
    /// The address of a server: HOST:PORT.
    Server,
    DeadMan,
    /// A length of time, or `never`.
    TimeOrNever,
    /// The longest that a job of Slurm's may run.
    WallTime,
    Accelerators,
    /// Dollars for an hour.
    Rate,
    /// Hours from the beginning of a recording.
    Hours,
    Count {
        least: u32,
        most: u32,
    },
    Choice(fn() -> Vec<&'static str>),
    Words,
    /// One of them.
    Word,
    /// What is said of a machine.
    Labels,
    /// What a site's names stand for.
    Names,
    /// An absolute path.
    Folder,
    Store,
    NodeName,
    /// An account of this machine.
    Account,
}

const fn key(name: &'static str, kind: Kind, example: &'static str, default: &'static str, doc: &'static str) -> Key {
    Key { name, kind, doc, example, default }
}

fn markets() -> Vec<&'static str> {
    windfall_sim::embedded_names().into_iter().chain([windfall_sim::STEADY, windfall_sim::STEADY_OF_EIGHT]).collect()
}

/// What a key says that nobody has set.
pub(crate) const NONE: &str = "none";

/// Every table, in the order in which they are explained.
pub(crate) static SECTIONS: &[Section] = &[
    Section {
        name: "server",
        doc: "What `windfall up` does on this state directory; its flags count more.",
        keys: &[
            key("local", Kind::Flag, "true", "false", "Use this computer, with its accelerators."),
            key(
                "listen",
                Kind::Listen,
                "\"0.0.0.0:7443\"",
                NONE,
                "Take machines in that join over the network, on this address.",
            ),
            key(
                "dead_man",
                Kind::DeadMan,
                "\"4h\"",
                "4h",
                "How long the work on a machine that has joined goes on without a word from the server.",
            ),
            key(
                "accelerators",
                Kind::Accelerators,
                "[\"MI300X:8\"]",
                "found by themselves",
                "The accelerators of this computer, where they are not found by themselves.",
            ),
            key("rate", Kind::Rate, "2.50", "0", "What an hour of this computer costs, in dollars."),
            key(
                "store",
                Kind::Store,
                "\"postgres://windfall@db/windfall\"",
                "a file of the state directory",
                "Keep the state there.",
            ),
            key(
                "idle",
                Kind::TimeOrNever,
                "\"10m\"",
                "10m",
                "Without jobs and clients for so long the server ends itself; a service, and one that listens, stay.",
            ),
            key(
                "policy",
                Kind::Choice(windfall_core::market::names),
                "\"foresight\"",
                "foresight",
                "How jobs that name no policy choose between spot and on-demand.",
            ),
            key(
                "market",
                Kind::Choice(markets),
                "\"aws-v100-us-west-2-2023\"",
                "aws-v100-us-west-2-2023",
                "The recorded market to replay, instead of machines.",
            ),
            key("zones", Kind::Words, "[\"us-west-2c\"]", "the market's", "Sell in these zones only."),
            key(
                "from_hours",
                Kind::Hours,
                "12.5",
                "the market's",
                "Where the window begins on the recording, in hours.",
            ),
            key(
                "speed",
                Kind::Count { least: 1, most: 60 },
                "60",
                "60",
                "How many times faster than life it is replayed.",
            ),
        ],
    },
    Section {
        name: "agent",
        doc: "What `windfall agent join` does on a machine that joins; its flags count more.",
        keys: &[
            key("server", Kind::Server, "\"lab:7443\"", "the one joined", "The server to join: HOST:PORT."),
            key(
                "name",
                Kind::NodeName,
                "\"gpu-1\"",
                "what the token says",
                "The name that the token is for, to be sure.",
            ),
            key(
                "accelerators",
                Kind::Accelerators,
                "[\"MI300X:8\"]",
                "found by themselves",
                "The accelerators of this machine, where they are not found by themselves.",
            ),
            key(
                "labels",
                Kind::Labels,
                "[\"rack=r7\", \"zone=east\"]",
                NONE,
                "What to say of this machine; zone, block, rack and nvlink are its place.",
            ),
            key(
                "state",
                Kind::Folder,
                "\"/var/lib/windfall-agent\"",
                "by user",
                "The agent's state directory: where it keeps its key and its leases.",
            ),
            key(
                "as_root",
                Kind::Flag,
                "false",
                "false",
                "Whether an agent of root's runs what root has submitted as root.",
            ),
            key(
                "run_as",
                Kind::Account,
                "\"windfall\"",
                "none",
                "The account that runs what people have submitted whom this machine does not know.",
            ),
        ],
    },
    Section {
        name: "slurm",
        doc: "Lease also from the Slurm cluster that sinfo and sbatch know here; a server with `listen` does, if anything is set.",
        keys: &[
            key(
                "server",
                Kind::Server,
                "\"login-1:7443\"",
                "the address of `listen`",
                "Where compute nodes reach this server: HOST:PORT.",
            ),
            key(
                "partitions",
                Kind::Words,
                "[\"gpu\"]",
                "all that there are",
                "The partitions that jobs may be submitted to.",
            ),
            key(
                "accelerators",
                Kind::Names,
                "[\"a100=A100-80GB\"]",
                "what their names say",
                "What accelerators are called here whose name in Slurm says too little.",
            ),
            key("account", Kind::Word, "\"ml\"", "the user's own", "The account of Slurm's that is charged."),
            key("qos", Kind::Word, "\"normal\"", "the account's own", "The quality of service that is asked for."),
            key(
                "wall",
                Kind::WallTime,
                "\"24h\"",
                "24h",
                "The longest wall time that is asked for, where the partition allows so much; jobs go on after it.",
            ),
            key(
                "program",
                Kind::Folder,
                "\"/opt/windfall/bin/windfall\"",
                "where it is here",
                "This program, as compute nodes find it.",
            ),
            key(
                "scratch",
                Kind::Folder,
                "\"/scratch\"",
                "/tmp",
                "A folder of each compute node's own, for what runs there.",
            ),
            key("rate", Kind::Rate, "2.50", "0", "What an hour of an accelerator costs, in dollars."),
        ],
    },
    Section {
        name: "kubernetes",
        doc: "Lease also from a Kubernetes cluster, by its kubeconfig or as a pod of it; a server with `listen` does, if anything is set.",
        keys: &[
            key(
                "server",
                Kind::Server,
                "\"10.0.0.5:7443\"",
                "the address of `listen`",
                "Where pods reach this server: HOST:PORT.",
            ),
            key("image", Kind::Word, "\"pytorch:2.9\"", NONE, "The image that programs run in; it must be said."),
            key(
                "agent_image",
                Kind::Word,
                "\"windfall:0.1\"",
                "image",
                "The image that has this program as `windfall`; it is copied from there.",
            ),
            key(
                "program",
                Kind::Folder,
                "\"/usr/local/bin/windfall\"",
                "copied from agent_image",
                "This program in the image of programs, where that has it.",
            ),
            key(
                "kubeconfig",
                Kind::Folder,
                "\"/etc/windfall/kubeconfig\"",
                "KUBECONFIG, or the usual one, or the pod's own account",
                "The file that says where the cluster is.",
            ),
            key("context", Kind::Word, "\"lab\"", "the current one", "Which cluster and user of the kubeconfig."),
            key("namespace", Kind::Word, "\"ml\"", "the context's", "Where Jobs are made."),
            key(
                "template",
                Kind::Folder,
                "\"/etc/windfall/pod.yaml\"",
                NONE,
                "A Pod's or a PodTemplate's YAML that everything else is added to.",
            ),
            key("priority_class", Kind::Word, "\"research\"", "the cluster's", "The PriorityClass of pods."),
            key(
                "elastic",
                Kind::Labels,
                "[\"cloud.google.com/gke-nodepool=gpus\"]",
                "Karpenter's",
                "Labels of nodes of which more come when pods wait for them.",
            ),
            key(
                "accelerators",
                Kind::Names,
                "[\"NVIDIA-A100-SXM4-80GB=A100-80GB\"]",
                "what their names say",
                "What accelerators are called here whose label says too little.",
            ),
            key("rate", Kind::Rate, "2.50", "0", "What an hour of an accelerator costs, in dollars."),
            key("spot_rate", Kind::Rate, "0.80", "rate", "The same on nodes that may be taken away."),
        ],
    },
];

/// What the keys of `[server]` say of each other.
pub(crate) enum Rule {
    /// One counts only where the other is set.
    Needs(&'static str, &'static str),
    /// One world is recorded, the other is real.
    NotWith(&'static str, &'static str),
}

pub(crate) static RULES: &[Rule] = &[
    Rule::Needs("dead_man", "listen"),
    Rule::Needs("accelerators", "local"),
    Rule::Needs("rate", "local"),
    Rule::NotWith("local", "market"),
    Rule::NotWith("local", "zones"),
    Rule::NotWith("local", "from_hours"),
    Rule::NotWith("local", "speed"),
    Rule::NotWith("listen", "market"),
    Rule::NotWith("listen", "zones"),
    Rule::NotWith("listen", "from_hours"),
    Rule::NotWith("listen", "speed"),
];

/// The table of that name.
pub(crate) fn section(name: &str) -> Option<&'static Section> {
    SECTIONS.iter().find(|section| section.name == name)
}

impl Section {
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }
}

impl Kind {
    /// What it takes, in words, for messages and for the schema.
    pub fn words(self) -> String {
        let words = match self {
            Kind::Flag => "true or false",
            Kind::Listen => "an address of this machine with a port, such as \"0.0.0.0:7443\"",
            Kind::Server => "a host and a port, such as \"lab:7443\"",
            Kind::DeadMan => "a length of time from 5 s to 30 days, such as \"4h\"",
            Kind::WallTime => "a length of time from 15 minutes to a year, such as \"24h\"",
            Kind::TimeOrNever => "a length of time such as \"10m\", or \"never\"",
            Kind::Accelerators => "a list of names with counts, such as [\"MI300X:8\"]",
            Kind::Rate => "dollars, such as 2.50",
            Kind::Hours => "hours from its beginning, such as 12.5",
            Kind::Count { least, most } => return format!("a whole number from {least} to {most}"),
            Kind::Choice(choices) => return format!("one of {}", choices().join(", ")),
            Kind::Labels => "a list of labels, such as [\"rack=r7\"]",
            Kind::Names => "a list of names and what they stand for, such as [\"a100=A100-80GB\"]",
            Kind::Word => "one word, such as \"ml\"",
            Kind::Words => "a list of words, such as [\"us-west-2c\"]",
            Kind::Folder => "a path from the root, such as \"/var/lib/windfall-agent\"",
            Kind::Store => "an address such as \"postgres://windfall@db/windfall\"",
            Kind::Account => "the name of an account of this machine, such as \"windfall\"",
            Kind::NodeName => "letters, digits, dots and dashes, at most 63, such as \"gpu-1\"",
        };
        words.to_owned()
    }
}
