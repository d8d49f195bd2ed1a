//! Which machines a Job asks for: accelerators, processors and memory of its container, and the kinds that its pods' node selectors and
//! affinities name.

use super::keys::{RESOURCES, Reason};
use super::reader::{Object, Reader};
use crate::error::{Class, Problem, Quoted};
use crate::node::Node;
use crate::sbatch::known_accelerator;
use std::ops::Range;
use windfall_catalog::Catalog;
use windfall_core::kubernetes::{GPU, PRODUCTS, thousandths};
use windfall_core::pool::Shape;
use windfall_core::spec::Ask;

/// Resources that are accelerators which cannot be asked for here, by how their names begin, and what to do instead.
const OTHERS: [(&str, &str); 9] = [
    ("nvidia.com/mig-", "parts of an accelerator are no offers yet: ask for a whole one, `nvidia.com/gpu: 1`"),
    ("nvidia.com/gpu.shared", "ask for a whole one, `nvidia.com/gpu: 1`"),
    ("nvidia.com/", "ask for `nvidia.com/gpu`"),
    ("amd.com/gpu", "a job file asks for it by name: accelerators: MI300X:8"),
    ("gpu.intel.com/", "a job file asks for it by name"),
    ("google.com/tpu", "a job file asks for it by name: accelerators: v5litepod-8"),
    ("habana.ai/", "a job file asks for it by name: accelerators: Gaudi HL-205:8"),
    ("aws.amazon.com/neuron", "a job file asks for it by name: accelerators: Trainium:1"),
    ("cloud-tpus.google.com/", "a job file asks for it by name"),
];
/// More than any machine has.
const MOST_ACCELERATORS: u64 = 1_024;

/// What each worker asks for.
pub(super) struct Machines {
    pub resources: Vec<Ask>,
    /// So many of any kind, where no kind is named.
    pub any_gpus: Option<u32>,
    pub host: Shape,
}

/// An amount of one resource, and where it stands.
struct Amount<'n> {
    thousandths: u128,
    text: &'n str,
    span: Range<usize>,
}

impl Reader<'_, '_> {
    pub fn machines(&mut self, pod: &Object, container: &Object) -> Machines {
        let (mut requests, mut limits) = (Vec::new(), Vec::new());
        if let Some(node) = container.get("resources") {
            let resources = self.object(node, "resources", RESOURCES);
            requests = resources.get("requests").map(|node| self.amounts(node, "requests")).unwrap_or_default();
            limits = resources.get("limits").map(|node| self.amounts(node, "limits")).unwrap_or_default();
        }
        let count = self.accelerators(&requests, &limits);
        let of = |all: &[(&str, Amount<'_>)], name: &str| {
            all.iter().find(|(known, _)| *known == name).map(|(_, amount)| amount.thousandths)
        };
        // What a pod may use at most counts where it does not say what it needs, as Kubernetes has it.
        let needs = |name: &str| of(&requests, name).or(of(&limits, name)).unwrap_or(0);
        let within = |amount: u128| u64::try_from(amount).unwrap_or(u64::MAX);
        let host =
            Shape { cpu_millis: within(needs("cpu")), memory_bytes: within(needs("memory") / 1_000), accelerators: 0 };
        let kinds = self.kinds(pod, count > 0);
        let (resources, any_gpus) = match (count, kinds.is_empty()) {
            (0, _) => (Vec::new(), None),
            (count, true) => {
                let what = if count == 1 {
                    "any GPU of NVIDIA's".to_owned()
                } else {
                    format!("any {count} GPUs of NVIDIA's that are alike")
                };
                self.notes.push(format!(
                    "the Job names no kind of accelerator: {what} will do for each worker (a nodeSelector nvidia.com/gpu.product names one)"
                ));
                (Vec::new(), Some(count))
            }
            (count, false) => (kinds.into_iter().map(|kind| Ask::of(kind, count)).collect(), None),
        };
        Machines { resources, any_gpus, host }
    }

    fn amounts<'n>(&mut self, node: &'n Node, name: &str) -> Vec<(&'n str, Amount<'n>)> {
        let mut all = Vec::new();
        for (key, value) in self.entries(node, name) {
            let Some(resource) = key.text() else { continue };
            let Some(text) = self.word(value, resource) else { continue };
            if let Some((_, hint)) = OTHERS.iter().find(|(begin, _)| resource != GPU && resource.starts_with(begin)) {
                let problem = Problem::new(Class::Unsupported, format!("{} cannot be honoured", Quoted(resource)));
                self.wrong(&key.span, problem.expected("whole accelerators of NVIDIA's").hint(*hint));
                continue;
            }
            match thousandths(text) {
                Some(thousandths) => all.push((resource, Amount { thousandths, text, span: value.span.clone() })),
                None => {
                    let problem = Problem::new(Class::BadValue, format!("{resource}: {} is no amount", Quoted(text)));
                    self.wrong(&value.span, problem.expected("an amount, such as 8, 500m or 16Gi"));
                }
            }
            if ![GPU, "cpu", "memory"].contains(&resource) {
                self.leave(Reason::Machines, resource, key.span.start);
            }
        }
        all
    }

    /// How many accelerators a worker has.
    fn accelerators(&mut self, requests: &[(&str, Amount<'_>)], limits: &[(&str, Amount<'_>)]) -> u32 {
        let named = |all: &[(&str, Amount<'_>)]| {
            let found = all.iter().find(|(name, _)| *name == GPU).map(|(_, amount)| amount);
            found.map(|amount| (amount.thousandths, amount.text.to_owned(), amount.span.clone()))
        };
        let (asked, limit) = (named(requests), named(limits));
        if let (Some((asked, ..)), Some((limit, text, span))) = (&asked, &limit)
            && asked != limit
        {
            let message = format!("{GPU}: the limit {} is not what is requested", Quoted(text));
            self.wrong(
                span,
                Problem::new(Class::BadValue, message).expected("the same in both").hint("remove it from `requests`"),
            );
        }
        let Some((amount, text, span)) = limit.or(asked) else { return 0 };
        let count =
            u64::try_from(amount / 1_000).ok().filter(|count| amount % 1_000 == 0 && *count <= MOST_ACCELERATORS);
        if count.is_none() {
            let problem = Problem::new(Class::BadValue, format!("{GPU}: {} accelerators of a pod", Quoted(&text)));
            self.wrong(&span, problem.expected("a whole number of at most 1024"));
        }
        count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0)
    }

    /// The kinds of accelerators that pods may be beside. What else is said of nodes is left out.
    fn kinds(&mut self, pod: &Object, has_accelerators: bool) -> Vec<String> {
        let mut names: Vec<(String, Range<usize>)> = Vec::new();
        if let Some(node) = pod.get("nodeSelector") {
            for (key, value) in self.entries(node, "nodeSelector") {
                let label = key.text().unwrap_or_default();
                match value.text().filter(|_| has_accelerators && PRODUCTS.contains(&label)) {
                    Some(name) => names.push((name.to_owned(), value.span.clone())),
                    None => self.leave(Reason::Machines, label, key.span.start),
                }
            }
        }
        if let Some(node) = pod.get("affinity") {
            self.affinities(node, has_accelerators && names.is_empty(), &mut names);
        }
        let catalog = Catalog::embedded();
        let mut kinds: Vec<String> = Vec::new();
        for (name, span) in names {
            let is_part = name.contains("MIG") || name.contains("SHARED");
            match known_accelerator(&catalog, &name).filter(|_| !is_part) {
                Some(kind) if kinds.contains(&kind) => {}
                Some(kind) => kinds.push(kind),
                None => {
                    let problem =
                        Problem::new(Class::BadValue, format!("{} is no accelerator that is known", Quoted(&name)));
                    let hint = "`windfall offers` lists them; in a job file any name can be asked for";
                    self.wrong(&span, problem.expected("a product such as NVIDIA-H100-80GB-HBM3").hint(hint));
                }
            }
        }
        kinds
    }

    /// What of affinities names kinds of accelerators.
    fn affinities(&mut self, node: &Node, counts: bool, names: &mut Vec<(String, Range<usize>)>) {
        const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
        for (key, value) in self.entries(node, "affinity") {
            let kind = key.text().unwrap_or_default();
            if kind != "nodeAffinity" {
                self.leave(Reason::Machines, kind, key.span.start);
                continue;
            }
            for (key, value) in self.entries(value, kind) {
                let when = key.text().unwrap_or_default();
                if when != REQUIRED {
                    self.leave(Reason::Machines, when, key.span.start);
                    continue;
                }
                for (_, terms) in self.entries(value, when) {
                    for term in self.list(terms, "nodeSelectorTerms") {
                        for (key, rules) in self.entries(term, "a term") {
                            if key.text() != Some("matchExpressions") {
                                self.leave(Reason::Machines, key.text().unwrap_or_default(), key.span.start);
                                continue;
                            }
                            self.list(rules, "matchExpressions").iter().for_each(|rule| self.rule(rule, counts, names));
                        }
                    }
                }
            }
        }
    }

    fn rule(&mut self, rule: &Node, counts: bool, names: &mut Vec<(String, Range<usize>)>) {
        let entries = self.entries(rule, "a rule");
        let of = |name: &str| entries.iter().find(|(key, _)| key.text() == Some(name)).map(|(_, value)| *value);
        let label = of("key").and_then(Node::text).unwrap_or_default();
        let is_kind = counts && PRODUCTS.contains(&label) && of("operator").and_then(Node::text) == Some("In");
        match of("values").filter(|_| is_kind) {
            Some(values) => {
                let listed = self.list(values, "values").iter();
                names.extend(listed.filter_map(|value| Some((value.text()?.to_owned(), value.span.clone()))));
            }
            None => self.leave(Reason::Machines, label, rule.span.start),
        }
    }
}
