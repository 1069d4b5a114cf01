use proptest::prelude::*;

use super::*;

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-c]",
        "[a-z]{1,3}/[a-zA-Z.]{1,4}",
        "\\PC{0,6}",
        Just("OwnNamespace".to_owned()),
        Just("AllNamespaces".to_owned()),
    ]
}

fn any_selector() -> impl Strategy<Value = Value> {
    let operator = prop_oneof![
        Just("In".to_owned()),
        Just("NotIn".to_owned()),
        Just("Exists".to_owned()),
        Just("DoesNotExist".to_owned()),
        any_text(),
    ];
    let expression = (any_text(), operator, prop::collection::vec(any_text(), 0..3))
        .prop_map(|(key, operator, values)| json!({ "key": key, "operator": operator, "values": values }));
    let labels = prop::collection::btree_map(any_text(), any_text(), 0..3);
    (labels, prop::collection::vec(expression, 0..3))
        .prop_map(|(labels, expressions)| json!({ "matchLabels": labels, "matchExpressions": expressions }))
}

fn any_group() -> impl Strategy<Value = OperatorGroup> {
    let targets = prop::collection::vec(any_text(), 0..4);
    let status = prop::option::of(prop::collection::vec(any_text(), 0..4));
    let annotation = prop::option::of("[A-Ca-c.,]{0,20}");
    ("[ab]", "[xy]", targets, prop::option::of(any_selector()), status, annotation, any::<bool>()).prop_map(
        |(namespace, name, targets, selector, status, annotation, is_static)| {
            let spec =
                json!({ "targetNamespaces": targets, "selector": selector, "staticProvidedAPIs": is_static });
            let group = group(&namespace, &name, spec, json!(status));
            annotation.map_or(group.clone(), |apis| with_apis(group, &apis))
        },
    )
}

fn any_csv() -> impl Strategy<Value = ClusterServiceVersion> {
    let modes = prop::collection::vec(
        prop_oneof![any_text(), prop::sample::select(&ALL_MODES[..]).prop_map(str::to_owned)],
        0..6,
    );
    ("[ab]", modes, prop::collection::vec("[A-C]", 0..3)).prop_map(|(namespace, modes, kinds)| {
        let modes: Vec<&str> = modes.iter().map(String::as_str).collect();
        let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
        csv(&namespace, &modes, &kinds)
    })
}

proptest! {
    /// Bad input gives an error with the object and the field, and no panic.
    #[test]
    fn group_errors_name_object_and_field(group in any_group(), csv in any_csv()) {
        match targets::resolve(&group, &namespaces()) {
            Ok(names) => prop_assert!(names.len() < 2 || !names.contains(&String::new())),
            Err(error) => {
                let (namespace, name) = (targets::namespace(&group), targets::name(&group));
                let start = format!("operatorgroup {namespace}/{name}: spec.");
                prop_assert!(error.to_string().starts_with(&start), "{error}");
            }
        }
        let _ = roles::of_group(&group, &roles::aggregated(&group, std::slice::from_ref(&csv)));
        let _ = prune(&group, std::slice::from_ref(&group), &[csv]);
    }

    /// Writing what the checks ask for leads to rest: a CSV is annotated once, and its group's annotation changes at most twice.
    #[test]
    fn group_checks_come_to_an_end(mut csv in any_csv(), groups in prop::collection::vec(any_group(), 0..4)) {
        // two objects have different names
        let mut groups: Vec<OperatorGroup> = groups
            .into_iter()
            .map(|group| ((targets::namespace(&group).to_owned(), targets::name(&group).to_owned()), group))
            .collect::<BTreeMap<_, _>>()
            .into_values()
            .collect();
        let namespace = csv.metadata.namespace.clone().unwrap();
        let mut ended = false;
        for _ in 0..4 {
            match check(&csv, &groups) {
                GroupState::Annotate(all) => {
                    csv.metadata.annotations.get_or_insert_default().extend(all);
                }
                GroupState::SetProvidedApis(apis) => {
                    let group = groups.iter_mut().find(|group| targets::namespace(group) == namespace).unwrap();
                    *group = with_apis(group.clone(), &apis);
                }
                GroupState::Failed { message, .. } => {
                    prop_assert!(!message.is_empty());
                    ended = true;
                }
                GroupState::Unresolved | GroupState::Member => ended = true,
            }
            if ended {
                break;
            }
        }
        prop_assert!(ended);
    }
}
