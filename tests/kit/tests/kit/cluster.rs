//! The control plane really works, and stops.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use olm_kit::{Cluster, Options, Wait};

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NAMESPACE}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: example.invalid/web}]}
";

#[tokio::test]
async fn cluster_runs_deployments_and_removes_namespaces() {
    let cluster = Cluster::shared().await.unwrap();
    let namespace = cluster.namespace("web").await.unwrap();
    cluster.apply(&DEPLOYMENT.replace("NAMESPACE", &namespace)).await.unwrap();
    let client = cluster.client().await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    Wait::new(&deployments, "web").for_condition("Available", "True").await.unwrap();

    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client);
    namespaces.delete(&namespace, &Default::default()).await.unwrap();
    Wait::new(&namespaces, &namespace).to_be_gone().await.unwrap();
}

#[tokio::test]
async fn cluster_rbac_counts_for_other_users() {
    let cluster = Cluster::shared().await.unwrap();
    let namespace = cluster.namespace("rbac").await.unwrap();
    for kubeconfig in [
        cluster.kubeconfig_as("somebody", &["system:authenticated"]).unwrap(),
        cluster.kubeconfig_for_service_account(&namespace, "nobody").await.unwrap(),
    ] {
        let client = Cluster::client_from(&kubeconfig).await.unwrap();
        let maps: Api<ConfigMap> = Api::namespaced(client, &namespace);
        match maps.list(&Default::default()).await.unwrap_err() {
            kube::Error::Api(status) => assert_eq!(status.code, 403, "{status:?}"),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn cluster_wait_that_fails_reports_the_last_state() {
    let cluster = Cluster::shared().await.unwrap();
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(cluster.client().await.unwrap());
    let mut limit = Duration::from_millis(500);
    let problem = loop {
        let wait = Wait::new(&nodes, "node-1").within(limit);
        let problem = wait.for_condition("Ready", "False").await.unwrap_err().to_string();
        // an apiserver that is slow has sent nothing yet
        if !problem.contains("it does not exist") || limit > Duration::from_secs(60) {
            break problem.replace(&format!("{limit:.0?}"), "LIMIT");
        }
        limit *= 4;
    };
    assert!(problem.starts_with("Node node-1: not \"Ready=False\" within LIMIT; last seen:"), "{problem}");
    assert!(problem.contains("Ready=True"), "{problem}");
    let wait = Wait::new(&nodes, "node-2").within(Duration::from_millis(100));
    let problem = wait.to_exist().await.unwrap_err().to_string();
    assert!(problem.contains("it does not exist"), "{problem}");
}

#[tokio::test]
async fn cluster_audit_log_counts_requests() {
    let options = Options { audit: true, api_only: true, ..Options::default() };
    let cluster = Cluster::start_with(&options).await.unwrap();
    let client = cluster.client().await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    for _ in 0..3 {
        assert!(maps.get_opt("absent").await.unwrap().is_none());
    }
    let seen = cluster.audit().unwrap();
    let ours: Vec<_> = seen.iter().filter(|it| it.resource == "configmaps" && it.name == "absent").collect();
    assert_eq!(ours.len(), 3);
    assert!(
        ours.iter()
            .all(|it| it.verb == "get" && it.code == 404 && it.user == "olm-kit-admin" && !it.writes())
    );
}

#[tokio::test]
async fn cluster_stop_leaves_nothing_behind() {
    let started = Instant::now();
    let mut cluster = Cluster::start().await.unwrap();
    eprintln!("control plane up in {:.1?}", started.elapsed());
    let dir = cluster.dir().to_owned();
    let children = cluster.plane().unwrap().children();
    let memory: u64 = children.iter().map(|child| child.memory().unwrap().resident).sum();
    eprintln!("{} programs, {} MiB resident", children.len(), memory >> 20);
    let pids: Vec<u32> = children.iter().map(|child| child.pid()).collect();
    assert_eq!(pids.len(), 5);
    drop(cluster);
    for pid in pids {
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "{pid} still runs");
    }
    assert!(!dir.exists());
}
