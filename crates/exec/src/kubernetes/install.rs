//! What a cluster needs so that a server runs on it, or beside it with an account of it: objects to be applied, with the rights that
//! the server uses and no others.

use super::rights;
use serde_json::{Value, json};

/// Where the server keeps what it must not lose.
const STATE: &str = "/var/lib/windfall";
const CONFIG: &str = "/etc/windfall";
/// Whoever it runs as in its pod: nobody who has anything on a node.
const USER: u32 = 64_770;

/// What is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesSetup {
    /// What its objects are called.
    pub name: String,
    /// Where the server is.
    pub namespace: String,
    /// Where Jobs are made.
    pub jobs_in: String,
    /// The server in the cluster; none for an account that a server elsewhere signs in with.
    pub server: Option<ServerInPod>,
}

/// A server that runs in a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerInPod {
    /// Has this program as `windfall`.
    pub image: String,
    /// What programs of jobs run in.
    pub program_image: String,
    /// Where pods reach it.
    pub port: u16,
    /// How much room it has for its log, and for checkpoints where no other store is named.
    pub storage: String,
}

impl KubernetesSetup {
    /// Its objects, in the order in which they are applied.
    pub fn objects(&self) -> Vec<Value> {
        let mut namespaces = vec![self.namespace.as_str(), self.jobs_in.as_str()];
        namespaces.dedup();
        let namespaces = namespaces.into_iter().filter(|name| *name != "default");
        let namespace = |name: &str| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": name } });
        let mut objects: Vec<Value> = namespaces.map(namespace).collect();
        objects.extend(self.account());
        if let Some(server) = &self.server {
            objects.extend(self.server(server));
        }
        objects
    }

    fn metadata(&self, name: &str, namespace: Option<&str>) -> Value {
        let mut metadata = json!({
            "name": name,
            "labels": { "app.kubernetes.io/name": "windfall", "app.kubernetes.io/instance": self.name },
        });
        if let Some(namespace) = namespace {
            metadata["namespace"] = json!(namespace);
        }
        metadata
    }

    /// What is of no namespace carries the server's in its name: two servers do not share it.
    fn name_everywhere(&self) -> String {
        format!("{}-{}", self.namespace, self.name)
    }

    /// The service account, and what it may do.
    fn account(&self) -> [Value; 5] {
        const RBAC: &str = "rbac.authorization.k8s.io";
        let version = format!("{RBAC}/v1");
        let role = |kind: &str, metadata: Value| json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "rules": rights::rules(kind == "ClusterRole") });
        let subject = json!({ "kind": "ServiceAccount", "name": self.name, "namespace": self.namespace });
        let binding = |kind: &str, of: &str, metadata: Value| {
            json!({
                "apiVersion": version, "kind": kind, "roleRef": { "apiGroup": RBAC, "kind": of, "name": metadata["name"] },
                "metadata": metadata, "subjects": [subject],
            })
        };
        let (name, everywhere) = (&self.name, &self.name_everywhere());
        let (here, jobs) = (Some(self.namespace.as_str()), Some(self.jobs_in.as_str()));
        [
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": self.metadata(name, here) }),
            role("Role", self.metadata(name, jobs)),
            binding("RoleBinding", "Role", self.metadata(name, jobs)),
            role("ClusterRole", self.metadata(everywhere, None)),
            binding("ClusterRoleBinding", "ClusterRole", self.metadata(everywhere, None)),
        ]
    }

    fn server(&self, server: &ServerInPod) -> [Value; 4] {
        let ServerInPod { image, port, storage, .. } = server;
        let metadata = || self.metadata(&self.name, Some(&self.namespace));
        let chosen = json!({ "app.kubernetes.io/name": "windfall", "app.kubernetes.io/instance": self.name });
        let container = json!({
            "name": "windfall",
            "image": image,
            "command": ["windfall", "up", "--foreground", "--config", format!("{CONFIG}/config.toml")],
            "env": [{ "name": "WINDFALL_HOME", "value": format!("{STATE}/state") }, { "name": "HOME", "value": STATE }],
            "ports": [{ "name": "nodes", "containerPort": port }],
            "readinessProbe": { "tcpSocket": { "port": "nodes" } },
            "resources": { "requests": { "cpu": "250m", "memory": "256Mi" } },
            "securityContext": {
                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": { "drop": ["ALL"] },
            },
            "volumeMounts": [
                { "name": "state", "mountPath": STATE },
                { "name": "config", "mountPath": CONFIG, "readOnly": true },
                { "name": "tmp", "mountPath": "/tmp" },
            ],
        });
        let pod = json!({
            "serviceAccountName": self.name,
            "securityContext": {
                "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            // It ends by itself when what it has begun to write is written.
            "terminationGracePeriodSeconds": 60,
            "containers": [container],
            "volumes": [
                { "name": "state", "persistentVolumeClaim": { "claimName": self.name } },
                { "name": "config", "configMap": { "name": self.name } },
                { "name": "tmp", "emptyDir": {} },
            ],
        });
        [
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(),
                "data": { "config.toml": self.config(server) },
            }),
            json!({
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata(),
                "spec": { "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": storage } } },
            }),
            json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(),
                "spec": {
                    // One, and never two at once: its state is a volume's.
                    "replicas": 1, "strategy": { "type": "Recreate" }, "selector": { "matchLabels": chosen },
                    "template": { "metadata": { "labels": chosen }, "spec": pod },
                },
            }),
            json!({
                "apiVersion": "v1", "kind": "Service", "metadata": metadata(),
                "spec": { "selector": chosen, "ports": [{ "name": "nodes", "port": port, "targetPort": "nodes" }] },
            }),
        ]
    }

    /// What its configuration file says.
    fn config(&self, server: &ServerInPod) -> String {
        let ServerInPod { image, program_image, port, .. } = server;
        let KubernetesSetup { name, namespace, jobs_in, .. } = self;
        format!(
            "[server]\nlisten = \"0.0.0.0:{port}\"\n\n[kubernetes]\nserver = \"{name}.{namespace}.svc:{port}\"\n\
             namespace = \"{jobs_in}\"\nimage = \"{program_image}\"\nagent_image = \"{image}\"\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn installed(has_server: bool) -> Vec<Value> {
        let server = ServerInPod {
            image: "lab/windfall:1".to_owned(),
            program_image: "pytorch:2".to_owned(),
            port: 7_443,
            storage: "20Gi".to_owned(),
        };
        let server = has_server.then_some(server);
        let name = "windfall".to_owned();
        KubernetesSetup { name, namespace: "lab".to_owned(), jobs_in: "ml".to_owned(), server }.objects()
    }

    fn kinds(objects: &[Value]) -> Vec<&str> {
        objects.iter().filter_map(|object| object["kind"].as_str()).collect()
    }

    #[test]
    fn an_account_may_do_what_the_server_does_and_nothing_else() {
        let objects = installed(false);
        let account = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
        assert_eq!(kinds(&objects), [&["Namespace", "Namespace"][..], &account].concat());
        let role = &objects[3];
        assert_eq!(role["metadata"]["namespace"], "ml", "rights are where Jobs are made");
        let jobs = json!({ "apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "patch", "delete"] });
        assert!(role["rules"].as_array().is_some_and(|rules| rules.contains(&jobs)), "{role}");
        let text = serde_json::to_string(&objects).expect("JSON");
        assert!(!text.contains('*'), "no right is of everything: {text}");
        let everywhere = objects[5]["rules"].to_string();
        assert!(!everywhere.contains("secrets") && !everywhere.contains("delete"), "{everywhere}");
        assert_eq!(objects[6]["roleRef"]["name"], "lab-windfall", "two servers do not share it");
    }

    #[test]
    fn a_server_in_the_cluster_says_where_pods_reach_it() {
        let objects = installed(true);
        assert_eq!(kinds(&objects)[7..], ["ConfigMap", "PersistentVolumeClaim", "Deployment", "Service"]);
        let config = objects[7]["data"]["config.toml"].as_str().unwrap_or_default();
        assert!(
            config.contains("server = \"windfall.lab.svc:7443\"") && config.contains("namespace = \"ml\""),
            "{config}"
        );
        let (deployment, service) = (&objects[9]["spec"], &objects[10]["spec"]);
        assert_eq!(deployment["selector"]["matchLabels"], service["selector"]);
        let labels = &deployment["template"]["metadata"]["labels"];
        assert_eq!(*labels, service["selector"]);
        assert_eq!(deployment["template"]["spec"]["securityContext"]["runAsNonRoot"], true);
    }
}
