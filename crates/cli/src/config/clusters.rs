//! What a configuration file says of clusters that others run, as `serve` takes it: Slurm's and Kubernetes'. What runs there joins the
//! server over the network, so both need one that listens.

use super::read::{ConfigFile, Value};
use super::settings::{Setting, Wrong, of_kubernetes, of_server, of_slurm, with_file};
use super::values;
use crate::args::UpArgs;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use windfall_core::NanoUsd;
use windfall_exec::{KubernetesSettings, SlurmSettings};
use windfall_jobfile::{Class, Problem};

/// The wall time that is asked for where nobody says another.
const USUAL_WALL_MINUTES: i64 = 24 * 60;

/// The flags, and what the environment and the file say where no flag does, checked as a whole.
pub(crate) fn whole(args: &UpArgs, file: Option<&ConfigFile>) -> Result<UpArgs, Wrong> {
    let mut whole = with_file(args, &of_server(args, file)?);
    if whole.slurm.is_none() {
        let slurm = slurm_with(&of_slurm(file), whole.listen, file)?;
        whole.slurm = slurm.map(|slurm| serde_json::to_string(&slurm).expect("settings are text"));
    }
    if whole.kubernetes.is_none() {
        let kubernetes = kubernetes_with(&of_kubernetes(file), whole.listen, file)?;
        whole.kubernetes = kubernetes.map(|said| serde_json::to_string(&said).expect("settings are text"));
    }
    Ok(whole)
}

/// What a table says, where it says anything.
struct Table<'a> {
    name: &'static str,
    all: &'a [Setting],
    /// The first key that is set, where mistakes of the whole are shown.
    first: &'static str,
    file: &'a ConfigFile,
}

impl<'a> Table<'a> {
    fn of(name: &'static str, all: &'a [Setting], file: Option<&'a ConfigFile>) -> Option<Table<'a>> {
        let first = all.iter().find(|setting| setting.is_set())?.key.name;
        Some(Table { name, all, first, file: file? })
    }

    fn wrong(&self, message: &str, hint: &str) -> Wrong {
        let span = self.file.get(self.name, self.first).map_or(0..0, |given| given.span.clone());
        let problem = Problem::new(Class::BadValue, format!("[{}] {message}", self.name)).hint(hint);
        Wrong::File(self.file.error(vec![(span, problem)]))
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.all.iter().find(|setting| setting.key.name == key)?.value.as_ref()
    }

    fn text(&self, key: &str) -> Option<String> {
        match self.value(key) {
            Some(Value::Text(text)) => Some(text.clone()),
            _ => None,
        }
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        self.text(key).map(PathBuf::from)
    }

    fn list(&self, key: &str) -> Vec<String> {
        match self.value(key) {
            Some(Value::List(list)) => list.clone(),
            _ => Vec::new(),
        }
    }

    /// What names stand for.
    fn names(&self, key: &str) -> BTreeMap<String, String> {
        let owned = |(name, stands_for): (&str, &str)| (name.to_owned(), stands_for.to_owned());
        self.list(key).iter().filter_map(|name| name.split_once('=')).map(owned).collect()
    }

    fn rate(&self, key: &str) -> Option<NanoUsd> {
        match self.value(key) {
            Some(Value::Number(dollars)) => Some(values::nano_usd(*dollars)),
            _ => None,
        }
    }

    /// Where what runs there reaches this server.
    fn server(&self, listen: Option<SocketAddr>, who: &str) -> Result<String, Wrong> {
        let Some(listen) = listen else {
            let message = format!("counts only with `listen`: what runs on {who} joins the server over the network");
            return Err(self.wrong(&message, "set listen = \"0.0.0.0:7443\" below [server]"));
        };
        let everywhere = ["0.0.0.0", "[::]"];
        let is_somewhere = |server: &String| !everywhere.iter().any(|all| server.starts_with(&format!("{all}:")));
        match self.text("server").and_then(|text| values::server_address(&text)).filter(is_somewhere) {
            Some(server) => Ok(server),
            None if listen.ip().is_unspecified() || listen.port() == 0 => {
                let hint = format!("add server = \"HOST:PORT\", the name by which {who} reach this machine");
                Err(self.wrong(&format!("does not say where {who} reach this server"), &hint))
            }
            None => Ok(listen.to_string()),
        }
    }
}

/// The settings of a Slurm cluster, where the file says anything of one.
fn slurm_with(
    all: &[Setting],
    listen: Option<SocketAddr>,
    file: Option<&ConfigFile>,
) -> Result<Option<SlurmSettings>, Wrong> {
    let Some(table) = Table::of("slurm", all, file) else { return Ok(None) };
    let server = table.server(listen, "compute nodes")?;
    let is_text = |path: &PathBuf| path.to_str().is_some();
    let own = || std::env::current_exe().ok().filter(is_text).unwrap_or_else(|| PathBuf::from("windfall"));
    Ok(Some(SlurmSettings {
        server,
        program: table.path("program").unwrap_or_else(own),
        scratch: table.path("scratch").unwrap_or_else(|| "/tmp".into()),
        partitions: table.list("partitions"),
        accelerators: table.names("accelerators"),
        account: table.text("account"),
        qos: table.text("qos"),
        wall_minutes: table.text("wall").and_then(|text| values::wall_minutes(&text)).unwrap_or(USUAL_WALL_MINUTES),
        rate: table.rate("rate").unwrap_or(NanoUsd(0)),
    }))
}

/// The settings of a Kubernetes cluster, where the file says anything of one.
fn kubernetes_with(
    all: &[Setting],
    listen: Option<SocketAddr>,
    file: Option<&ConfigFile>,
) -> Result<Option<KubernetesSettings>, Wrong> {
    let Some(table) = Table::of("kubernetes", all, file) else { return Ok(None) };
    let server = table.server(listen, "pods")?;
    let Some(image) = table.text("image") else {
        return Err(table.wrong("does not say which image programs run in", "add image = \"NAME:TAG\""));
    };
    Ok(Some(KubernetesSettings {
        server,
        kubeconfig: table.path("kubeconfig"),
        context: table.text("context"),
        namespace: table.text("namespace"),
        image,
        agent_image: table.text("agent_image"),
        program: table.path("program"),
        template: table.path("template"),
        priority_class: table.text("priority_class"),
        elastic: table.list("elastic"),
        accelerators: table.names("accelerators"),
        rate: table.rate("rate").unwrap_or(NanoUsd(0)),
        spot_rate: table.rate("spot_rate"),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::read::parse;
    use std::path::Path;

    fn file(text: &str) -> ConfigFile {
        parse(text, Path::new("config.toml")).unwrap_or_else(|error| panic!("{error}"))
    }

    fn said<T>(said: Result<Option<T>, Wrong>) -> String {
        match said {
            Err(Wrong::File(error)) => error.to_string(),
            _ => panic!("it is refused"),
        }
    }

    #[test]
    fn a_cluster_is_used_as_the_file_says_and_only_by_a_server_that_listens() {
        let listen = |text: &str| text.parse().ok();
        let settings = |text: &str, at: &str| {
            let file = file(text);
            slurm_with(&of_slurm(Some(&file)), listen(at), Some(&file))
        };
        assert!(matches!(settings("[server]\nlocal = true\n", ""), Ok(None)));
        let text = "[slurm]\npartitions = [\"gpu\", \"long\"]\naccelerators = [\"a100=A100-80GB\"]\nwall = \"2h\"\nrate = 2.5\naccount = \"ml\"\n";
        assert!(said(settings(text, "")).starts_with("config.toml:2:1: [slurm] counts only with `listen`"));
        assert!(said(settings(text, "0.0.0.0:7443")).contains("does not say where compute nodes reach"));
        let Ok(Some(slurm)) = settings(text, "10.0.0.5:7443") else { panic!("it is right") };
        assert_eq!(
            (slurm.server.as_str(), slurm.wall_minutes, slurm.rate),
            ("10.0.0.5:7443", 120, NanoUsd(2_500_000_000))
        );
        assert_eq!(slurm.accelerators, [("a100".to_owned(), "A100-80GB".to_owned())].into());
        assert_eq!(
            (slurm.partitions, slurm.account.as_deref(), slurm.qos),
            (vec!["gpu".to_owned(), "long".to_owned()], Some("ml"), None)
        );
    }

    #[test]
    fn a_kubernetes_cluster_needs_an_image_and_a_server_that_pods_reach() {
        let settings = |text: &str, at: &str| {
            let file = file(text);
            kubernetes_with(&of_kubernetes(Some(&file)), at.parse().ok(), Some(&file))
        };
        assert!(matches!(settings("[server]\nlocal = true\n", ""), Ok(None)));
        let text = "[kubernetes]\nimage = \"box:1\"\ncontext = \"lab\"\nelastic = [\"pool=gpus\"]\nspot_rate = 0.5\n";
        assert!(said(settings(text, "")).starts_with("config.toml:2:1: [kubernetes] counts only with `listen`"));
        assert!(said(settings(text, "0.0.0.0:7443")).contains("does not say where pods reach this server"));
        let without = said(settings("[kubernetes]\nnamespace = \"ml\"\n", "10.0.0.5:7443"));
        assert!(without.contains("which image programs run in"), "{without}");
        let Ok(Some(settings)) = settings(text, "10.0.0.5:7443") else { panic!("it is right") };
        assert_eq!((settings.server.as_str(), settings.image.as_str()), ("10.0.0.5:7443", "box:1"));
        assert_eq!((settings.spot_rate, settings.rate), (Some(NanoUsd(500_000_000)), NanoUsd(0)));
        assert_eq!((settings.elastic, settings.context.as_deref()), (vec!["pool=gpus".to_owned()], Some("lab")));
    }
}
