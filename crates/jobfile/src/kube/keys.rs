//! The one table of the keys of a Job of Kubernetes, level by level: which the job is made of, which are left out and why, and without
//! which it would be another job.

use Treatment::{Left, Refused, Used};

/// What becomes of a key in a job of Windfall's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Treatment {
    /// The job is made of it.
    Used,
    Left(Reason),
    /// A job that ignored it would be another job; the text is the hint.
    Refused(&'static str),
}

/// Why keys are left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reason {
    Image,
    Volumes,
    Machines,
    Again,
    Order,
    Host,
    Probes,
    Kept,
    Labels,
}

impl Reason {
    /// As it is said after the keys.
    pub fn words(self) -> &'static str {
        match self {
            Reason::Image => {
                "programs run with what their machine has; on a Kubernetes cluster in the image that `[kubernetes]` names"
            }
            Reason::Volumes => {
                "`workdir`, `checkpoint` and `outputs` of a job file travel; a cluster's `template` may mount volumes"
            }
            Reason::Machines => "Windfall chooses machines by what the job needs and what they cost",
            Reason::Again => "a job that is interrupted begins again from what it saved last, in any case",
            Reason::Order => "the job begins as soon as Windfall finds it worth it",
            Reason::Host => "a cluster's `template` says such things of all pods",
            Reason::Probes => "a program runs until it ends",
            Reason::Kept => "it says how a cluster keeps the Job",
            Reason::Labels => "a tag's name has at most 63 characters, its value 255, and a job 16 of them",
        }
    }
}

pub(super) type Keys = &'static [(&'static str, Treatment)];

pub(super) const OBJECT: Keys =
    &[("apiVersion", Used), ("kind", Used), ("metadata", Used), ("spec", Used), ("status", Left(Reason::Kept))];

pub(super) const METADATA: Keys = &[
    ("name", Used),
    ("generateName", Used),
    ("namespace", Used),
    ("labels", Used),
    ("annotations", Left(Reason::Kept)),
    ("creationTimestamp", Left(Reason::Kept)),
    ("finalizers", Left(Reason::Kept)),
    ("generation", Left(Reason::Kept)),
    ("managedFields", Left(Reason::Kept)),
    ("ownerReferences", Left(Reason::Kept)),
    ("resourceVersion", Left(Reason::Kept)),
    ("selfLink", Left(Reason::Kept)),
    ("uid", Left(Reason::Kept)),
];

pub(super) const SPEC: Keys = &[
    ("template", Used),
    ("parallelism", Used),
    ("completions", Used),
    ("completionMode", Used),
    ("activeDeadlineSeconds", Used),
    ("backoffLimit", Left(Reason::Again)),
    ("backoffLimitPerIndex", Left(Reason::Again)),
    ("maxFailedIndexes", Left(Reason::Again)),
    ("podFailurePolicy", Left(Reason::Again)),
    ("podReplacementPolicy", Left(Reason::Again)),
    ("suspend", Left(Reason::Order)),
    ("managedBy", Left(Reason::Order)),
    ("manualSelector", Left(Reason::Kept)),
    ("selector", Left(Reason::Kept)),
    ("ttlSecondsAfterFinished", Left(Reason::Kept)),
    (
        "successPolicy",
        Refused("a gang succeeds when all of its workers have: let the program of the others end as well"),
    ),
];

pub(super) const TEMPLATE: Keys = &[("spec", Used), ("metadata", Left(Reason::Kept))];

const DEVICES: &str = "ask for accelerators as `nvidia.com/gpu` below the container's `resources`";

pub(super) const POD: Keys = &[
    ("containers", Used),
    ("restartPolicy", Used),
    ("terminationGracePeriodSeconds", Used),
    ("nodeSelector", Used),
    ("affinity", Used),
    ("activeDeadlineSeconds", Used),
    ("volumes", Left(Reason::Volumes)),
    ("imagePullSecrets", Left(Reason::Image)),
    ("nodeName", Left(Reason::Machines)),
    ("schedulerName", Left(Reason::Machines)),
    ("tolerations", Left(Reason::Machines)),
    ("topologySpreadConstraints", Left(Reason::Machines)),
    ("priority", Left(Reason::Order)),
    ("priorityClassName", Left(Reason::Order)),
    ("preemptionPolicy", Left(Reason::Order)),
    ("schedulingGates", Left(Reason::Order)),
    ("schedulingGroup", Left(Reason::Order)),
    ("automountServiceAccountToken", Left(Reason::Host)),
    ("dnsConfig", Left(Reason::Host)),
    ("dnsPolicy", Left(Reason::Host)),
    ("enableServiceLinks", Left(Reason::Host)),
    ("hostAliases", Left(Reason::Host)),
    ("hostIPC", Left(Reason::Host)),
    ("hostNetwork", Left(Reason::Host)),
    ("hostPID", Left(Reason::Host)),
    ("hostUsers", Left(Reason::Host)),
    ("hostname", Left(Reason::Host)),
    ("hostnameOverride", Left(Reason::Host)),
    ("os", Left(Reason::Host)),
    ("overhead", Left(Reason::Host)),
    ("readinessGates", Left(Reason::Probes)),
    ("runtimeClassName", Left(Reason::Host)),
    ("securityContext", Left(Reason::Host)),
    ("serviceAccount", Left(Reason::Host)),
    ("serviceAccountName", Left(Reason::Host)),
    ("setHostnameAsFQDN", Left(Reason::Host)),
    ("shareProcessNamespace", Left(Reason::Host)),
    ("subdomain", Left(Reason::Host)),
    ("initContainers", Refused("what comes before the program is `setup` in a job file, or a part of the command")),
    ("ephemeralContainers", Refused("remove it: nobody adds a container to a job")),
    ("resourceClaims", Refused(DEVICES)),
    ("resources", Refused("say it below `containers`: a job has one")),
];

pub(super) const CONTAINER: Keys = &[
    ("name", Used),
    ("command", Used),
    ("args", Used),
    ("env", Used),
    ("resources", Used),
    ("image", Left(Reason::Image)),
    ("imagePullPolicy", Left(Reason::Image)),
    ("workingDir", Left(Reason::Image)),
    ("volumeMounts", Left(Reason::Volumes)),
    ("volumeDevices", Left(Reason::Volumes)),
    ("lifecycle", Left(Reason::Probes)),
    ("livenessProbe", Left(Reason::Probes)),
    ("readinessProbe", Left(Reason::Probes)),
    ("startupProbe", Left(Reason::Probes)),
    ("restartPolicy", Left(Reason::Again)),
    ("restartPolicyRules", Left(Reason::Again)),
    ("ports", Left(Reason::Host)),
    ("resizePolicy", Left(Reason::Host)),
    ("securityContext", Left(Reason::Host)),
    ("stdin", Left(Reason::Host)),
    ("stdinOnce", Left(Reason::Host)),
    ("terminationMessagePath", Left(Reason::Host)),
    ("terminationMessagePolicy", Left(Reason::Host)),
    ("tty", Left(Reason::Host)),
    ("envFrom", Refused("write each variable out below `env`; secrets are `secrets` in a job file")),
];

pub(super) const RESOURCES: Keys = &[("requests", Used), ("limits", Used), ("claims", Refused(DEVICES))];

pub(super) const VARIABLE: Keys = &[("name", Used), ("value", Used), ("valueFrom", Used)];
