//! Pods that wait, as a page lists them.

use std::sync::Arc;

use muster_control::explain::{Explain, Subject};
use muster_model::k8s::PodKey;

use crate::world::{World, pod};

fn explain(world: &World) -> Explain {
    Explain::new(world.parts.board.clone(), world.journal())
}

/// Pods that no plan helps come first, the largest help before the others; each group says what `explain` says.
#[tokio::test]
async fn ops_u10_groups_say_what_explain_says_and_the_largest_help_comes_first() {
    let mut world = World::new().await;
    world.metal("web", 0, 1).await;
    for host in ["a", "b", "c"] {
        world.host(host, "web").await;
    }
    // One machine of 8 cores may come: one pod of 6 finds a place on it, four do not; two of 100 never can.
    world.show(|objects| {
        objects.pods.extend((0..5).map(|number| pod(&format!("web-{number}"), "6")));
        objects.pods.extend((0..2).map(|number| pod(&format!("giant-{number}"), "100")));
    });
    let _ = world.turn().await;
    let explain = explain(&world);
    let groups = explain.pending(world.id).expect("pods are seen");
    assert_eq!(groups.iter().map(|group| group.count).sum::<usize>(), 7, "{groups:#?}");
    let (hopeless, helped): (Vec<_>, Vec<_>) = groups.iter().partition(|group| !group.helped);
    assert!(
        groups.iter().position(|group| group.helped).is_none_or(|at| at == hopeless.len()),
        "{groups:#?}"
    );
    assert_eq!(helped.iter().map(|group| group.count).sum::<usize>(), 1);
    let helps: Vec<u32> =
        hopeless.iter().map(|group| group.fixes.first().map_or(0, |fix| fix.helps)).collect();
    assert!(helps.is_sorted_by(|a, b| a >= b), "{helps:?}");
    // Raising the maximum is what most of them need.
    let first = &hopeless[0].fixes[0];
    assert_eq!((first.object.as_str(), first.helps >= 4), ("nodepools/web", true), "{first:?}");
    for group in groups.iter() {
        let key = PodKey { namespace: group.example.namespace.clone(), name: group.example.name.clone() };
        let said = explain.now(world.id, &Subject::Pod(key), world.now()).await.unwrap();
        assert_eq!(said.headline, group.headline);
        assert!(said.text.starts_with(group.text.trim_end()), "{}\n{}", said.text, group.text);
        assert!(!group.requests.is_empty() && group.pods.len() == group.count, "{group:?}");
    }
    // The same look costs no second explanation.
    assert!(Arc::ptr_eq(&groups, &explain.pending(world.id).unwrap()));
}

/// Where nobody sees pods, nobody says that none wait.
#[tokio::test]
async fn without_a_connection_what_waits_is_unknown() {
    let mut world = World::with(Arc::new(muster_store::memory::Memory::default()), false, "active").await;
    world.metal("web", 0, 1).await;
    let _ = world.turn().await;
    assert!(explain(&world).pending(world.id).is_none());
}
