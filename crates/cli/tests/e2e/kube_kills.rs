//! Kills anything at any moment of a server and of a real Kubernetes with jobs in real containers, and carries on. Seeded: the seed and
//! every kill are printed.
//!
//! `WINDFALL_KILLS` says how many kill points (8), `WINDFALL_SEED` which.

use super::judge::{Judge, Scene, kill_at_random};
use super::kills::Dice;
use super::kube::{Cluster, IMAGE};
use super::kubernetes::template;
use super::nodes::free_port;
use super::processes::{self, Process, Role};
use super::testbed::{Testbed, eventually, is_root, one_at_a_time};
use super::witness::{self, Witness, check_ledger};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Victim {
    Server,
    /// The first process of a rank's container.
    Pilot(usize),
    Guard(usize),
    Agent(usize),
    Worker(usize),
    /// Not killed by us: its pod is deleted, and nobody waits until it is gone.
    Forced(usize),
    /// Not killed by us: its pod is evicted.
    Evicted(usize),
    Kubelet,
    ApiServer,
}

struct Pods {
    judge: Judge,
    cluster: Cluster,
}

impl Pods {
    fn new(testbed: Testbed, cluster: Cluster) -> Pods {
        let (port, work) = (free_port(), testbed.work.clone());
        let journals = tempfile::Builder::new().prefix("windfall-journals-").tempdir().unwrap();
        testbed.write("witness.py", witness::PROGRAM);
        let template = testbed.write("pod.yaml", &template(&[&work, journals.path()]));
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:{port}\"\n[kubernetes]\nkubeconfig = \"{}\"\nimage = \"{IMAGE}\"\n\
             program = \"/opt/windfall/windfall\"\ntemplate = \"{}\"\nrate = 3.6\n",
            cluster.kubeconfig(),
            template.display(),
        );
        let config = testbed.write("config.toml", &config);
        testbed.run(&["up", "--config", config.to_str().unwrap()]).ends_with(0);
        let one = "resources: { accelerators: H100:1 }\n";
        let two = "resources: { accelerators: H100:2 }\ncheckpoint: { settle: 1s }\n";
        let submit = |named, asks, ranks| Witness::submit_far(&testbed, journals.path(), named, asks, ranks);
        let mut jobs = submit(("plain", "far"), one, 1);
        jobs.extend(submit(("daemon", "far-daemon"), one, 1));
        jobs.extend(submit(("gang", "far-gang-daemon"), two, 2));
        Pods { judge: Judge { testbed, jobs, journals }, cluster }
    }

    /// What runs in the container of a witness, if it runs.
    fn container_of(&self, index: usize) -> Vec<Process> {
        let witness = &self.judge.jobs[index];
        let program = witness.alive().and_then(|run| witness.process(&run));
        program.map(processes::beside).unwrap_or_default()
    }

    fn with_role(&self, index: usize, role: Role) -> Vec<i32> {
        let all = self.container_of(index).into_iter();
        all.filter(|process| process.role == role).map(|process| process.pid).collect()
    }

    /// The pod of a witness: its Job is called as the lease's group, and its number is the lease's slot.
    fn pod_of(&self, index: usize) -> Option<String> {
        let lease = self.container_of(index).into_iter().find_map(|process| process.lease)?;
        let is_its = |pod: &&Value| {
            let group = pod["metadata"]["labels"]["windfall.dev/group"].as_str().unwrap_or_default();
            let slot = pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].as_str();
            lease == group && slot == Some("0") || slot.is_some_and(|slot| lease == format!("{group}-{slot}"))
        };
        let pods = self.cluster.objects("pods");
        pods.iter().find(is_its).and_then(|pod| Some(pod["metadata"]["name"].as_str()?.to_owned()))
    }

    /// Lets every job end and looks at what is left.
    fn end(self) {
        self.judge.end();
        for kind in ["jobs", "pods", "secrets"] {
            eventually(&format!("no {kind} are left"), || self.cluster.ours(kind).is_empty());
        }
        let testbed = &self.judge.testbed;
        let strays = testbed.run(&["engines", "sweep", "--dry-run", "--json"]).ends_with(0).json();
        assert_eq!(strays, serde_json::json!([]));
        testbed.forgets_leases();
        testbed.run(&["down"]).ends_with(0);
        check_ledger(testbed);
        testbed.leaves_nothing();
        let in_containers = || processes::with_word(&self.judge.journals.path().display().to_string());
        eventually("nothing of any program runs", || in_containers().is_empty());
    }
}

impl Scene for Pods {
    type Victim = Victim;

    fn judge(&self) -> &Judge {
        &self.judge
    }

    fn draw(dice: &mut Dice) -> Victim {
        let rank = dice.below(4) as usize;
        match dice.below(14) {
            0 | 1 => Victim::Server,
            2 | 3 => Victim::Pilot(rank),
            4 | 5 => Victim::Guard(rank),
            6 | 7 => Victim::Agent(rank),
            8 | 9 => Victim::Worker(rank),
            10 => Victim::Forced(rank),
            11 => Victim::Evicted(rank),
            12 => Victim::Kubelet,
            _ => Victim::ApiServer,
        }
    }

    fn strike(&mut self, victims: &[Victim]) -> bool {
        let found: Vec<Vec<i32>> = victims
            .iter()
            .map(|victim| match *victim {
                Victim::Server => self.judge.server(),
                Victim::Pilot(index) => self.with_role(index, Role::Node),
                Victim::Guard(index) => self.with_role(index, Role::Guard),
                Victim::Agent(index) => self.with_role(index, Role::Agent),
                // A pod that is taken away again and again before anything was saved gets nowhere either.
                Victim::Worker(index) | Victim::Forced(index) | Victim::Evicted(index) => self.judge.worker(index),
                Victim::Kubelet => self.cluster.kubelet().into_iter().collect(),
                Victim::ApiServer => vec![0],
            })
            .collect();
        let pods: Vec<Option<String>> = victims
            .iter()
            .map(|victim| match *victim {
                Victim::Forced(index) | Victim::Evicted(index) => self.pod_of(index),
                _ => Some(String::new()),
            })
            .collect();
        if found.iter().any(Vec::is_empty) || pods.iter().any(Option::is_none) {
            return false;
        }
        // Whoever asks the API server asks before that is gone.
        let mut order: Vec<usize> = (0..victims.len()).collect();
        order.sort_by_key(|at| victims[*at] == Victim::ApiServer);
        for at in order {
            let pod = pods[at].as_deref().unwrap_or_default();
            match victims[at] {
                Victim::ApiServer => self.cluster.kill("apiserver"),
                Victim::Forced(_) => {
                    self.cluster.kubectl(&["delete", "pod", pod, "--grace-period=0", "--force", "--wait=false"]);
                }
                Victim::Evicted(_) => _ = self.cluster.try_to_evict(pod),
                _ => found[at].iter().for_each(|pid| processes::signal(*pid, Signal::KILL)),
            }
        }
        true
    }

    fn mend(&mut self, victims: &[Victim], dice: &mut Dice) -> u64 {
        std::thread::sleep(Duration::from_millis(dice.below(2_500)));
        let mut successors = 0;
        if victims.contains(&Victim::ApiServer) {
            self.cluster.begin_again("apiserver");
        }
        for victim in victims {
            match victim {
                Victim::Kubelet => self.cluster.begin_kubelet_again(),
                Victim::Server => {
                    successors += u64::from(dice.below(3) == 0 && self.judge.strike_successor(dice));
                    self.judge.testbed.run(&["up"]).ends_with(0);
                }
                _ => {}
            }
        }
        successors
    }
}

#[test]
fn killing_anything_of_a_server_and_of_a_kubernetes_loses_nothing() {
    if !is_root("a Kubernetes cluster") {
        return;
    }
    let (testbed, _alone) = (Testbed::bare(), one_at_a_time());
    let Some(cluster) = Cluster::start(&testbed, "killing_anything_of_a_kubernetes") else { return };
    let mut scene = Pods::new(testbed, cluster);
    kill_at_random(&mut scene, 8);
    scene.end();
}
